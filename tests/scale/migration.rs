//! Files of older schemas, with as many records.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::measure::{Table, command};
use crate::support::server::Tenant;
use crate::support::{TestServer, database};

const RESOURCES: [&str; 3] = ["customers", "employees", "hardware"];

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/schema-{version}"))
}

/// Fills a file of each older schema with the tenant's records and has `check` open it, which migrates it.
pub fn from_older_schemas(server: &TestServer, tenant: &Tenant, count: i64, table: &mut Table) {
    let present = schema_version(&database(&tenant.file()));
    let data = server.home().join("older");
    for version in (1..present).filter(|version| fixture(*version).is_dir()) {
        fs::create_dir_all(data.join("tenants")).unwrap();
        fs::copy(fixture(version).join("registry.db"), data.join("registry.db")).unwrap();
        let file = data.join("tenants/1.db");
        fs::copy(fixture(version).join("tenant.db"), &file).unwrap();
        fill(&file, &tenant.file());
        let operation = format!("check, which migrates from schema {version}");
        let said = command(server, &data, &operation, &["check"], table);
        assert!(said.as_array().unwrap().iter().all(|database| database["ok"] == true), "{said}");
        let migrated = database(&file);
        assert_eq!(schema_version(&migrated), present);
        assert_eq!(number_of(&migrated, "hardware"), count);
        drop(migrated);
        assert_eq!(number_of(&database(&data.join(format!("tenants/1.db.v{version}"))), "hardware"), count);
        fs::remove_dir_all(&data).unwrap();
    }
}

fn schema_version(connection: &Connection) -> u32 {
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

fn number_of(connection: &Connection, table: &str) -> i64 {
    connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

fn texts(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Replaces the records of an older file by those of another. Triggers would index row by row; they are put back at the end.
fn fill(older: &Path, present: &Path) {
    let connection = database(older);
    connection
        .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -200000; PRAGMA foreign_keys = OFF")
        .unwrap();
    connection.execute("ATTACH ? AS present", [present.to_str().unwrap()]).unwrap();
    let triggers = texts(&connection, "SELECT sql FROM main.sqlite_schema WHERE type = 'trigger'");
    for name in texts(&connection, "SELECT name FROM main.sqlite_schema WHERE type = 'trigger'") {
        connection.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    for table in RESOURCES {
        let columns = texts(&connection, &format!("SELECT name FROM pragma_table_info('{table}', 'main')")).join(", ");
        connection
            .execute_batch(&format!(
                "DELETE FROM main.{table};
                 INSERT INTO main.{table} ({columns}) SELECT {columns} FROM present.{table} ORDER BY id;
                 INSERT INTO main.{table}_search ({table}_search) VALUES ('rebuild');"
            ))
            .unwrap();
    }
    triggers.iter().for_each(|sql| connection.execute_batch(sql).unwrap());
}
