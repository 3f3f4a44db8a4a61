//! Backups that a stranger has prepared, each with a manifest that fits it. All are refused, and
//! nothing changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use rusqlite::Connection;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use super::tests::{Fixture, assert_has_no_tenant, backup_of_0_4_0, sign};
use super::{ArchiveError, check, manifest};
use crate::model::{ALL, Kind};
use crate::store::database::open_plain;
use crate::store::registry::Registry;

/// Never ends.
const ENDLESS: &str =
    "WITH RECURSIVE endless (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM endless)
     SELECT id FROM endless";

/// Has `prepare` change a backup of one tenant, and expects that each way to restore it is refused
/// with `expected`, and changes nothing.
fn assert_refused(expected: &str, prepare: impl FnOnce(&Path)) {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.key(1);
    fixture.add(1, &["Eins"]);
    let made = fixture.backup(None);
    fixture.add(1, &["Zwei"]);
    prepare(&made.directory);
    let begun = Instant::now();
    let (new, data) = (fixture.path("new"), fixture.data());
    let refusals = [
        fixture.restore_into(&new, None, None, false),
        fixture.restore_into(&data, Some("one"), None, true),
        fixture.restore_into(&data, Some("one"), Some("copy"), false),
        fixture.restore_into(&new, Some("one"), None, false),
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected) && !text.contains('\n'), "{expected}: {text}");
        assert!(!text.contains(char::is_control), "{text:?}");
        let is_refusal = matches!(error, ArchiveError::Refused { .. } | ArchiveError::File { .. });
        assert!(is_refusal, "{error:?}");
    }
    assert!(begun.elapsed().as_secs() < 30, "{expected}");
    assert_has_no_tenant(&new);
    assert_eq!(fixture.names(1).len(), 2, "{expected}");
    let registry = Registry::open(&data).unwrap();
    assert_eq!(registry.list_tenants().unwrap().len(), 1, "{expected}");
    assert_eq!(fs::read_dir(data.join("tenants")).unwrap().count(), 3, "the file and its WAL");
    assert_eq!(fixture.problems(), [], "{expected}");
    fixture.assert_tidy();
}

/// Runs SQL in a file of a backup, as whoever made it can.
fn run(directory: &Path, file: &str, sql: &str) {
    let connection = open_plain(&directory.join(file)).unwrap();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    connection.execute_batch(sql).unwrap();
    drop(connection);
    sign(directory);
}

/// Expects that a backup is refused in whose `file` this SQL has run.
fn assert_sql_refused(file: &str, sql: &str, expected: &str) {
    assert_refused(expected, |directory| run(directory, file, sql));
}

const ONE: &str = "tenants/1.db";
const REGISTRY: &str = "registry.db";

/// Replaces a text in the manifest.
fn edit(directory: &Path, from: &str, to: &str) {
    let path = directory.join(manifest::NAME);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_password_hash_that_takes_all_memory_is_refused() {
    for parameters in ["m=4194303,t=2,p=1", "m=19456,t=4000000,p=1", "m=19456,t=2,p=400"] {
        let sql = format!(
            "UPDATE tenants SET password_hash = replace(password_hash, 'm=19456,t=2,p=1',
             '{parameters}')"
        );
        assert_sql_refused(REGISTRY, &sql, "password hash of the tenant one");
    }
    let none = "UPDATE tenants SET password_hash = 'none'";
    assert_sql_refused(REGISTRY, none, "password hash of the tenant one");
}

#[test]
fn counters_without_room_are_refused() {
    for name in ["tenants", "keys", "key_events"] {
        let sql =
            format!("UPDATE sqlite_sequence SET seq = 9223372036854775806 WHERE name = '{name}'");
        assert_sql_refused(REGISTRY, &sql, "sqlite_sequence.seq is out of range");
    }
    for sql in [
        "UPDATE sqlite_sequence SET seq = 6917529027641081854",
        "UPDATE sqlite_sequence SET seq = 'many'",
    ] {
        assert_sql_refused(ONE, sql, "sqlite_sequence.seq is out of range");
    }
    for sql in [
        "INSERT INTO sqlite_sequence VALUES ('customers', 1)",
        "INSERT INTO sqlite_sequence VALUES ('strangers', 1)",
    ] {
        assert_sql_refused(ONE, sql, "sqlite_sequence is not as the program makes it");
    }
    let sql = "UPDATE keys SET id = 6917529027641081854; UPDATE sqlite_sequence SET seq = 1";
    assert_sql_refused(REGISTRY, sql, "keys.id is out of range");
    let sql = "UPDATE customers SET id = -1";
    assert_sql_refused(ONE, sql, "customers.id is out of range");
}

