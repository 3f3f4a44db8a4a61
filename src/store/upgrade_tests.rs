//! Upgrades of databases. Files of every released schema version are opened, and a migrated file is compared with a new one.
//! The next version and a migration that fails are made up here, from whatever the current version is.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::{Map, Value as Json};

use super::check;
use super::connection::{self, OpenError};
use super::import::{NewIds, NewRecord};
use super::registry::{self, Actor, Registry};
use super::schema::{self, Migration, Schema};
use super::tenant_file::TenantFile;
use super::tenants::{self, Tenants};
use super::{DatabaseError, StoreError};
use crate::clock::Clock;
use crate::config::TenantLimits;
use crate::metrics::Metrics;
use crate::model::{ALL, CUSTOMER, Value};

/// Every schema version that has fixtures. The last one is the current version.
const RELEASED: [u32; 3] = [1, 2, 3];

const ADD_FIELD: &str =
    "ALTER TABLE customers ADD COLUMN added TEXT; CREATE INDEX customers_by_added ON customers (added);";

/// The schema that results from the current one by `steps`, each of which makes a version.
pub(super) fn after(steps: &[&'static str], sql: String) -> &'static Schema {
    let mut migrations = tenants::SCHEMA.migrations.to_vec();
    migrations.extend(steps.iter().map(|sql| Migration::new(sql)));
    let version = u32::try_from(migrations.len()).unwrap() + 1;
    Box::leak(Box::new(Schema { name: "tenant", version, sql: sql.leak(), migrations: migrations.leak() }))
}

/// The next version, which adds a field. A new file has the column in a different place than a migrated file.
fn next() -> &'static Schema {
    let sql = tenants::SCHEMA.sql.replacen("phone ", "added TEXT, phone ", 1);
    after(&[ADD_FIELD], format!("{sql} CREATE INDEX customers_by_added ON customers (added);"))
}

/// The version after the next. Its step fails for a file with two customers of the same name.
fn failing() -> &'static Schema {
    let step = "CREATE TABLE extra (id INTEGER); CREATE UNIQUE INDEX one_of_each ON customers (name);";
    after(&[ADD_FIELD, step], String::new())
}

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/schema-{version}"))
}

