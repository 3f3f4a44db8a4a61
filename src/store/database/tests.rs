//! The settings of SQLite, as it reports them, and what follows from them.

use std::collections::BTreeMap;
use std::fs;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::*;
use crate::model::TenantId;
use crate::store::data_dir::{TENANT, registry_database, tenant_database};

/// `LIBSQLITE3_FLAGS` of the build, from `.cargo/config.toml` or the environment.
const FLAGS: &str = match option_env!("LIBSQLITE3_FLAGS") {
    Some(flags) => flags,
    None => "",
};

/// The most bytes that SQLite's Unix VFS writes to a temporary file in one call.
const MAX_SPILL: u64 = 131_071;

fn tenant_file() -> (tempfile::TempDir, Database, Connection) {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::new(directory.path().join("1.db"), &TENANT);
    database.create().unwrap();
    let connection = database.open(Role::Writer).unwrap();
    (directory, database, connection)
}

/// Name and value; the value of an option without one is empty.
fn named(option: &str) -> (String, String) {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    (name.to_owned(), value.to_owned())
}

fn compile_options(connection: &Connection) -> BTreeMap<String, String> {
    let mut statement = connection.prepare("PRAGMA compile_options").unwrap();
    let options = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    options.map(|option| named(&option.unwrap())).collect()
}

/// The options as the last `-D` sets them, `None` after a `-U`.
fn wanted_options() -> BTreeMap<String, Option<String>> {
    let mut wanted = BTreeMap::new();
    for flag in FLAGS.split_whitespace() {
        if let Some(name) = flag.strip_prefix("-USQLITE_") {
            wanted.insert(name.to_owned(), None);
        } else if let Some(option) = flag.strip_prefix("-DSQLITE_") {
            let (name, value) = named(option);
            wanted.insert(name, Some(value));
        }
    }
    wanted
}

#[test]
fn sqlite_is_compiled_as_configured() {
    let (_directory, _, connection) = tenant_file();
    let found = compile_options(&connection);
    for (name, value) in wanted_options() {
        assert_eq!(found.get(&name), value.as_ref(), "{name}");
    }
    let threads: u8 = found["THREADSAFE"].parse().unwrap();
    assert!(threads > 0, "a connection is used by several threads, one at a time");
    let spill = found.get("STMTJRNL_SPILL").map_or(0, |bytes| bytes.parse().unwrap());
    assert!(spill <= MAX_SPILL, "a larger statement journal cannot be spilled");
}

fn setting(connection: &Connection, name: &str) -> String {
    let value = connection.pragma_query_value(None, name, |row| row.get(0));
    match value.unwrap() {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        other => panic!("{name}: {other:?}"),
    }
}

#[track_caller]
fn assert_configured(connection: &Connection) {
    for (name, value) in [
        ("journal_mode", "wal"),
        ("synchronous", "2"),
        ("foreign_keys", "1"),
        ("trusted_schema", "0"),
        ("wal_autocheckpoint", "0"),
    ] {
        assert_eq!(setting(connection, name), value, "{name}");
    }
    for (what, option) in [
        ("plans do not depend on values", DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG),
        ("no statement damages the file", DbConfig::SQLITE_DBCONFIG_DEFENSIVE),
        ("closing makes no checkpoint", DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE),
    ] {
        assert!(connection.db_config(option).unwrap(), "{what}");
    }
}

#[test]
fn every_connection_is_configured() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("tenants")).unwrap();
    for database in
        [tenant_database(directory.path(), TenantId(1)), registry_database(directory.path())]
    {
        database.create().unwrap();
        for role in [Role::Reader, Role::Writer, Role::Bulk] {
            let connection = database.open(role).unwrap();
            assert_configured(&connection);
            assert_eq!(setting(&connection, "journal_size_limit"), "33554432");
        }
        let opener = scheduled_thread_pool::ScheduledThreadPool::new(1);
        let reader = database.readers(opener.into()).get().unwrap();
        assert_configured(&reader);
        assert_eq!(setting(&reader, "query_only"), "1");
        let plain = open_plain(database.path()).unwrap();
        for (name, value) in [("foreign_keys", "1"), ("trusted_schema", "0")] {
            assert_eq!(setting(&plain, name), value, "{name}");
        }
    }
}

