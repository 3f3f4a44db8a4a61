//! What an import leaves in the file.

use super::*;
use crate::model::CUSTOMER;
use crate::store::schema;
use crate::store::tenants::SCHEMA;

const NOW: &str = "2026-11-20T19:30:00Z";

fn customer() -> NewRecord {
    let fields = CUSTOMER.fields.iter();
    let value = |field: &crate::model::Field| match field.name {
        "name" => Value::Text("Customer".to_owned()),
        _ => field.default_value(),
    };
    NewRecord { id: None, values: fields.map(value).collect() }
}

fn new_file() -> (tempfile::TempDir, PathBuf, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.db");
    let connection = schema::create(&path, &SCHEMA).unwrap();
    (folder, path, connection)
}

#[test]
fn segments_are_merged_before_the_records_appear() {
    let (_folder, path, connection) = new_file();
    let mut import = PendingImport::begin(&connection, &path, &CUSTOMER, NewIds::Next(40), NOW).unwrap();
    for _ in 0..40 {
        import.add(customer()).unwrap();
        import.insert_portion().unwrap();
    }
    // Two merges of 16 segments each, and those of the last portions.
    assert_eq!(records::most_segments(&connection).unwrap(), 2 + 8);
    import.finish().unwrap();
}

#[test]
fn an_import_fails_if_others_have_used_its_numbers_or_the_tenant_was_restored() {
    for change in ["UPDATE journal SET last_seq = last_seq + (1 << 40)", "UPDATE pending_imports SET first_seq = 0"] {
        let (_folder, path, connection) = new_file();
        let mut import = PendingImport::begin(&connection, &path, &CUSTOMER, NewIds::Next(1), NOW).unwrap();
        import.add(customer()).unwrap();
        connection.execute(change, []).unwrap();
        assert!(matches!(import.finish(), Err(PendingImportError::Restored)), "{change}");
        let shown = records::Reading::new(&connection).exists(&CUSTOMER, 1).unwrap();
        assert!(!shown, "{change}");
    }
}

/// Litestream may not have read the log of a database that it copies.
#[test]
fn an_import_leaves_the_log_of_a_copied_file_to_litestream() {
    for is_copied in [false, true] {
        let (folder, path, connection) = new_file();
        crate::store::connection::disable_automatic_checkpoint(&connection).unwrap();
        if is_copied {
            std::fs::create_dir(folder.path().join(".1.db-litestream")).unwrap();
        }
        let mut import = PendingImport::begin(&connection, &path, &CUSTOMER, NewIds::Next(1), NOW).unwrap();
        import.add(customer()).unwrap();
        import.finish().unwrap();
        let copied: i64 = connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(2)).unwrap();
        assert_eq!(copied == 0, is_copied);
    }
}
