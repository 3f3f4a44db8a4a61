//! The compile options of SQLite and the settings of each kind of connection, as SQLite reports them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::check;
use super::connection;
use super::registry;
use super::schema;
use super::tenants::SCHEMA;

/// The value of `LIBSQLITE3_FLAGS` during the build, from `.cargo/config.toml` or the environment. Empty if it was not set.
const FLAGS: &str = match option_env!("LIBSQLITE3_FLAGS") {
    Some(flags) => flags,
    None => "",
};

/// The most bytes that SQLite's Unix VFS writes to a temporary file in one call.
const MAX_SPILL: u64 = 131_071;

fn tenant_file() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let connection = schema::create(&folder.path().join("1.db"), &SCHEMA).unwrap();
    (folder, connection)
}

/// Returns name → value; the value is empty for an option without one.
fn compile_options(connection: &Connection) -> BTreeMap<String, String> {
    let mut statement = connection.prepare("PRAGMA compile_options").unwrap();
    let options = statement.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
    options.map(|option| named(&option)).collect()
}

fn named(option: &str) -> (String, String) {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    (name.to_owned(), value.to_owned())
}

/// Returns name → value as the last `-D` sets it, `None` after a `-U`.
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
    let (_folder, connection) = tenant_file();
    let found = compile_options(&connection);
    for (name, value) in wanted_options() {
        assert_eq!(found.get(&name), value.as_ref(), "{name}");
    }
    let threads: u8 = found["THREADSAFE"].parse().unwrap();
    assert!(threads > 0, "a connection is used by several threads, one at a time");
    let spill = found.get("STMTJRNL_SPILL").map_or(0, |bytes| bytes.parse().unwrap());
    assert!(spill <= MAX_SPILL, "a larger statement journal than {MAX_SPILL} bytes cannot be spilled");
}

/// Adds customers, each about as large as a page.
fn add_customers(connection: &Connection, count: i64) {
    let sql = "WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n LIMIT ?)
         INSERT INTO customers (name, status, notes, created_at, updated_at, search)
         SELECT 'Name', 'active', printf('a%.3900c', 'x'), '', '', '' FROM n";
    connection.execute(sql, [count]).unwrap();
}

#[test]
fn a_savepoint_with_more_than_16_mib_to_undo_is_undone() {
    const RECORDS: i64 = 6_000;
    let (_folder, mut connection) = tenant_file();
    let notes_begin_with = |connection: &Connection, start: &str| -> i64 {
        let sql = "SELECT count(*) FROM customers WHERE substr(notes, 1, 1) = ?";
        connection.query_row(sql, [start], |row| row.get(0)).unwrap()
    };
    add_customers(&connection, RECORDS);
    let transaction = connection.transaction().unwrap();
    transaction
        .execute_batch("SAVEPOINT change; UPDATE customers SET notes = 'b' || substr(notes, 2)")
        .expect("the savepoint's journal goes to a temporary file");
    assert_eq!(notes_begin_with(&transaction, "b"), RECORDS);
    transaction.execute_batch("ROLLBACK TO change; RELEASE change").unwrap();
    transaction.commit().unwrap();
    assert_eq!(notes_begin_with(&connection, "a"), RECORDS);
    assert_eq!(check::first_problem(&connection, &SCHEMA), None);
}

#[test]
fn the_write_ahead_log_shrinks_after_a_large_transaction() {
    let (folder, connection) = tenant_file();
    let path = folder.path().join("1.db");
    let log = connection::sibling_path(&path, "-wal");
    let length = || i64::try_from(fs::metadata(&log).unwrap().len()).unwrap();
    add_customers(&connection, 9_000);
    assert!(length() > connection::WAL_LIMIT, "{}", length());
    let other = schema::open(&path, &SCHEMA).unwrap();
    add_customers(&other, 1);
    assert!(length() <= connection::WAL_LIMIT, "{}", length());
}

fn setting(connection: &Connection, name: &str) -> String {
    let value = connection.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0)).unwrap();
    match value {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        other => panic!("{name}: {other:?}"),
    }
}

/// Asserts the settings of every connection that reads or writes records or the registry.
#[track_caller]
fn assert_configured(connection: &Connection) {
    let wanted = [("journal_mode", "wal"), ("synchronous", "2"), ("foreign_keys", "1"), ("wal_autocheckpoint", "1000")];
    for (name, value) in wanted {
        assert_eq!(setting(connection, name), value, "{name}");
    }
    assert!(
        connection.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG).unwrap(),
        "plans do not depend on bound values"
    );
}

#[test]
fn every_kind_of_connection_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    for schema in [&SCHEMA, &registry::SCHEMA] {
        let path = folder.path().join(schema.name);
        assert_configured(&schema::create(&path, schema).unwrap());
        assert_configured(&schema::open(&path, schema).unwrap());
        let reader = r2d2::ManageConnection::connect(&connection::reader_manager(&path)).unwrap();
        assert_configured(&reader);
        assert_eq!(setting(&reader, "query_only"), "1");
        assert_eq!(setting(&connection::open_raw(&path).unwrap(), "foreign_keys"), "1");
    }
}

#[test]
fn a_file_that_a_checkpoint_has_not_extended_yet_is_a_database() {
    let (folder, connection) = tenant_file();
    drop(connection);
    let path = folder.path().join("1.db");
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut pages = [0; 4];
    // The size of the database in pages (SQLite, "Database File Format", section 1.3.7).
    file.read_exact_at(&mut pages, 28).unwrap();
    file.write_all_at(&(u32::from_be_bytes(pages) + 1).to_be_bytes(), 28).unwrap();
    assert!(connection::is_database(&path));
    file.write_all_at(b"garbage", 0).unwrap();
    assert!(!connection::is_database(&path));
}
