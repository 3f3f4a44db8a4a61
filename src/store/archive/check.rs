//! Faults of the databases in a data directory, and content of a backup that the program does not
//! make (contract section 10).

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::ptr;

use jiff::civil::Date;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::model::{ALL, Kind, Resource, Scope, TenantId, Value};
use crate::password;
use crate::secret::{KEY_START, PREFIX_LENGTH};
use crate::store::data_dir::{
    DataDir, TENANT, registry_database, tenant_database, tenant_file_ids,
};
use crate::store::database::{self, Database, Role, SQL_CURE, Schema};
use crate::store::error::{DatabaseError, OpenError};
use crate::store::records::{KeyLabel, Reading, Record};
use crate::store::registry::{
    EVENT_COLUMNS, Event, KEY_COLUMNS, KeyRow, MAX_KEYS, TenantRow, check_key_name,
};

/// The highest id and number of an entry that is accepted: half as much again as an import takes,
/// and far from the end.
const LAST_NUMBER: i64 = 0x5fff_ffff_ffff_fffd;

/// The bytes of the longest text that a field takes.
fn longest_text() -> usize {
    let lengths = ALL.iter().flat_map(|resource| resource.fields).map(|field| match field.kind {
        Kind::Text { max, .. } => max,
        _ => 0,
    });
    lengths.max().unwrap_or(0) * 4
}

/// A table, and what is true of each row that the program writes. A condition that is null is met.
/// `LAST_NUMBER` in a condition stands for the number.
const RULES: [(&str, &str); 9] = [
    ("sqlite_sequence", "coalesce(seq, -1) BETWEEN 0 AND LAST_NUMBER"),
    (
        "hardware",
        "employee_id IS NULL OR customer_id IS
           (SELECT customer_id FROM employees WHERE employees.id = employee_id)",
    ),
    // An entry has at most all values of a record before it, as JSON, and the names of all fields.
    (
        "changes",
        "seq BETWEEN 0 AND LAST_NUMBER AND record_id BETWEEN 0 AND LAST_NUMBER
         AND length(at) = 20 AND at NOT GLOB '*[^0-9TZ:-]*'
         AND resource NOT GLOB '*[^a-z]*' AND action NOT GLOB '*[^a-z]*'
         AND json_valid(fields) AND fields NOT GLOB '*[^]a-z0-9_,\"[]*' AND length(fields) < 2000
         AND iif(json_valid(before), json_type(before) = 'object', before IS NULL)
         AND octet_length(before) <= 320000
         AND octet_length(by_name) <= 400 AND by_name NOT GLOB '*[\u{1}-\u{1f}\u{7f}-\u{9f}]*'
         AND length(by_prefix) = 8 AND by_prefix NOT GLOB '*[^!-~]*' AND length(request_id) = 16",
    ),
    (
        "changes_removed",
        "seq BETWEEN 0 AND LAST_NUMBER AND resource NOT GLOB '*[^a-z]*'
         AND length(at) = 20 AND at NOT GLOB '*[^0-9TZ:-]*'",
    ),
    // The longest `--keep-changes` is 3,650 days.
    (
        "changes_state",
        "last_seq BETWEEN 0 AND LAST_NUMBER AND length(lineage) = 16
         AND keep_seconds BETWEEN 0 AND 3650 * 86400",
    ),
    // A batch has at most 100 records.
    (
        "idempotency",
        "length(key) = 16 AND length(request) = 32 AND status IN (200, 201, 204)
         AND location GLOB '/*' AND location NOT GLOB '*[^!-~]*' AND length(location) < 100
         AND length(etag) < 22 AND trim(etag, '\"') NOT GLOB '*[^0-9]*'
         AND octet_length(body) <= 32000000 AND (body = x'' OR json_valid(CAST(body AS TEXT)))",
    ),
    ("tenants", "id BETWEEN 1 AND LAST_NUMBER"),
    ("keys", "id BETWEEN 1 AND LAST_NUMBER"),
    (
        "key_events",
        "id BETWEEN 1 AND LAST_NUMBER
         AND length(client) <= 45 AND client NOT GLOB '*[^!-~]*'",
    ),
];

