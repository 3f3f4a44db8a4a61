//! Migrations: files of every released schema version become files of the present one.

use std::fs;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::{Map, Value as Json};

use super::data_dir::TENANT;
use super::database::{Role, differences};
use super::registry::{Admin, Event, KeyRow, NewKey};
use super::*;
use crate::clock::{Clock, Timestamp};
use crate::config::Config;
use crate::model::{ALL, CUSTOMER, RecordId, Scopes, TenantId};

/// The schema versions of tenants' files. Each has fixtures.
fn versions() -> RangeInclusive<u32> {
    1..=TENANT.version
}

const ACME: TenantId = TenantId(1);

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/schema-{version}"))
}

/// A data directory of a version: its registry, and `tenants` copies of its tenant's file.
fn data_dir(version: u32, tenants: i64) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let registry = data_dir::registry_database(data);
    fs::copy(fixture(version).join("registry.db"), registry.path()).unwrap();
    fs::create_dir(data_dir::tenants_dir(data)).unwrap();
    for id in 1..=tenants {
        let file = data_dir::tenant_database(data, TenantId(id));
        fs::copy(fixture(version).join("tenant.db"), file.path()).unwrap();
    }
    directory
}

/// The file as another program opens it.
#[expect(clippy::disallowed_methods, reason = "the file is of another version")]
fn open_as_it_is(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

fn records(data: &Path) -> Vec<Map<String, Json>> {
    let file = TenantFile::open(data, ACME).unwrap();
    let mut records = Vec::new();
    for resource in ALL {
        file.read(|reading| {
            reading.each(resource, |record| {
                records.push(serde_json::from_slice(&record.json(resource)).unwrap());
                Ok::<(), DatabaseError>(())
            })
        })
        .unwrap();
    }
    records
}

/// Compares the members that the records had. Fields that were added later are not `expected`.
#[track_caller]
fn assert_has_records(data: &Path, version: u32) {
    let text = fs::read_to_string(fixture(version).join("records.jsonl")).unwrap();
    let expected: Vec<Map<String, Json>> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut found = records(data);
    for (found, expected) in found.iter_mut().zip(&expected) {
        found.retain(|name, _| expected.contains_key(name));
    }
    assert_eq!(found, expected, "schema {version}");
}

/// The rows of a statement, one text each.
fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn files_of_every_released_version_get_the_present_schema_and_keep_their_content() {
    for version in versions() {
        let directory = data_dir(version, 1);
        let data = directory.path();
        let file = data_dir::tenant_database(data, ACME);
        let counters = "SELECT name || ' ' || seq FROM sqlite_sequence
             WHERE name IN ('customers', 'employees', 'hardware') ORDER BY name";
        let stored =
            "SELECT hex(key) || hex(request) || status || body FROM idempotency ORDER BY id";
        let kept = |connection: &Connection| [rows(connection, counters), rows(connection, stored)];
        let before = kept(&open_as_it_is(file.path()));
        assert!(!before[0].is_empty(), "{before:?}");
        drop(DataDir::open_to_serve(data).unwrap());
        for database in [&file, &data_dir::registry_database(data)] {
            let connection = database.open(Role::Reader).unwrap();
            let differences = differences(&connection, database.schema).unwrap();
            assert_eq!(differences, [""; 0], "{database:?} of schema {version}");
        }
        let connection = file.open(Role::Reader).unwrap();
        assert_eq!(kept(&connection), before, "schema {version}");
        assert_eq!(
            archive::check::problems_of_records(&connection, &TENANT).unwrap(),
            [""; 0],
            "schema {version}"
        );
        assert_eq!(rows(&connection, "PRAGMA integrity_check"), ["ok"]);
        assert_eq!(
            rows(&connection, "SELECT name FROM pragma_foreign_key_check, sqlite_schema"),
            [""; 0]
        );
        assert_has_records(data, version);
    }
}

#[test]
fn the_registry_of_every_released_version_is_used_as_a_new_one_is() {
    for version in versions() {
        let directory = data_dir(version, 1);
        let data = directory.path();
        drop(DataDir::open_to_serve(data).unwrap());
        let registry = Registry::open(data).unwrap();
        assert_eq!(registry.find_tenant("acme").unwrap().unwrap().id, ACME);
        let key = registry.list_keys(ACME).unwrap().remove(0);
        assert_eq!((key.expires_at, key.rate_limit), (None, None), "schema {version}");
        let now = Clock::system().now();
        let actor = Admin::CommandLine;
        registry.administer(ACME, actor, now).set_password("$new").unwrap();
        let overlap = jiff::Span::new();
        let replaced = registry.administer(ACME, actor, now).replace_key(key.id, overlap).unwrap();
        let change = |key: &mut KeyRow| {
            key.name = "renamed".to_owned();
            key.expires_at = now.after(jiff::Span::new().days(1));
            key.rate_limit = NonZeroU32::new(7);
        };
        registry.administer(ACME, actor, now).change_key(replaced.new.id, change).unwrap();
        let tenant = registry.tenant(ACME).unwrap().unwrap();
        let client = "2001:db8::1".parse().unwrap();
        registry.record_failed_sign_in(ACME, client, now);
        assert!(registry.create_session(&tenant, &[9; 32], client, now).unwrap());
        let actions = |events: Vec<Event>| -> Vec<String> {
            events.into_iter().map(|event| event.action).collect()
        };
        let changes = actions(registry.changes(ACME, 10).unwrap());
        let expected = [
            "key limit changed",
            "key expiry changed",
            "key renamed",
            "key replaced",
            "key created",
            "password changed",
            "key created",
        ];
        assert_eq!(changes[..7], expected, "schema {version}");
        let sign_ins = actions(registry.sign_ins(ACME, 10).unwrap());
        assert_eq!(sign_ins[..2], ["signed in", "failed sign-in"], "schema {version}");
    }
}

/// An entry of the change log, in the names of schema 4.
const ENTRIES: &str = "SELECT json_array(seq, at, resource, record_id, action, fields, before,
    by_key, by_name, by_prefix, hex(request_id)) FROM changes ORDER BY seq";

