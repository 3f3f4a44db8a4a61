//! Upgrades: files of every released schema version are opened by this one, and what a migration leaves is what a new file
//! has. What migrations will do, and how one fails, is tried with ones made up here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::check;
use super::connection::{self, OpenError, Schema};
use super::registry::{self, Actor, Registry};
use super::tenant_file::TenantFile;
use super::tenants::{self, Tenants};
use super::{DatabaseError, Limits, StoreError};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::{ALL, CUSTOMER};

/// Every schema version that was released, with the folder of its files.
const RELEASED: [u32; 2] = [1, 2];

const ADD_FAX: &str = "ALTER TABLE customers ADD COLUMN fax TEXT; CREATE INDEX customers_by_fax ON customers (fax);";

/// The next version, which adds a field.
static NEXT: Schema = Schema {
    name: "tenant",
    version: 3,
    sql: concat!(
        include_str!("../../schema.sql"),
        "ALTER TABLE customers ADD COLUMN fax TEXT; CREATE INDEX customers_by_fax ON customers (fax);"
    ),
    migrations: &["", ADD_FAX],
};

/// A version 4 whose last step a file with two customers of one name cannot take.
static BROKEN: Schema = Schema {
    name: "tenant",
    version: 4,
    sql: "",
    migrations: &["", ADD_FAX, "CREATE TABLE extra (id INTEGER); CREATE UNIQUE INDEX one_of_each ON customers (name);"],
};

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/schema-{version}"))
}

