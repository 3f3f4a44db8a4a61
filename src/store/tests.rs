//! Migrations: files of 1.0.0 become files of the present version.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::{Map, Value as Json};

use super::data_dir::TENANT;
use super::database::{Database, Role, Schema, differences};
use super::*;
use crate::model::{ALL, TenantId};

const ACME: TenantId = TenantId(1);

/// The databases that 1.0.0 made, and the records in them.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema-6")
}

/// Copies a database that 1.0.0 made: `registry.db` or `tenant.db`.
pub(super) fn unpack(name: &str, to: &Path) {
    let databases = fs::File::open(fixture().join("databases.zip")).unwrap();
    let mut databases = zip::ZipArchive::new(databases).unwrap();
    let mut to = fs::File::create(to).unwrap();
    std::io::copy(&mut databases.by_name(name).unwrap(), &mut to).unwrap();
}

/// A data directory of 1.0.0: its registry, and `tenants` copies of its tenant's file.
fn data_dir(tenants: i64) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let registry = data_dir::registry_database(data);
    unpack("registry.db", registry.path());
    fs::create_dir(data_dir::tenants_dir(data)).unwrap();
    for id in 1..=tenants {
        let file = data_dir::tenant_database(data, TenantId(id));
        unpack("tenant.db", file.path());
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
                Ok::<(), StoreError>(())
            })
        })
        .unwrap();
    }
    records
}

/// Compares the members that the records had. Fields that were added later are not `expected`.
#[track_caller]
fn assert_has_records(data: &Path) {
    let text = fs::read_to_string(fixture().join("records.jsonl")).unwrap();
    let expected: Vec<Map<String, Json>> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut found = records(data);
    for (found, expected) in found.iter_mut().zip(&expected) {
        found.retain(|name, _| expected.contains_key(name));
    }
    assert_eq!(found, expected);
}

/// The rows of a statement, one text each.
fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn files_of_1_0_0_get_the_present_schema_and_keep_their_content() {
    let directory = data_dir(1);
    let data = directory.path();
    let file = data_dir::tenant_database(data, ACME);
    let kept = |connection: &Connection| {
        [
            rows(connection, "SELECT name || ' ' || seq FROM sqlite_sequence ORDER BY name"),
            rows(
                connection,
                "SELECT hex(key) || hex(request) || status || body FROM idempotency ORDER BY id",
            ),
            rows(
                connection,
                "SELECT json_array(seq, at, resource, record_id, action, fields, before, by_key,
                    by_name, by_prefix, hex(request_id)) FROM changes ORDER BY seq",
            ),
            rows(connection, "SELECT id || ' ' || version FROM customers"),
            rows(connection, "SELECT id || ' ' || version || updated_at FROM hardware"),
        ]
    };
    let before = kept(&open_as_it_is(file.path()));
    assert!(before.iter().all(|rows| !rows.is_empty()), "{before:?}");
    drop(DataDir::open_to_serve(data).unwrap());
    for database in [&file, &data_dir::registry_database(data)] {
        let connection = database.open(Role::Reader).unwrap();
        let differences = differences(&connection, database.schema).unwrap();
        assert_eq!(differences, [""; 0], "{database:?}");
    }
    let connection = file.open(Role::Reader).unwrap();
    assert_eq!(kept(&connection), before);
    assert_eq!(backup::check::change_log_problems(&connection, &TENANT).unwrap(), [""; 0]);
    assert_eq!(rows(&connection, "PRAGMA integrity_check"), ["ok"]);
    assert_eq!(
        rows(&connection, "SELECT name FROM pragma_foreign_key_check, sqlite_schema"),
        [""; 0]
    );
    assert_has_records(data);
}

/// The schema of the next version, which has a further column.
fn next_schema(step: &'static str) -> &'static Schema {
    let sql = TENANT.sql.replacen("CREATE TABLE customers (", "CREATE TABLE customers (n TEXT,", 1);
    let steps = [TENANT.steps, &[step]].concat();
    Box::leak(Box::new(Schema { sql: sql.leak(), first: TENANT.first, steps: steps.leak() }))
}

#[test]
fn the_next_version_adds_and_fills_a_column_or_changes_nothing() {
    const ADDS: &str = "ALTER TABLE customers ADD COLUMN n TEXT; UPDATE customers SET n = name;";
    const FAILS: &str = "ALTER TABLE customers ADD COLUMN n TEXT; UPDATE nothing SET n = name;";
    const DIFFERS: &str = "ALTER TABLE customers ADD COLUMN other TEXT;";
    let directory = data_dir(1);
    let path = data_dir::tenant_database(directory.path(), ACME).path().to_owned();
    let state = || {
        let file = open_as_it_is(&path);
        let schema = "SELECT name || coalesce(sql, '') FROM sqlite_schema ORDER BY name";
        let version = "SELECT CAST(user_version AS TEXT) FROM pragma_user_version";
        [rows(&file, schema), rows(&file, version)]
    };
    Database::new(&path, &TENANT).migrate().unwrap();
    let before = state();
    for step in [FAILS, DIFFERS] {
        let error = Database::new(&path, next_schema(step)).migrate().unwrap_err();
        assert!(error.to_string().contains("migrating it from schema"), "{error}");
        assert_eq!(state(), before, "{step}");
    }
    let next = Database::new(&path, next_schema(ADDS));
    assert_eq!(next.migrate().unwrap(), Some(TENANT.version()));
    let file = next.open(Role::Reader).unwrap();
    assert_eq!(rows(&file, "SELECT n FROM customers"), rows(&file, "SELECT name FROM customers"));
    assert_eq!(next.migrate().unwrap(), None);
}