/// The result for one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its path in the data directory: `registry.db`, `tenants/1.db`.
    pub database: String,
    /// Texts for the operator; none for an intact database.
    pub problems: Vec<String>,
    /// Whether no tenant in the registry has this file. It is not examined, and left as it is: a
    /// crash in the middle of the creation or deletion of a tenant leaves one. Ids are never used
    /// again, so it harms nobody.
    pub is_orphan: bool,
    /// Whether each problem says what to do, so that no backup is needed.
    pub names_cure: bool,
}

/// The problems of each kind that are listed for one database.
const MAX_PROBLEMS: usize = 20;

/// Checks all databases of a data directory. A server may run meanwhile.
///
/// # Errors
///
/// [`OpenError::Missing`] if there is no registry; [`OpenError::Unusable`] if the tenants' files
/// cannot be listed.
pub fn check(data_dir: &Path) -> Result<Vec<Finding>, OpenError> {
    let _in_use = DataDir::open(data_dir)?;
    // Files are listed first: the row of a tenant that is created meanwhile is committed when the
    // rows are read.
    let files = tenant_file_ids(data_dir)?;
    let registry = registry_database(data_dir);
    let tenant_ids = || -> Option<BTreeSet<TenantId>> {
        let rows = tenants(&registry.open(Role::Bulk).ok()?).ok()?;
        Some(rows.into_iter().map(|tenant| tenant.id).collect())
    };
    let known = tenant_ids();
    let finding = |file: &Database, is_orphan: bool| {
        let database = file.name_in(data_dir);
        let (problems, names_cure) = match file.open(Role::Bulk) {
            _ if is_orphan => (Vec::new(), false),
            Ok(opened) => {
                let mut found = problems(&opened, file.schema);
                if found.is_empty() {
                    found = listed(problems_of_records(&opened, file.schema));
                }
                let names_cure = found.iter().all(|problem| problem.contains(SQL_CURE));
                (found, names_cure)
            }
            Err(error) => {
                let is_old = matches!(error, OpenError::Older { .. } | OpenError::TooOld { .. });
                (vec![error.to_string()], is_old)
            }
        };
        Finding { database, problems, is_orphan, names_cure }
    };
    let ids = files.union(known.as_ref().unwrap_or(&files));
    let of_tenant = |id: &TenantId| {
        let is_orphan = known.as_ref().is_some_and(|known| !known.contains(id));
        let finding = finding(&tenant_database(data_dir, *id), is_orphan);
        // A tenant that is deleted meanwhile, as at the end of a move, has no problems.
        let is_deleted = || tenant_ids().is_some_and(|ids| !ids.contains(id));
        (finding.problems.is_empty() || !is_deleted()).then_some(finding)
    };
    Ok([finding(&registry, false)].into_iter().chain(ids.filter_map(of_tenant)).collect())
}

/// Finds problems of one kind.
type Check = fn(&Connection, &Schema) -> rusqlite::Result<Vec<String>>;

/// Each relies on those before it: a schema that is not the program's may have views, and a damaged
/// table may have no end.
const CHECKS: [Check; 7] = [
    database::differences,
    integrity_problems,
    broken_foreign_keys,
    invalid_texts,
    invalid_rows,
    invalid_objects,
    change_log_problems,
];

/// The problems that the first check finds which finds any. A backup and a restore refuse a file
/// with problems.
pub(super) fn problems(connection: &Connection, schema: &Schema) -> Vec<String> {
    for check in CHECKS {
        let problems = listed(check(connection, schema));
        if !problems.is_empty() {
            return problems;
        }
    }
    Vec::new()
}

fn listed(found: rusqlite::Result<Vec<String>>) -> Vec<String> {
    let problems = found.unwrap_or_else(|error| vec![error.to_string()]).into_iter();
    // They may quote the file.
    problems.take(MAX_PROBLEMS).map(|text| text.replace(char::is_control, " ")).collect()
}

pub(super) fn integrity_problems(
    connection: &Connection,
    _: &Schema,
) -> rusqlite::Result<Vec<String>> {
    let mut lines = texts(connection, &format!("PRAGMA integrity_check({MAX_PROBLEMS})"))?;
    lines.retain(|line| line != "ok");
    Ok(lines)
}

/// References to rows that do not exist.
fn broken_foreign_keys(connection: &Connection, _: &Schema) -> rusqlite::Result<Vec<String>> {
    let sql = format!(
        r#"SELECT format('%s %d refers to a row of %s that does not exist', "table", rowid, parent)
           FROM pragma_foreign_key_check LIMIT {MAX_PROBLEMS}"#
    );
    texts(connection, &sql)
}