#[test]
fn the_change_log_of_schema_3_stays_with_the_versions_of_its_records() {
    let directory = data_dir(3, 1);
    let data = directory.path();
    let file = data_dir::tenant_database(data, ACME);
    let versions = ["customers", "employees", "hardware"]
        .map(|table| format!("SELECT '{table} ' || id || ' ' || version FROM {table}"));
    let versions = versions.join(" UNION ALL ");
    let state = |table: &str| {
        format!("SELECT hex(lineage) || last_seq || ' ' || keep_seconds FROM {table}")
    };
    let old = open_as_it_is(file.path());
    let expected = [
        rows(&old, &ENTRIES.replace("before", "former")),
        rows(&old, &versions),
        rows(&old, &state("journal")),
    ];
    drop(old);
    drop(DataDir::open_to_serve(data).unwrap());
    let new = file.open(Role::Reader).unwrap();
    let found = [rows(&new, ENTRIES), rows(&new, &versions), rows(&new, &state("changes_state"))];
    assert_eq!(found, expected);
    assert_eq!(found[0].len(), 7);
    let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
    let json = TenantFile::open(data, ACME)
        .unwrap()
        .read(|reading| {
            reading.changes(&ChangesQuery {
                readable: ALL.to_vec(),
                resource: None,
                record: None,
                start: Start::Oldest,
                limit: 50,
                oldest: reading.changes_shown_since(now)?,
            })
        })
        .unwrap()
        .unwrap()
        .json;
    let entries: Vec<Json> = serde_json::from_slice(&json).unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    let expected = ["created", "created", "created", "created", "updated", "created", "deleted"];
    assert_eq!(actions, expected);
    assert!(entries.iter().all(|entry| entry["by"]["name"] == "first key"), "{entries:?}");
}