/// Creates a data directory from the fixtures of a version: the registry and `tenants` copies of the tenant's file.
fn data_dir(version: u32, tenants: i64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(fixture(version).join("registry.db"), folder.path().join(registry::FILE)).unwrap();
    fs::create_dir(tenants::folder(folder.path())).unwrap();
    for id in 1..=tenants {
        let path = tenants::file(&tenants::folder(folder.path()), id);
        fs::copy(fixture(version).join("tenant.db"), &path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

/// Returns a description of each table, index and trigger by its name. The order of a table's columns does not count; the
/// order of an index's columns does.
fn objects(connection: &Connection) -> BTreeMap<String, Vec<String>> {
    let texts = |sql: &str, name: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([name], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let names = texts("SELECT name FROM sqlite_schema WHERE name <> ?", "");
    let describe = |name: String| {
        let mut columns = texts(
            "SELECT name || ' ' || type || ' ' || \"notnull\" || ' ' || coalesce(dflt_value, '') || ' ' || pk || ' ' || hidden
             FROM pragma_table_xinfo(?)",
            &name,
        );
        columns.sort_unstable();
        let mut description = texts("SELECT type || ' ' || tbl_name FROM sqlite_schema WHERE name = ?", &name);
        description.extend(columns);
        description.extend(texts("SELECT coalesce(name, '') || ' ' || \"desc\" FROM pragma_index_xinfo(?)", &name));
        description.extend(texts("SELECT \"from\" || ' → ' || \"table\" FROM pragma_foreign_key_list(?)", &name));
        description.extend(texts("SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?", &name));
        (name, description)
    };
    names.into_iter().map(describe).collect()
}

fn new_objects(schema: &Schema) -> BTreeMap<String, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    objects(&schema::create(&folder.path().join("new.db"), schema).unwrap())
}

fn records(data: &Path) -> String {
    let file = TenantFile::open(data, 1).unwrap();
    let mut text = String::new();
    let read: Result<(), DatabaseError> = file.read(|reading| {
        for resource in ALL {
            reading.each(resource, |record| {
                text.push_str(&String::from_utf8(record.json(resource)).unwrap());
                text.push('\n');
                Ok::<(), DatabaseError>(())
            })?;
        }
        Ok(())
    });
    read.unwrap();
    text
}

/// Compares the members that the records of an older version have. Fields that were added later are not in `expected`.
fn assert_has_records(found: &str, expected: &str) {
    let parse = |text: &str| -> Vec<Map<String, Json>> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (mut found, expected) = (parse(found), parse(expected));
    for (found, expected) in found.iter_mut().zip(&expected) {
        found.retain(|name, _| expected.contains_key(name));
    }
    assert_eq!(found, expected);
}

#[test]
fn files_of_every_released_version_get_the_current_schema() {
    for version in RELEASED {
        let data = data_dir(version, 1);
        let tenant = schema::open(&data.path().join("tenants/1.db"), &tenants::SCHEMA).unwrap();
        assert_eq!(objects(&tenant), new_objects(&tenants::SCHEMA), "schema {version}");
        drop(tenant);
        let registry = schema::open(&data.path().join(registry::FILE), &registry::SCHEMA).unwrap();
        assert_eq!(objects(&registry), new_objects(&registry::SCHEMA), "schema {version}");
        drop(registry);
        assert_has_records(&records(data.path()), &fs::read_to_string(fixture(version).join("records.jsonl")).unwrap());
        let findings = check::check(data.path()).unwrap();
        assert!(findings.iter().all(|finding| finding.problems.is_empty()), "{findings:?}");
        let registry = Registry::open(data.path()).unwrap();
        assert_eq!(registry.find_tenant("acme").unwrap().unwrap().id, 1);
        let key = registry.list_keys(1).unwrap().remove(0);
        assert_eq!((key.expires_at, key.rate_limit), (None, None), "schema {version}");
        registry.set_password(1, "$new", Actor::CommandLine, Clock::system().now()).unwrap();
        let events = registry.key_events(1, 10).unwrap();
        let found: Vec<_> = events.into_iter().map(|event| (event.action, event.key.map(|key| key.name))).collect();
        let expected = [("password changed".to_owned(), None), ("created".to_owned(), Some(key.name))];
        assert_eq!(found, expected, "schema {version}");
        let now = Clock::system().now();
        let replaced = registry.replace_key(1, key.id, jiff::Span::new(), Actor::CommandLine, now).unwrap();
        registry.set_rate_limit(1, replaced.new.id, NonZeroU32::new(7), Actor::CommandLine, now).unwrap();
        let events = registry.key_events(1, 3).unwrap();
        let actions: Vec<_> = events.iter().map(|event| event.action.as_str()).collect();
        assert_eq!(actions, ["limit changed", "replaced", "created"], "schema {version}");
    }
}

#[test]
fn the_journal_of_schema_3_is_read() {
    let data = data_dir(3, 1);
    let file = TenantFile::open(data.path(), 1).unwrap();
    let now = "2026-11-22T12:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second();
    let json: Result<Vec<u8>, DatabaseError> = file.read(|reading| reading.last_changes(None, None, 50, now));
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&json.unwrap()).unwrap();
    let actions: Vec<&str> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["created", "created", "created", "created", "updated", "created", "deleted"]);
    assert!(entries.iter().all(|entry| entry["by"]["name"] == "first key"), "{entries:?}");
}

#[test]
fn the_current_version_has_fixtures_and_a_migration_for_each_step() {
    assert_eq!(RELEASED.last(), Some(&tenants::SCHEMA.version));
    for schema in [&tenants::SCHEMA, &registry::SCHEMA] {
        assert_eq!(schema.migrations.len() + 1, schema.version as usize, "{}", schema.name);
    }
}

#[test]
fn a_migration_keeps_a_copy_and_every_record() {
    let current = tenants::SCHEMA.version;
    let data = data_dir(current, 1);
    let path = data.path().join("tenants/1.db");
    let before = records(data.path());
    let next = next();
    // Four threads open the file at once. One migrates it; the others find the current version.
    std::thread::scope(|scope| {
        let opened: Vec<_> = (0..4).map(|_| scope.spawn(|| schema::open(&path, next).map(drop))).collect();
        opened.into_iter().for_each(|opened| opened.join().unwrap().unwrap());
    });
    let migrated = schema::open(&path, next).unwrap();
    assert_eq!(objects(&migrated), new_objects(next));
    assert_eq!(schema::version(&migrated).unwrap(), current + 1);
    drop(migrated);
    let copy = data.path().join(format!("tenants/1.db.v{current}"));
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let names: Vec<_> = fs::read_dir(data.path().join("tenants")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // The current version refuses the newer file. The copy has the old content.
    let refused = schema::open(&path, &tenants::SCHEMA).unwrap_err();
    assert!(
        matches!(refused, OpenError::Newer { found, known, .. } if (found, known) == (current + 1, current)),
        "{refused}"
    );
    assert!(refused.to_string().contains("newer version of tenantdesk"), "{refused}");
    fs::rename(&copy, &path).unwrap();
    assert_eq!(records(data.path()), before);
    // The copies of a tenant are deleted with the tenant.
    fs::copy(&path, &copy).unwrap();
    tenants::remove_file(data.path(), 1).unwrap();
    assert_eq!(fs::read_dir(data.path().join("tenants")).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_migrated_is_unchanged_and_does_not_affect_other_tenants() {
    let current = tenants::SCHEMA.version;
    let data = data_dir(current, 2);
    let file = TenantFile::open(data.path(), 1).unwrap();
    let values = || {
        let fields = CUSTOMER.fields.iter();
        let text = |name: &str| (name == "name").then(|| Value::Text("Same".to_owned()));
        fields.map(|field| text(field.name).unwrap_or_else(|| field.default_value())).collect::<Vec<_>>()
    };
    let lock = file.lock_imports(|| ()).unwrap();
    let mut import = file.begin_import(&lock, &CUSTOMER, NewIds::Next(2), "2026-11-20T19:30:00Z").unwrap();
    import.add(NewRecord { id: None, values: values() }).unwrap();
    import.add(NewRecord { id: None, values: values() }).unwrap();
    import.finish().unwrap();
    drop(lock);
    drop(file);
    let before = records(data.path());
    let tenants =
        Tenants::new(data.path(), TenantLimits::default(), Metrics::new(|_| "").into()).with_schema(failing());
    assert!(matches!(tenants.open(1), Err(StoreError::Unavailable)));
    let other = tenants.open(2).unwrap();
    let found = other.read(|reading| reading.exists(&CUSTOMER, 1)).unwrap();
    assert!(found);
    drop((other, tenants));
    let failed = schema::open(&data.path().join("tenants/1.db"), failing()).unwrap_err().to_string();
    assert!(failed.contains(&format!("migrating it from schema {current} to {} failed", current + 2)), "{failed}");
    assert!(
        !data.path().join(format!("tenants/1.db.v{current}")).exists(),
        "an older program may still write to the file"
    );
    assert_eq!(records(data.path()), before);
    let file = connection::open_raw(&data.path().join("tenants/1.db")).unwrap();
    assert_eq!(new_objects(&tenants::SCHEMA), objects(&file));
}

/// Adds customers to the file of schema 2 until it has a million.
fn add_a_million(path: &Path) {
    let file = connection::open_raw(path).unwrap();
    file.execute_batch(
        "PRAGMA synchronous = OFF; BEGIN;
         WITH RECURSIVE n (n) AS (SELECT 3 UNION ALL SELECT n + 1 FROM n LIMIT 999998)
         INSERT INTO customers (name, email, city, status, created_at, updated_at, search)
           SELECT 'Customer ' || n, 'c' || n || '@shop.example', 'City ' || n % 1000, 'active', '2026-11-20T19:30:00Z',
                  '2026-11-20T19:30:00Z', 'customer ' || n || char(10) || 'c' || n || '@shop.example' || char(10) FROM n;
         INSERT INTO customers_search (rowid, search) SELECT id, search FROM customers WHERE id > 2; COMMIT;",
    )
    .unwrap();
}

#[test]
#[ignore = "takes minutes; prints how long the migration of a large file takes"]
fn a_million_records_are_migrated_in_seconds() {
    let data = data_dir(2, 1);
    let path = data.path().join("tenants/1.db");
    add_a_million(&path);
    let size = fs::metadata(&path).unwrap().len();
    let clock = Clock::system();
    let start = clock.now();
    let migrated = schema::open(&path, &tenants::SCHEMA).unwrap();
    let taken = clock.now().monotonic - start.monotonic;
    println!("{} MiB with 1,000,000 records were copied and migrated in {taken:?}", size >> 20);
    let count: i64 = migrated.query_row("SELECT count(*) FROM customers", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1_000_000);
    assert_eq!(objects(&migrated), new_objects(&tenants::SCHEMA));
    assert!(taken.as_secs() < 60, "{taken:?}");
}