#[test]
fn texts_pages_and_ids_are_refused_that_the_program_does_not_make() {
    for column in ["name", "notes", "created_at", "email"] {
        let sql = format!("UPDATE customers SET {column} = printf('%.*c', 20001, 'x')");
        assert_sql_refused(ONE, &sql, &format!("customers.{column} is out of range"));
    }
    let sql = "UPDATE changes SET by_name = printf('%.*c', 20001, 'x')";
    assert_sql_refused(ONE, sql, "changes.by_name is out of range");
    let sql = "UPDATE customers SET custom = '{\"a\":\"1\"},\"x\":{}'";
    assert_sql_refused(ONE, sql, "customers has custom fields that the program does not make");
    let sql = "PRAGMA journal_mode = DELETE; PRAGMA page_size = 65536; VACUUM";
    assert_sql_refused(ONE, sql, "a page has another size");
    let sql = "UPDATE tenants SET id = 0; UPDATE keys SET tenant_id = 0;
               UPDATE key_events SET tenant_id = 0";
    assert_sql_refused(REGISTRY, sql, "tenants.id is out of range");
}

#[test]
fn the_longest_texts_that_fields_take_are_not_refused() {
    let lengths = ALL.iter().flat_map(|resource| resource.fields).map(|field| match field.kind {
        Kind::Text { max, .. } => max,
        _ => 0,
    });
    assert!(lengths.max().unwrap() * 4 <= check::LONGEST_TEXT);
    for character in ["\u{1}", "🦀"] {
        let fixture = Fixture::new();
        fixture.tenant("one");
        fixture.add(1, &["Eins"]);
        let longest = json!({"notes": character.repeat(5_000), "street": character.repeat(200)});
        let sql = "UPDATE customers SET notes = ?1 ->> 'notes', street = ?1 ->> 'street'";
        fixture.live(1).execute(sql, [longest.to_string()]).unwrap();
        let sql = "UPDATE changes SET before = ?1";
        fixture.live(1).execute(sql, [longest.to_string()]).unwrap();
        fixture.backup(None);
        fixture.restore_into(&fixture.path("new"), None, None, false).unwrap();
    }
}

#[test]
fn counters_of_the_change_log_without_room_are_refused() {
    for (sql, expected) in [
        (
            "UPDATE changes_state SET last_seq = 9223372036854775807",
            "changes_state.last_seq is out of range",
        ),
        ("UPDATE changes SET seq = 6917529027641081854", "changes.seq is out of range"),
        ("UPDATE customers SET version = 6917529027641081854", "customers.version is out of range"),
        ("UPDATE changes SET record_id = -1", "changes.record_id is out of range"),
        ("DELETE FROM changes_state", "changes_state has not one row"),
        ("UPDATE changes SET by_name = char(27) || '[31m'", "control characters"),
    ] {
        assert_sql_refused(ONE, sql, expected);
    }
}

#[test]
fn a_view_is_refused_and_not_read() {
    let view = format!("CREATE VIEW frequent_words AS {ENDLESS}");
    assert_sql_refused(ONE, &view, "frequent_words is not what this program makes");
    assert_sql_refused(REGISTRY, &view, "frequent_words is not what this program makes");
    let instead = format!("DROP TABLE changes_removed; CREATE VIEW changes_removed AS {ENDLESS}");
    assert_sql_refused(ONE, &instead, "changes_removed is not what this program makes");
    let named = format!("CREATE VIEW \"\u{1b}[31m\n\" AS {ENDLESS}");
    assert_sql_refused(ONE, &named, "is not what this program makes");
    let instead = "ALTER TABLE customers RENAME TO people;
        CREATE VIEW customers AS SELECT * FROM people";
    assert_sql_refused(ONE, instead, "is not what this program makes");
    let instead = format!("DROP TABLE sessions; CREATE VIEW sessions AS {ENDLESS}");
    assert_sql_refused(REGISTRY, &instead, "sessions is not what this program makes");
}