/// Makes the fixtures of the present version from the fixtures of the version before.
#[test]
#[ignore = "writes tests/fixtures; src/store/migrations/README.md says when to run it"]
fn make_fixtures() {
    let present = TENANT.version;
    let before = present - 1;
    let directory = data_dir(before, 1);
    let data = directory.path();
    drop(DataDir::open_to_serve(data).unwrap());
    let registry = Registry::open(data).unwrap();
    let (now, client) = (Clock::system().now(), "192.0.2.1".parse().unwrap());
    let new = NewKey::new("second key", Scopes::read_only());
    registry.administer(ACME, Admin::Panel(client), now).create_key(&new).unwrap();
    registry.record_failed_sign_in(ACME, client, now);
    registry.flush().unwrap();
    let lines = records(data).into_iter().map(|record| Json::Object(record).to_string() + "\n");
    fs::create_dir_all(fixture(present)).unwrap();
    fs::write(fixture(present).join("records.jsonl"), lines.collect::<String>()).unwrap();
    for (name, source) in [
        ("registry.db", data_dir::registry_database(data)),
        ("tenant.db", data_dir::tenant_database(data, ACME)),
    ] {
        let path = fixture(present).join(name);
        let _ = fs::remove_file(&path);
        let copied = format!("VACUUM INTO '{}'", path.display());
        open_as_it_is(source.path()).execute_batch(&copied).unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_migrated_is_left_as_it_was_and_others_are_served() {
    let obstacles = [
        // The name that the migration gives to a table before it copies the rows.
        "CREATE TABLE old_old_customers (id INTEGER); CREATE TABLE old_customers (id INTEGER)",
        // A copy would lose a column that the program does not know.
        "CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT)",
        "ALTER TABLE customers ADD COLUMN nickname TEXT",
    ];
    for (version, in_the_way) in
        (1..TENANT.version).flat_map(|version| obstacles.map(|sql| (version, sql)))
    {
        let directory = data_dir(version, 2);
        let data = directory.path();
        let file = data_dir::tenant_database(data, ACME);
        open_as_it_is(file.path()).execute_batch(in_the_way).unwrap();
        let content = || -> Vec<String> {
            let old = open_as_it_is(file.path());
            let schema = "SELECT name || coalesce(sql, '') FROM sqlite_schema ORDER BY name";
            let customers = "SELECT id || name || updated_at || search FROM customers ORDER BY id";
            let version = "SELECT CAST(user_version AS TEXT) FROM pragma_user_version";
            [schema, customers, version].into_iter().flat_map(|sql| rows(&old, sql)).collect()
        };
        let before = content();
        drop(DataDir::open_to_serve(data).unwrap());
        assert_eq!(content(), before, "schema {version}");
        let refused = TenantFile::open(data, ACME).unwrap_err();
        assert!(matches!(refused, OpenError::Older { found, .. } if found == version), "{refused}");
        let tenants = Tenants::new(data, Config::new("").tenants);
        assert_eq!(tenants.open(ACME).err(), Some(StoreError::Unavailable));
        let other = tenants.open(TenantId(2)).unwrap();
        let deadline = Deadline::new(std::sync::Arc::default());
        assert!(other.read(deadline, |reading| reading.exists(&CUSTOMER, RecordId(1))).unwrap());
    }
}

#[test]
fn files_of_other_versions_are_refused_by_commands() {
    let directory = data_dir(3, 1);
    let data = directory.path();
    let refused = TenantFile::open(data, ACME).unwrap_err().to_string();
    assert!(refused.contains("start the service once"), "{refused}");
    drop(DataDir::open_to_serve(data).unwrap());
    let file = data_dir::tenant_database(data, ACME);
    let newer = TENANT.version + 1;
    open_as_it_is(file.path()).pragma_update(None, "user_version", newer).unwrap();
    let refused = TenantFile::open(data, ACME).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found, .. } if found == newer), "{refused}");
    drop(DataDir::open_to_serve(data).unwrap());
    let refused = TenantFile::open(data, ACME).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { .. }), "{refused}");
}
