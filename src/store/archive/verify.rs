//! Decides whether a backup can be trusted: what a stranger has prepared is refused (contract
//! section 10). A checksum does not show who made a backup, so everything is checked that the
//! program relies on elsewhere.
//!
//! The databases are checked on private copies. Nothing that a schema brings along is evaluated: a
//! view, a trigger or another table is refused or dropped first.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use jiff::civil::Date;
use rusqlite::Connection;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::check;
use super::error::{ArchiveError, at};
use super::manifest::{Manifest, SavedFile, digest};
use crate::files;
use crate::model::{ALL, Scope};
use crate::password;
use crate::secret::{KEY_START, PREFIX_LENGTH};
use crate::store::database::{self, Database, LITESTREAM_TABLES, Schema};
use crate::store::registry::{
    EVENT_COLUMNS, Event, KEY_COLUMNS, KeyRow, TENANT_COLUMNS, TenantRow, check_key_name,
};

/// The ids that a counter reaches in the life of a program, with room for as many again.
pub(super) const IDS: RangeInclusive<i64> = 1..=(1 << 53) - 1;

/// The numbers of entries in the change log. They begin at up to 2^44, and each restore adds to
/// them.
const VERSIONS: RangeInclusive<i64> = 0..=(1 << 60) - 1;

/// Opens a file that may be anything: a FIFO would block, a symbolic link leads elsewhere.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let irregular = || io::Error::other("it is not a regular file");
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP | Errno::NXIO) => irregular(),
        _ => error,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

/// Refuses the file of the backup at `path`. `what` may quote it.
pub(super) fn refused(path: &Path, what: &str) -> ArchiveError {
    let what = what.replace(char::is_control, " ");
    ArchiveError::Refused { path: path.to_owned(), what }
}

/// Copies a file of a backup to a new private one, and compares it with the manifest.
pub(super) fn copy(from: &Path, file: &SavedFile, to: &Path) -> Result<(), ArchiveError> {
    let unreadable = |error| refused(from, &format!("cannot be read ({error})"));
    let source = open_regular(from).map_err(unreadable)?;
    let length = source.metadata().map_err(unreadable)?.len();
    if length != file.bytes {
        let what = format!("has {length} bytes, the manifest says {}", file.bytes);
        return Err(refused(from, &what));
    }
    let target = files::create_private(to).map_err(at(to))?;
    let (_, sum) = digest(source.take(length), &target).map_err(at(to))?;
    if sum != file.sha256 {
        return Err(refused(from, "is not what the manifest's SHA-256 says"));
    }
    Ok(())
}

/// What is wrong with a database, as a text that follows its name.
pub(super) struct Fault(pub(super) String);

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault(format!("cannot be used ({error})"))
    }
}

/// Fails with the first fault that was found.
fn refuse(mut found: impl Iterator<Item = String>) -> Result<(), Fault> {
    match found.next() {
        None => Ok(()),
        Some(what) => Err(Fault(format!("is not as tenantdesk makes it: {what}"))),
    }
}

/// Migrates a copied database if it is older, and checks that it is as the program makes it.
/// Returns it open, without Litestream's tables.
pub(super) fn prepare(
    staged: &Database,
    schema: &Schema,
    claimed: u32,
) -> Result<Connection, Fault> {
    let connection = open_staged(staged.path())?;
    let version = database::version(&connection)?;
    if version != claimed {
        return Err(Fault(format!("has schema {version}, the manifest says {claimed}")));
    }
    if version < schema.version {
        make_safe_to_migrate(&connection)?;
    }
    drop(connection);
    staged.migrate().map_err(|error| Fault(format!("cannot be used ({error})")))?;
    let connection = open_staged(staged.path())?;
    refuse(check::faults(&connection, schema).into_iter())?;
    for table in LITESTREAM_TABLES {
        connection.execute_batch(&format!("DROP TABLE IF EXISTS main.{table}"))?;
    }
    check_counters(&connection)?;
    Ok(connection)
}

fn open_staged(path: &Path) -> rusqlite::Result<Connection> {
    let connection = database::open_plain(path)?;
    // It is synced once, when it is complete. One file is renamed, so it has no WAL.
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = DELETE")?;
    Ok(connection)
}