/// Adds customers, each about as large as a page.
fn add_customers(connection: &Connection, count: i64) {
    let sql = "WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n LIMIT ?)
        INSERT INTO customers (name, status, notes, created_at, updated_at, search, version)
        SELECT 'Name', 'active', printf('a%.3900c', 'x'), '', '', '', 1 FROM n";
    connection.execute(sql, [count]).unwrap();
}

#[test]
fn a_savepoint_with_more_than_16_mib_to_undo_is_undone() {
    const RECORDS: i64 = 6_000;
    let (_directory, database, mut connection) = tenant_file();
    let notes_begin_with = |connection: &Connection, start: &str| -> i64 {
        let sql = "SELECT count(*) FROM customers WHERE substr(notes, 1, 1) = ?";
        connection.query_row(sql, [start], |row| row.get(0)).unwrap()
    };
    add_customers(&connection, RECORDS);
    for role in [Role::Writer, Role::Bulk] {
        let transaction = connection.transaction().unwrap();
        transaction
            .execute_batch("SAVEPOINT change; UPDATE customers SET notes = 'b' || substr(notes, 2)")
            .unwrap();
        assert_eq!(notes_begin_with(&transaction, "b"), RECORDS);
        transaction.execute_batch("ROLLBACK TO change; RELEASE change").unwrap();
        commit(transaction).unwrap();
        assert_eq!(notes_begin_with(&connection, "a"), RECORDS, "{role:?}");
        connection = database.open(Role::Bulk).unwrap();
    }
}

#[test]
fn a_long_wal_is_truncated_when_it_starts_again() {
    let (_directory, database, connection) = tenant_file();
    let length = || fs::metadata(database.companion("-wal")).unwrap().len();
    add_customers(&connection, 9_000);
    assert!(length() > 32 << 20, "{}", length());
    database.checkpoint(&connection, false).unwrap();
    add_customers(&connection, 1);
    assert!(length() <= 32 << 20, "{}", length());
}

#[test]
fn what_an_earlier_process_left_in_the_wal_is_copied_into_the_file() {
    let (_directory, database, connection) = tenant_file();
    add_customers(&connection, 10);
    drop(connection);
    assert!(fs::metadata(database.companion("-wal")).unwrap().len() > 0);
    database.recover().unwrap();
    assert_eq!(fs::metadata(database.companion("-wal")).unwrap().len(), 0);
    let connection = database.open(Role::Reader).unwrap();
    let count = "SELECT count(*) FROM customers";
    assert_eq!(connection.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 10);
}

#[test]
fn a_schema_that_differs_is_found() {
    let (_directory, _, connection) = tenant_file();
    assert_eq!(differences(&connection, &TENANT).unwrap(), [""; 0]);
    connection
        .execute_batch(
            "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER);
             DROP INDEX customers_by_name;
             CREATE INDEX customers_by_city_2 ON customers (city);",
        )
        .unwrap();
    let found = differences(&connection, &TENANT).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().any(|text| text.contains("customers_by_name is missing")), "{found:?}");
    assert!(found.iter().any(|text| text.contains("customers_by_city_2")), "{found:?}");
}

/// `ALTER TABLE` puts a new column last, and the program's text has it elsewhere.
#[test]
fn tables_are_compared_by_the_definitions_of_their_columns() {
    let differs = |from: &str, to: &str| {
        let sql = TENANT.sql.replacen(from, to, 1);
        assert_ne!(sql, TENANT.sql);
        let database = rusqlite::Connection::open_in_memory().unwrap();
        database.execute_batch(&sql).unwrap();
        !differences(&database, &TENANT).unwrap().is_empty()
    };
    let (name, number) = ("name            TEXT NOT NULL,", "customer_number TEXT,");
    assert!(!differs(&format!("{name}\n  {number}"), &format!("{number}{name}")));
    for changed in [
        "name TEXT,",
        "name BLOB NOT NULL,",
        "name TEXT NOT NULL COLLATE NOCASE,",
        "name TEXT NOT NULL CHECK (name <> ''),",
        "name TEXT NOT NULL ON CONFLICT REPLACE,",
        "name TEXT NOT NULL, nickname TEXT,",
    ] {
        assert!(differs(name, changed), "{changed}");
    }
    let index = "ON changes (resource, record_id)";
    assert!(differs(index, "ON changes (record_id, resource)"), "{index}");
}