/// The tables with a text that is not UTF-8. SQLite does not check that.
fn invalid_texts(connection: &Connection, _: &Schema) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'";
    let mut invalid = Vec::new();
    for table in texts(connection, sql)? {
        let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\""))?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let is_invalid = |column| {
                let value = row.get_ref(column);
                matches!(value, Ok(ValueRef::Text(text)) if str::from_utf8(text).is_err())
            };
            if (0..columns).any(is_invalid) {
                invalid.push(format!("{table} has a text that is not UTF-8"));
                break;
            }
        }
    }
    Ok(invalid)
}

/// The rows of a statement with one text each.
pub(super) fn texts(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<String>> {
    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

/// The tables with a row that breaks its rule.
fn invalid_rows(connection: &Connection, _: &Schema) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    for (table, rule) in RULES {
        let rule = rule.replace("LAST_NUMBER", &LAST_NUMBER.to_string());
        if connection.table_exists(None, table)? {
            let sql = format!(
                "SELECT '{table}{NEVER_WRITTEN}'
                 WHERE EXISTS (SELECT 1 FROM {table} WHERE NOT ({rule}))"
            );
            found.extend(texts(connection, &sql)?);
        }
    }
    Ok(found)
}

/// Records, tenants, keys and events that the program does not make.
fn invalid_objects(connection: &Connection, schema: &Schema) -> rusqlite::Result<Vec<String>> {
    let mut found = texts(
        connection,
        "SELECT 'sqlite_sequence is not as the program makes it' WHERE EXISTS (
         SELECT 1 FROM sqlite_sequence GROUP BY name HAVING count(*) > 1 OR name NOT IN
           (SELECT name FROM sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%'))",
    )?;
    if !ptr::eq(schema, &TENANT) {
        found.extend(invalid_registry_rows(connection)?);
        return Ok(found);
    }
    let state = "SELECT 'changes_state has not one row'
                 WHERE (SELECT count(*) FROM changes_state) <> 1";
    found.extend(texts(connection, state)?);
    let longest = longest_text();
    for resource in ALL {
        let read =
            Reading::new(connection).each(resource, |record| match is_own(record, longest) {
                true => Ok(()),
                false => Err(DatabaseError::InvalidQuery),
            });
        if read.is_err() {
            found.push(format!("{}{NEVER_WRITTEN}", resource.plural));
        }
    }
    Ok(found)
}

const NEVER_WRITTEN: &str = " has a row that tenantdesk never writes";

/// Whether the program can have written a record, whose texts have a valid form and at most
/// `longest` bytes.
fn is_own(record: &Record, longest: usize) -> bool {
    let is_long = |value: &Value| matches!(value, Value::Text(text) if text.len() > longest);
    (1..=LAST_NUMBER).contains(&record.id.0)
        && (0..=LAST_NUMBER).contains(&record.version.0)
        && !record.values.iter().any(is_long)
}

/// Tenants, keys and events.
fn invalid_registry_rows(registry: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found: Vec<String> = tenants(registry)?.iter().filter_map(tenant_problem).collect();
    let sql = format!(
        "SELECT format('the tenant %d has more than {MAX_KEYS} keys', tenant_id) FROM keys
         GROUP BY tenant_id HAVING count(*) > {MAX_KEYS}"
    );
    found.extend(texts(registry, &sql)?);
    let mut statement =
        registry.prepare(&format!("SELECT {KEY_COLUMNS}, hash, scopes FROM keys"))?;
    let columns = KEY_COLUMNS.split(',').count();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (key, scopes): (KeyRow, String) = (KeyRow::read(row)?, row.get(columns + 1)?);
        let has_hash = row.get_ref(columns)?.as_blob()?.len() == 32;
        let has_scopes = scopes.split(' ').all(|scope| Scope::parse(scope).is_some());
        if !(is_key_label(&key.name, &key.prefix) && has_hash && has_scopes) {
            found.push(format!("the key {} is none that the program makes", key.id));
        }
    }
    let mut statement = registry.prepare(&format!("SELECT {EVENT_COLUMNS} FROM key_events"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let key = Event::read(row)?.key.filter(|key| !is_key_label(&key.name, &key.prefix));
        found.extend(key.map(|KeyLabel { id, .. }| {
            format!("an event of the key {id} is none that the program makes")
        }));
    }
    Ok(found)
}

/// The tenants of a registry that is not opened as one.
pub(super) fn tenants(registry: &Connection) -> rusqlite::Result<Vec<TenantRow>> {
    let sql = "SELECT * FROM tenants ORDER BY id";
    registry.prepare(sql)?.query_map([], TenantRow::read)?.collect()
}

fn tenant_problem(tenant: &TenantRow) -> Option<String> {
    let name = &tenant.name;
    let is_date = |text: &String| text.len() == 10 && text.parse::<Date>().is_ok();
    if !password::is_acceptable(&tenant.password_hash) {
        Some(format!("the password hash of the tenant {name} is none that the program makes"))
    } else if !tenant.trial_until.as_ref().is_none_or(is_date) {
        Some(format!("the trial of the tenant {name} ends at no date"))
    } else {
        None
    }
}

/// Whether it can be the name of a key and its first characters: `tdk_` and base64url.
fn is_key_label(name: &str, prefix: &str) -> bool {
    let is_of_a_key = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    check_key_name(name) == Ok(name)
        && prefix.len() == PREFIX_LENGTH
        && prefix.starts_with(KEY_START)
        && prefix.bytes().all(is_of_a_key)
}

/// Faults in a tenant's file that SQLite finds intact: counters of the change log and search tables
/// that do not fit the records.
pub(in crate::store) fn problems_of_records(
    connection: &Connection,
    schema: &Schema,
) -> rusqlite::Result<Vec<String>> {
    if !ptr::eq(schema, &TENANT) {
        return Ok(Vec::new());
    }
    // One state of the file, also beside a server.
    let snapshot = connection.unchecked_transaction()?;
    let mut problems = change_log_problems(connection, schema)?;
    for resource in ALL {
        if !search_fits(connection, resource)? {
            let table = resource.plural;
            problems.push(format!("the search table of {table} does not fit the records"));
        }
    }
    snapshot.finish()?;
    Ok(problems)
}

/// The counters of the change log that do not fit its entries and the records.
fn change_log_problems(connection: &Connection, schema: &Schema) -> rusqlite::Result<Vec<String>> {
    if !ptr::eq(schema, &TENANT) {
        return Ok(Vec::new());
    }
    let versions = ALL.map(|resource| format!("SELECT max(version) FROM {}", resource.plural));
    let sql = format!(
        "WITH present (entries, seq) AS
           (SELECT (SELECT count(*) FROM changes), max(seq)
            FROM (SELECT max(seq) AS seq FROM changes UNION ALL {}))
         SELECT format('the change log has %d entries but counts %d',
                       present.entries, state.entries)
         FROM changes_state AS state, present WHERE present.entries <> state.entries
         UNION ALL
         SELECT format('the change log''s last number is %d, but %d is used', last_seq, seq)
         FROM changes_state, present WHERE seq > last_seq",
        versions.join(" UNION ALL ")
    );
    texts(connection, &sql)
}

/// Counts the records that have each term, and compares the counts with the search table.
fn search_fits(connection: &Connection, resource: &Resource) -> rusqlite::Result<bool> {
    let table = resource.plural;
    let mut expected: HashMap<[char; 3], i64> = HashMap::new();
    let mut texts = connection.prepare(&format!("SELECT search FROM {table}"))?;
    let mut rows = texts.query([])?;
    while let Some(row) = rows.next()? {
        // FTS5 reads U+FFFE and U+FFFF as U+FFFD.
        let text = row.get_ref(0)?.as_str()?.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
        let characters: Vec<char> = text.chars().collect();
        let mut terms: Vec<[char; 3]> = characters.array_windows().copied().collect();
        terms.sort_unstable();
        terms.dedup();
        terms.into_iter().for_each(|term| *expected.entry(term).or_default() += 1);
    }
    connection.execute_batch(&format!(
        "DROP TABLE IF EXISTS temp.vocabulary;
         CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', '{table}_search', 'row')"
    ))?;
    let mut terms = connection.prepare("SELECT term, doc FROM temp.vocabulary")?;
    let mut rows = terms.query([])?;
    while let Some(row) = rows.next()? {
        let characters: Vec<char> = row.get_ref(0)?.as_str()?.chars().collect();
        let known = characters.first_chunk::<3>().and_then(|term| expected.remove(term));
        if known != Some(row.get(1)?) {
            return Ok(false);
        }
    }
    Ok(expected.is_empty())
}