fn texts(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<String>> {
    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

/// A migration runs in a schema that is not known to be the program's. So there may be no views,
/// and triggers are dropped: version 1 had some.
fn make_safe_to_migrate(connection: &Connection) -> Result<(), Fault> {
    let unknown = "SELECT 'it has ' || name FROM pragma_table_list WHERE schema = 'main'
        AND (type = 'view' OR type = 'virtual' AND name NOT LIKE '%\\_search' ESCAPE '\\')";
    refuse(texts(connection, unknown)?.into_iter())?;
    refuse(check::integrity_problems(connection)?.into_iter())?;
    for trigger in texts(connection, "SELECT name FROM sqlite_schema WHERE type = 'trigger'")? {
        let name = trigger.replace('"', "\"\"");
        connection.execute_batch(&format!("DROP TRIGGER \"{name}\""))?;
    }
    Ok(())
}

/// Counters of ids, and ids, leave room for others.
fn check_counters(connection: &Connection) -> Result<(), Fault> {
    const COUNTED: &str = "SELECT name FROM sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%'";
    let last = IDS.end();
    let sql = format!(
        "SELECT 'sqlite_sequence is out of range' WHERE (
           SELECT count(*) > count(DISTINCT name)
               OR total(typeof(seq) <> 'integer' OR seq NOT BETWEEN 0 AND {last}
                        OR name NOT IN ({COUNTED})) > 0
           FROM sqlite_sequence)"
    );
    refuse(texts(connection, &sql)?.into_iter())?;
    for table in texts(connection, COUNTED)? {
        check_range(connection, &table, "id", &IDS)?;
    }
    Ok(())
}

fn check_range(
    connection: &Connection,
    table: &str,
    column: &str,
    range: &RangeInclusive<i64>,
) -> Result<(), Fault> {
    let sql = format!("SELECT {column} FROM {table} WHERE {column} NOT BETWEEN ?1 AND ?2");
    let is_wrong = connection.prepare(&sql)?.exists([range.start(), range.end()])?;
    refuse(is_wrong.then(|| format!("{table}.{column} is out of range")).into_iter())
}

/// Checks the change log in a tenant's file that [`prepare`] has accepted.
pub(super) fn check_tenant(tenant: &Connection) -> Result<(), Fault> {
    let versions = ALL.map(|resource| (resource.plural, "version", VERSIONS));
    let numbers = [
        ("changes", "seq", VERSIONS),
        ("changes", "record_id", IDS),
        ("changes_removed", "seq", VERSIONS),
        ("changes_state", "last_seq", VERSIONS),
        ("changes_state", "entries", VERSIONS),
    ];
    for (table, column, range) in versions.into_iter().chain(numbers) {
        check_range(tenant, table, column, &range)?;
    }
    let control = "*[\u{1}-\u{1f}\u{7f}-\u{9f}]*";
    let wrong = format!(
        "SELECT 'changes_state has not one row'
         WHERE (SELECT count(*) FROM changes_state) <> 1
         UNION ALL SELECT 'changes has a name with control characters' FROM changes
         WHERE by_name GLOB '{control}' OR by_prefix GLOB '{control}'"
    );
    refuse(texts(tenant, &wrong)?.into_iter())
}

/// Checks a registry that [`prepare`] has accepted.
pub(super) fn check_registry(registry: &Connection, manifest: &Manifest) -> Result<(), Fault> {
    let tenants = tenants(registry)?;
    let ids = tenants.iter().map(|tenant| (tenant.id, tenant.name.as_str()));
    if ids.collect::<BTreeSet<_>>() != manifest.tenant_ids().into_iter().collect() {
        return Err(Fault("does not have the tenants of the manifest".to_owned()));
    }
    refuse(tenants.iter().filter_map(row_problem))?;
    let sql = format!("SELECT {KEY_COLUMNS}, hash, scopes FROM keys");
    let mut statement = registry.prepare(&sql)?;
    let columns = KEY_COLUMNS.split(',').count();
    let keys = statement.query_map([], |row| {
        let key = KeyRow::read(row)?;
        let (hash, scopes): (Vec<u8>, String) = (row.get(columns)?, row.get(columns + 1)?);
        Ok(key_problem(&key, &hash, &scopes))
    })?;
    let sql = format!("SELECT {EVENT_COLUMNS} FROM key_events");
    let mut statement = registry.prepare(&sql)?;
    let events = statement.query_map([], |row| Ok(event_problem(&Event::read(row)?)))?;
    let problems = keys.chain(events).collect::<rusqlite::Result<Vec<_>>>()?;
    refuse(problems.into_iter().flatten())
}

/// The tenants of a registry that is not opened as one.
pub(super) fn tenants(registry: &Connection) -> rusqlite::Result<Vec<TenantRow>> {
    let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants ORDER BY id");
    registry.prepare(&sql)?.query_map([], TenantRow::read)?.collect()
}

fn row_problem(tenant: &TenantRow) -> Option<String> {
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

fn key_problem(key: &KeyRow, hash: &[u8], scopes: &str) -> Option<String> {
    let has_scopes = scopes.split(' ').all(|scope| Scope::parse(scope).is_some());
    let is_good = is_key_name(&key.name) && is_prefix(&key.prefix) && has_scopes;
    (!is_good || hash.len() != 32)
        .then(|| format!("the key {} is none that the program makes", key.id))
}

fn event_problem(event: &Event) -> Option<String> {
    let key = event.key.as_ref()?;
    (!is_key_name(&key.name) || !is_prefix(&key.prefix))
        .then(|| format!("an event of the key {} is none that the program makes", key.id))
}

fn is_key_name(name: &str) -> bool {
    check_key_name(name) == Ok(name)
}

/// Whether it can be the first characters of a key: `tdk_` and base64url.
fn is_prefix(prefix: &str) -> bool {
    let is_of_a_key = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    prefix.len() == PREFIX_LENGTH
        && prefix.starts_with(KEY_START)
        && prefix.bytes().all(is_of_a_key)
}