#[test]
fn a_trigger_is_refused() {
    let body = "AFTER INSERT ON customers BEGIN DELETE FROM employees; END";
    let named = |name| format!("CREATE TRIGGER {name} {body}");
    assert_sql_refused(ONE, &named("x"), "the schema's x is not what this program makes");
    // A name of Litestream's does not hide the trigger.
    assert_sql_refused(ONE, &named("_litestream_seq"), "is not what this program makes");
    let on_registry = "CREATE TRIGGER x AFTER INSERT ON keys BEGIN DELETE FROM tenants; END";
    assert_sql_refused(REGISTRY, on_registry, "the schema's x is not what this program makes");
}

#[test]
fn other_tables_indexes_and_constraints_are_refused() {
    for sql in [
        "CREATE TABLE _litestream_other (id INTEGER)",
        "CREATE TABLE \"\u{1b}[31m\n\" (id INTEGER)",
        "CREATE VIRTUAL TABLE x USING fts5 (y)",
        "CREATE INDEX x ON customers (abs(id))",
        "DROP INDEX customers_by_name",
        "ALTER TABLE customers ADD COLUMN x TEXT CHECK (x <> hex(zeroblob(9)))",
        "ALTER TABLE customers DROP COLUMN notes",
    ] {
        assert_sql_refused(ONE, sql, "the schema's");
    }
}

#[test]
fn a_schema_that_only_looks_like_the_programs_is_refused() {
    let rewrite = |from: &str, to: &str| {
        format!(
            "PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = replace(sql, '{from}', '{to}');
             PRAGMA writable_schema = OFF"
        )
    };
    // A comment that is none, and a name that is two words.
    let hidden = rewrite("block BLOB)", "block BLOB \"--\" DEFAULT (hex(zeroblob(9)))\n)");
    assert_sql_refused(ONE, &hidden, "the schema's");
    let hidden = rewrite("CHECK (id = 1)", "CHECK (\"id = 1\")");
    assert_sql_refused(ONE, &hidden, "changes_state is not what this program makes");
}

#[test]
fn names_are_refused_that_the_program_does_not_make() {
    let evil = "x\\n\\u001b[31m<script>";
    assert_refused("is no name of a tenant", |directory| {
        let name = "'x' || char(10) || char(27) || '[31m<script>'";
        run(directory, REGISTRY, &format!("UPDATE tenants SET name = {name}"));
        let path = directory.join(manifest::NAME);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace("\"one\"", &format!("\"{evil}\""))).unwrap();
    });
    let sql = "UPDATE tenants SET name = 'x' || char(27)";
    assert_sql_refused(REGISTRY, sql, "does not have the tenants of the manifest");
    for date in ["char(27) || '[31m'", "'2027-02-30'", "'20270228'"] {
        let sql = format!("UPDATE tenants SET trial_until = {date}");
        assert_sql_refused(REGISTRY, &sql, "ends at no date");
    }
    let sql = "UPDATE tenants SET created_at = 'x'";
    assert_sql_refused(REGISTRY, sql, "is not as tenantdesk makes it");
    for sql in [
        "UPDATE keys SET name = 'a' || char(27)",
        "UPDATE keys SET name = ' a'",
        "UPDATE keys SET prefix = 'tdk_' || char(27) || 'abc'",
        "UPDATE keys SET scopes = 'everything:write'",
        "UPDATE keys SET scopes = ''",
        "UPDATE keys SET hash = x'00'",
    ] {
        assert_sql_refused(REGISTRY, sql, "the key 1 is none that the program makes");
    }
    let sql = "UPDATE key_events SET key_name = char(10)";
    assert_sql_refused(REGISTRY, sql, "an event of the key 1");
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let fifo = |path: &Path| {
        fs::remove_file(path).unwrap();
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    };
    for file in [ONE, REGISTRY] {
        assert_refused("it is not a regular file", |directory| fifo(&directory.join(file)));
        assert_refused("it is a symbolic link, and links are refused", |directory| {
            let path = directory.join(file);
            let elsewhere = directory.join("elsewhere");
            fs::rename(&path, &elsewhere).unwrap();
            symlink(&elsewhere, &path).unwrap();
        });
        assert_refused("it is not a regular file", |directory| {
            fs::remove_file(directory.join(file)).unwrap();
            fs::create_dir(directory.join(file)).unwrap();
        });
    }
    assert_refused("it is not a regular file", |directory| fifo(&directory.join(manifest::NAME)));
    assert_refused("tenants: it is a symbolic link, and links are refused", |directory| {
        let elsewhere = directory.join("elsewhere");
        fs::rename(directory.join("tenants"), &elsewhere).unwrap();
        symlink(&elsewhere, directory.join("tenants")).unwrap();
    });
}

