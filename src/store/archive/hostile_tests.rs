//! Backups that a stranger has prepared, each with a manifest that fits it. All are refused, and
//! nothing changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use rusqlite::Connection;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use super::tests::{Fixture, assert_has_no_tenant, backup_of_1_0_0, sign};
use super::{ArchiveError, check, manifest};
use crate::store::data_dir::TENANT;
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
        let is_refusal =
            matches!(error, ArchiveError::Refused { .. } | ArchiveError::NotRead { .. });
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
        assert_sql_refused(
            REGISTRY,
            &sql,
            "sqlite_sequence has a row that tenantdesk never writes",
        );
    }
    for sql in [
        "INSERT INTO sqlite_sequence VALUES ('customers', 1)",
        "INSERT INTO sqlite_sequence VALUES ('strangers', 1)",
    ] {
        assert_sql_refused(ONE, sql, "sqlite_sequence is not as the program makes it");
    }
    let sql = "UPDATE keys SET id = 6917529027641081854; UPDATE sqlite_sequence SET seq = 1";
    assert_sql_refused(REGISTRY, sql, "keys has a row that tenantdesk never writes");
}

#[test]
fn the_longest_texts_that_fields_take_are_not_refused() {
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
fn a_view_is_refused_and_not_read() {
    let view = format!("CREATE VIEW frequent_words AS {ENDLESS}");
    assert_sql_refused(ONE, &view, "it has an added view frequent_words");
    assert_sql_refused(REGISTRY, &view, "it has an added view frequent_words");
    let instead = format!("DROP TABLE changes_removed; CREATE VIEW changes_removed AS {ENDLESS}");
    assert_sql_refused(ONE, &instead, "it has an added view changes_removed");
    let named = format!("CREATE VIEW \"\u{1b}[31m\n\" AS {ENDLESS}");
    assert_sql_refused(ONE, &named, "it has an added view");
    let instead = "ALTER TABLE customers RENAME TO people;
        CREATE VIEW customers AS SELECT * FROM people";
    assert_sql_refused(ONE, instead, "is not what this program makes");
    let instead = format!("DROP TABLE sessions; CREATE VIEW sessions AS {ENDLESS}");
    assert_sql_refused(REGISTRY, &instead, "it has an added view sessions");
}

#[test]
fn a_trigger_is_refused() {
    let body = "AFTER INSERT ON customers BEGIN DELETE FROM employees; END";
    let named = |name| format!("CREATE TRIGGER {name} {body}");
    assert_sql_refused(ONE, &named("x"), "it has an added trigger x");
    // A name of Litestream's does not hide the trigger.
    assert_sql_refused(ONE, &named("_litestream_seq"), "it has an added trigger _litestream_seq");
    let on_registry = "CREATE TRIGGER x AFTER INSERT ON keys BEGIN DELETE FROM tenants; END";
    assert_sql_refused(REGISTRY, on_registry, "it has an added trigger x");
}

#[test]
fn other_tables_indexes_and_constraints_are_refused() {
    let check = "ALTER TABLE customers ADD COLUMN x TEXT CHECK (x <> hex(zeroblob(9)))";
    for (sql, expected) in [
        ("CREATE TABLE _litestream_other (id INTEGER)", "it has an added table _litestream_other"),
        ("CREATE TABLE \"\u{1b}[31m\n\" (id INTEGER)", "it has an added table"),
        ("CREATE VIRTUAL TABLE x USING fts5 (y)", "it has an added table x"),
        ("CREATE INDEX x ON customers (abs(id))", "it has an added index x"),
        ("DROP INDEX customers_by_name", "the index customers_by_name is missing"),
        (check, "the table customers is not what this program makes"),
        ("ALTER TABLE customers DROP COLUMN notes", "the table customers is not what"),
    ] {
        assert_sql_refused(ONE, sql, expected);
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
    // A name that is two words.
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
    assert_refused("malformed", |directory| {
        let mut bytes = fs::read(directory.join(ONE)).unwrap();
        bytes[5 * 4096..5 * 4096 + 64].fill(0xaa);
        fs::write(directory.join(ONE), bytes).unwrap();
        sign(directory);
    });
    let broken = "INSERT INTO employees
        (customer_id, email, is_active, created_at, updated_at, search, version)
        VALUES (7, 'a@b.example', 1, '', '', '', 1)";
    assert_sql_refused(ONE, broken, "employees 1 refers to a row of customers that does not exist");
    let moved = "INSERT INTO employees
        (id, customer_id, email, is_active, created_at, updated_at, search, version)
        VALUES (1, 1, 'a@b.example', 1, '', '', '', 1);
        INSERT INTO hardware (name, employee_id, customer_id, type, status, is_leased, created_at,
          updated_at, search, version) VALUES ('x', 1, NULL, 'other', 'lost', 0, '', '', '', 1)";
    assert_sql_refused(ONE, moved, "hardware has a row that tenantdesk never writes");
    let text = "UPDATE customers SET name = CAST(x'4eff' AS TEXT)";
    assert_sql_refused(ONE, text, "customers has a text that is not UTF-8");
    assert_sql_refused(ONE, "PRAGMA user_version = 0", "it has no schema");
    assert_sql_refused(ONE, "PRAGMA user_version = 1", "cannot be used");
    assert_sql_refused(ONE, "PRAGMA user_version = 99", "newer version of tenantdesk");
}

#[test]
fn a_backup_of_1_0_0_runs_none_of_its_triggers_and_views() {
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
        let directory = backup_of_1_0_0(&fixture);
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
    for added in ["view changes_removed", "view customers", "trigger x"] {
        let text = format!("it has an added {added}; run in sqlite3: DROP ");
        assert!(problems.iter().any(|problem| problem.starts_with(&text)), "{problems:?}");
    }
}

/// A crafted index can overflow a buffer of FTS5.
#[test]
fn the_search_tables_are_made_anew_from_the_records() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.add(1, &["Straße"]);
    let made = fixture.backup(None);
    let prepared = "UPDATE customers_search_data SET block = x'00ff' WHERE id > 10;
        UPDATE customers_search_config SET v = 1 WHERE k = 'crisismerge';
        INSERT INTO customers_search_config VALUES ('pgsz', 32);
        UPDATE customers SET search = 'planted'";
    run(&made.directory, ONE, prepared);
    fixture.restore_into(&fixture.data(), Some("one"), Some("copy"), false).unwrap();
    assert_eq!(fixture.problems(), []);
    let config = "SELECT group_concat(k || v) FROM customers_search_config";
    let found = "SELECT search FROM customers WHERE id IN
        (SELECT rowid FROM customers_search WHERE customers_search MATCH 'ass')";
    let read = |id, sql| fixture.live(id).query_row(sql, [], |row| row.get::<_, String>(0));
    assert_eq!(read(2, config).unwrap(), read(1, config).unwrap());
    assert_eq!(read(2, found).unwrap(), "strasse\n");
}

/// A file as the program writes it, but for one value.
#[test]
fn values_are_refused_that_the_program_does_not_write() {
    let file = Connection::open_in_memory().unwrap();
    file.execute_batch(TENANT.sql).unwrap();
    file.execute_batch(
        r#"INSERT INTO customers (name, status, created_at, updated_at, search, version)
             VALUES ('Eins', 'active', '2026-11-20T19:30:00Z', '2026-11-20T19:30:00Z', '', 1);
           INSERT INTO changes (seq, at, resource, record_id, action, fields, before, by_key,
             by_name, by_prefix, request_id) VALUES (1, '2026-11-20T19:30:00Z', 'customers', 1, 'updated',
             '["name","custom"]', '{"name":"x"}', 1, 'a key', 'tdk_c_1e', randomblob(16));
           INSERT INTO changes_removed VALUES ('hardware', 1, '2026-11-20T19:30:00Z');
           UPDATE changes_state SET entries = 1;
           INSERT INTO idempotency VALUES (1, randomblob(16), randomblob(32), 201,
             '/v1/customers.php?id=1', '"1"', CAST('{"id":1}' AS BLOB), 1);
           INSERT INTO idempotency VALUES (2, randomblob(16), randomblob(32), 204, NULL, NULL, x'', 1)"#,
    )
    .unwrap();
    assert_eq!(check::problems(&file, &TENANT), [""; 0]);
    for (column, values) in [
        ("sqlite_sequence.seq", ["6917529027641081854", "'many'", "NULL"].as_slice()),
        ("customers.id", &["-1", "6917529027641081854"]),
        ("customers.name", &["printf('%.*c', 20001, 'x')"]),
        ("customers.custom", &[r#"'{"a":"1"},"x":{}'"#]),
        ("customers.created_at", &["'yesterday'", "'2026-13-20T19:30:00Z'"]),
        ("customers.version", &["NULL", "6917529027641081854"]),
        ("changes.seq", &["6917529027641081854"]),
        ("changes.at", &["'2026-11-20T19:30:0' || char(27)", "''"]),
        ("changes.resource", &["'x' || char(27)"]),
        ("changes.record_id", &["-1"]),
        ("changes.action", &["'x' || char(27)"]),
        ("changes.fields", &["'x'", r#"'["\u001b"]'"#, "'{}'"]),
        ("changes.before", &["'x'", "'[]'", "''", "json_object('a', printf('%.*c', 320000, 'x'))"]),
        ("changes.by_name", &["printf('%.*c', 401, 'x')", "char(27) || '[31m'"]),
        ("changes.by_prefix", &["'tdk_'", "'tdk_123' || char(27)"]),
        ("changes.request_id", &["x'00'"]),
        ("changes_removed.resource", &["char(27)"]),
        ("changes_removed.at", &["'x'"]),
        ("changes_state.lineage", &["x'00'"]),
        ("changes_state.last_seq", &["9223372036854775807"]),
        ("changes_state.keep_seconds", &["-1", "9223372036854775807"]),
        ("idempotency.key", &["randomblob(8 + id)"]),
        ("idempotency.request", &["x'00'"]),
        ("idempotency.status", &["0", "100", "500", "99999", "302"]),
        ("idempotency.location", &["'https://evil.example/'", "'/' || char(10)", "''"]),
        ("idempotency.etag", &["'x'", "'\"1\"' || char(10)", "printf('%.*c', 22, '1')"]),
        ("idempotency.body", &["x'3c'", "CAST(printf('%32000001d', 1) AS BLOB)"]),
    ] {
        let (table, name) = column.split_once('.').unwrap();
        for value in values {
            let change = file.unchecked_transaction().unwrap();
            change.execute_batch(&format!("UPDATE {table} SET {name} = {value}")).unwrap();
            let problems = check::problems(&file, &TENANT);
            let expected = format!("{table} has a row that tenantdesk never writes");
            assert_eq!(problems, [expected], "{column} {value}");
        }
    }
    file.execute_batch("DELETE FROM changes_state").unwrap();
    assert_eq!(check::problems(&file, &TENANT), ["changes_state has not one row"]);
    let state = "INSERT INTO changes_state VALUES (1, randomblob(16), 1, 7, 0, NULL)";
    file.execute_batch(state).unwrap();
    let expected = "the change log has 1 entries but counts 7";
    assert_eq!(check::problems(&file, &TENANT), [expected]);
}

#[test]
fn a_tenant_has_at_most_200_keys() {
    let sql = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 200)
        INSERT INTO keys (tenant_id, name, hash, prefix, scopes, created_at)
        SELECT tenant_id, name, randomblob(32), prefix, scopes, created_at FROM keys, n";
    assert_sql_refused(REGISTRY, sql, "the tenant 1 has more than 200 keys");
    let sql = "UPDATE key_events SET client = char(27)";
    assert_sql_refused(REGISTRY, sql, "key_events has a row that tenantdesk never writes");
}