/// A data directory with copies of a version's files, the tenant's as often as asked for.
fn data_of(version: u32, tenants: i64) -> tempfile::TempDir {
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

/// Name → type, columns and the columns of indexes: what a schema is, however its text was written.
fn described(connection: &Connection) -> BTreeMap<String, Vec<String>> {
    let lines = |sql: &str, name: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([name], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let objects = lines("SELECT name FROM sqlite_schema WHERE name <> ?", "");
    let describe = |name: String| {
        let mut all = lines("SELECT type || ' ' || tbl_name FROM sqlite_schema WHERE name = ?", &name);
        all.extend(lines(
            "SELECT name || ' ' || type || ' ' || \"notnull\" || ' ' || coalesce(dflt_value, '') || ' ' || pk || ' ' || hidden
             FROM pragma_table_xinfo(?)",
            &name,
        ));
        all.extend(lines("SELECT coalesce(name, '') || ' ' || \"desc\" FROM pragma_index_xinfo(?)", &name));
        all.extend(lines("SELECT \"from\" || ' → ' || \"table\" FROM pragma_foreign_key_list(?)", &name));
        all.extend(lines("SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?", &name));
        (name, all)
    };
    objects.into_iter().map(describe).collect()
}

fn fresh(schema: &Schema) -> BTreeMap<String, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    described(&connection::create(&folder.path().join("new.db"), schema).unwrap())
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

#[test]
fn files_of_every_released_version_become_what_a_new_one_is() {
    for version in RELEASED {
        let data = data_of(version, 1);
        let tenant = connection::open(&data.path().join("tenants/1.db"), &tenants::SCHEMA).unwrap();
        assert_eq!(described(&tenant), fresh(&tenants::SCHEMA), "schema {version}");
        drop(tenant);
        let registry = connection::open(&data.path().join(registry::FILE), &registry::SCHEMA).unwrap();
        assert_eq!(described(&registry), fresh(&registry::SCHEMA), "schema {version}");
        drop(registry);
        assert_eq!(records(data.path()), fs::read_to_string(fixture(version).join("records.jsonl")).unwrap());
        let findings = check::check(data.path()).unwrap();
        assert!(findings.iter().all(|finding| finding.problems.is_empty()), "{findings:?}");
        let registry = Registry::open(data.path()).unwrap();
        assert_eq!(registry.find_tenant("acme").unwrap().unwrap().id, 1);
        let key = registry.list_keys(1).unwrap().remove(0);
        registry.set_password(1, "$new", Actor::CommandLine, Clock::system().now()).unwrap();
        let events = registry.key_events(1, 10).unwrap();
        let told: Vec<_> = events.into_iter().map(|event| (event.action, event.key.map(|key| key.name))).collect();
        let expected = [("password changed".to_owned(), None), ("created".to_owned(), Some(key.name))];
        assert_eq!(told, expected, "schema {version}");
    }
}

#[test]
fn the_present_version_has_its_fixture() {
    assert_eq!(RELEASED.last(), Some(&tenants::SCHEMA.version));
    for schema in [&tenants::SCHEMA, &registry::SCHEMA] {
        assert_eq!(schema.migrations.len() + 1, schema.version as usize, "{}", schema.name);
    }
}

#[test]
fn a_migration_keeps_a_copy_and_every_row() {
    let data = data_of(2, 1);
    let path = data.path().join("tenants/1.db");
    let before = records(data.path());
    // Two at once: one migrates, the other finds it done.
    std::thread::scope(|scope| {
        let opened: Vec<_> = (0..4).map(|_| scope.spawn(|| connection::open(&path, &NEXT).map(drop))).collect();
        opened.into_iter().for_each(|opened| opened.join().unwrap().unwrap());
    });
    let migrated = connection::open(&path, &NEXT).unwrap();
    assert_eq!(described(&migrated), fresh(&NEXT));
    assert_eq!(connection::version(&migrated).unwrap(), 3);
    drop(migrated);
    let copy = data.path().join("tenants/1.db.v2");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let names: Vec<_> = fs::read_dir(data.path().join("tenants")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // This version refuses what is newer, and the copy is what was there.
    let refused = connection::open(&path, &tenants::SCHEMA).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 3, known: 2, .. }), "{refused}");
    assert!(refused.to_string().contains("newer version of tenantdesk"), "{refused}");
    fs::rename(&copy, &path).unwrap();
    assert_eq!(records(data.path()), before);
    // A tenant that is deleted takes its copies along.
    fs::copy(&path, &copy).unwrap();
    tenants::remove_file(data.path(), 1).unwrap();
    assert_eq!(fs::read_dir(data.path().join("tenants")).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_migrated_stays_as_it_is_and_stands_alone() {
    let data = data_of(2, 2);
    let mut file = TenantFile::open(data.path(), 1).unwrap();
    let values = || {
        let fields = CUSTOMER.fields.iter();
        let text = |name: &str| (name == "name").then(|| crate::model::Value::Text("Same".to_owned()));
        fields.map(|field| text(field.name).unwrap_or_else(|| field.default_value())).collect::<Vec<_>>()
    };
    let added: Result<(), DatabaseError> = file.add(&CUSTOMER, |adding| {
        adding.record(None, values(), "2026-11-20T19:30:00Z")?;
        adding.record(None, values(), "2026-11-20T19:30:00Z")
    });
    added.unwrap();
    drop(file);
    let before = records(data.path());
    let tenants = Tenants::new(data.path(), Limits::default(), Metrics::new(|_| "").into()).with_schema(&BROKEN);
    assert!(matches!(tenants.open(1), Err(StoreError::Unavailable)));
    let other = tenants.open(2).unwrap();
    let found = other.read(|reading| reading.exists(&CUSTOMER, 1)).unwrap();
    assert!(found);
    drop((other, tenants));
    let failed = connection::open(&data.path().join("tenants/1.db"), &BROKEN).unwrap_err().to_string();
    assert!(failed.contains("migrating it from schema 2 to 4 failed"), "{failed}");
    assert!(!data.path().join("tenants/1.db.v2").exists(), "a copy of what was not migrated is soon out of date");
    assert_eq!(records(data.path()), before);
    assert_eq!(fresh(&tenants::SCHEMA), described(&connection::plain(&data.path().join("tenants/1.db")).unwrap()));
}