#[test]
fn paths_and_ids_are_those_of_tenants() {
    for path in ["../1.db", "tenants/../tenants/1.db", "/etc/passwd", "tenants/01.db"] {
        assert_refused("is not in the manifest", |directory| {
            edit(directory, "\"tenants/1.db\"", &format!("{path:?}"))
        });
    }
    for id in ["0", "-1", "6917529027641081854"] {
        assert_refused("does not have the tenants of the manifest", |directory| {
            edit(directory, "\"id\": 1", &format!("\"id\": {id}"));
        });
    }
    assert_refused("does not have the tenants of the manifest", |directory| {
        let path = directory.join(manifest::NAME);
        let mut text: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let tenant = text["tenants"][0].clone();
        text["tenants"].as_array_mut().unwrap().push(tenant);
        fs::write(&path, text.to_string()).unwrap();
    });
}

#[test]
fn a_damaged_database_is_refused() {
    assert_refused("cannot be used", |directory| {
        fs::write(directory.join(ONE), "not a database, though the manifest says so").unwrap();
        sign(directory);
    });
    assert_refused("is not as tenantdesk makes it", |directory| {
        let mut bytes = fs::read(directory.join(ONE)).unwrap();
        bytes[5 * 4096..5 * 4096 + 64].fill(0xaa);
        fs::write(directory.join(ONE), bytes).unwrap();
        sign(directory);
    });
    let broken = "INSERT INTO employees
        (customer_id, email, is_active, created_at, updated_at, search, version)
        VALUES (7, 'a@b.example', 1, '', '', '', 1)";
    assert_sql_refused(ONE, broken, "employees 1 refers to a row of customers that does not exist");
    let text = "UPDATE customers SET name = CAST(x'4eff' AS TEXT)";
    assert_sql_refused(ONE, text, "customers has a text that is not UTF-8");
    assert_sql_refused(ONE, "PRAGMA user_version = 0", "it has no schema");
    assert_sql_refused(ONE, "PRAGMA user_version = 1", "cannot be used");
    assert_sql_refused(ONE, "PRAGMA user_version = 99", "newer version of tenantdesk");
}

#[test]
fn a_backup_of_0_4_0_runs_none_of_its_triggers_and_views() {
    let endless_view =
        format!("DROP TABLE changes_removed; CREATE VIEW changes_removed AS {ENDLESS}");
    let duplicate = "CREATE TABLE y AS SELECT * FROM customers; DROP TABLE customers;
        ALTER TABLE y RENAME TO customers; INSERT INTO customers SELECT * FROM customers";
    for sql in [
        endless_view.as_str(),
        "CREATE TRIGGER x AFTER UPDATE ON customers BEGIN DELETE FROM hardware; END",
        "CREATE VIRTUAL TABLE x USING fts5 (y)",
        "CREATE TABLE x (id INTEGER)",
        "ALTER TABLE customers ADD COLUMN x TEXT CHECK (x <> hex(zeroblob(9)))",
        duplicate,
    ] {
        let fixture = Fixture::new();
        let directory = backup_of_0_4_0(&fixture);
        run(&directory, &tenant_file(&directory), sql);
        let error = fixture.restore_into(&fixture.data(), None, None, false).unwrap_err();
        assert!(matches!(error, ArchiveError::Refused { .. }), "{sql}: {error}");
        assert_has_no_tenant(&fixture.data());
    }
}

fn tenant_file(directory: &Path) -> String {
    let entry = fs::read_dir(directory.join("tenants")).unwrap().next().unwrap().unwrap();
    format!("tenants/{}", entry.file_name().to_str().unwrap())
}

#[test]
fn check_ends_on_a_hostile_file_and_names_what_is_wrong() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    let live = |sql: &str| -> Connection {
        let live = fixture.live(1);
        live.pragma_update(None, "foreign_keys", false).unwrap();
        live.execute_batch(sql).unwrap();
        live
    };
    live(&format!("DROP TABLE changes_removed; CREATE VIEW changes_removed AS {ENDLESS}"));
    live(&format!("ALTER TABLE customers RENAME TO people; CREATE VIEW customers AS {ENDLESS}"));
    live("CREATE TRIGGER x AFTER INSERT ON employees BEGIN DELETE FROM hardware; END");
    let findings = check::check(&fixture.data()).unwrap();
    let problems = &findings[1].problems;
    for name in ["changes_removed", "customers", "x"] {
        let text = format!("the schema's {name} is not what this program makes");
        assert!(problems.contains(&text), "{problems:?}");
    }
}
