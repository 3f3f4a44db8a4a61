//! The one place where a database is opened: pragmas, schema, migrations.

use std::cell::Cell;
use std::ffi::c_int;
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, ffi};

use crate::cpu_permits;

/// The layout of one kind of database and the way to it from older ones.
#[derive(Debug)]
pub struct Schema {
    /// What the file is, for messages: `registry`, `tenant`.
    pub name: &'static str,
    /// The version that `sql` makes; it stands in `user_version`.
    pub version: u32,
    /// Makes an empty database into one of `version`.
    pub sql: &'static str,
    /// `migrations[n]` makes version `n + 1` into version `n + 2`.
    pub migrations: &'static [&'static str],
}

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("{} was written by a newer version of tenantdesk (schema {found}, this binary knows {known}); use that version", .path.display())]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("{} is damaged or no database: {cause}", .path.display())]
    Damaged { path: PathBuf, cause: String },
    #[error("{} cannot be used: {cause}", .path.display())]
    Unusable { path: PathBuf, cause: String },
}

/// Why there is no copy of a database.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Source(OpenError),
    #[error(transparent)]
    Target(OpenError),
}

impl From<CopyError> for OpenError {
    fn from(error: CopyError) -> OpenError {
        match error {
            CopyError::Source(cause) | CopyError::Target(cause) => cause,
        }
    }
}

/// How long a connection waits for a lock that another process or connection holds (contract section 6, condition 6).
pub const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Bytes to which a write-ahead log is cut when it begins anew, after a transaction that made it larger. It is a few times what
/// a log reaches between two automatic checkpoints, so that a log of usual size is never cut.
pub(super) const WAL_LIMIT: i64 = 16 << 20;

/// Statements kept prepared per connection.
const STATEMENT_CACHE: usize = 64;

/// A database that is there: its pragmas set, its schema up to date.
pub fn open(path: &Path, schema: &Schema) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match fs::metadata(path) {
        Ok(database) => match_file_modes(path, &database),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(OpenError::Missing(path.to_owned())),
        Err(error) => return Err(unusable(path, error)),
    }
    let mut connection = connect(path, flags).map_err(|error| open_error(path, &error))?;
    match version(&connection).map_err(|error| open_error(path, &error))? {
        0 => Err(OpenError::Damaged { path: path.to_owned(), cause: "it has no schema".to_owned() }),
        found if found == schema.version => Ok(connection),
        found if found > schema.version => {
            Err(OpenError::Newer { path: path.to_owned(), found, known: schema.version })
        }
        _older => {
            migrate(path, &mut connection, schema)?;
            Ok(connection)
        }
    }
}

/// SQLite gives the files beside a database its mode when it makes them. Where the database was read-only then and is
/// not any more, they still are, and nothing could be written. What cannot be changed shows when it is opened.
fn match_file_modes(path: &Path, database: &Metadata) {
    for suffix in ["-wal", "-shm"] {
        let sibling = sibling_path(path, suffix);
        if fs::metadata(&sibling).is_ok_and(|found| found.permissions() != database.permissions()) {
            let _ = fs::set_permissions(&sibling, database.permissions());
        }
    }
}

/// The name of what SQLite keeps beside a database: `-wal`, `-shm`.
pub fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// A new database, private to the owner. One that is there already is opened instead. Where this fails, no new file stays.
pub fn create(path: &Path, schema: &Schema) -> Result<Connection, OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => create_schema(path, schema).inspect_err(|_| remove_database(path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // A crash between creating a file and committing its schema leaves an empty one: then it is made now.
            match fs::metadata(path).is_ok_and(|file| file.len() > 0) {
                true => open(path, schema),
                false => create_schema(path, schema),
            }
        }
        Err(error) => Err(unusable(path, error)),
    }
}

/// Removes a database that nobody needs, and what SQLite keeps beside it. What cannot be removed stays.
pub(super) fn remove_database(path: &Path) {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let _ = fs::remove_file(sibling_path(path, suffix));
    }
}

/// Gives an empty file its schema.
fn create_schema(path: &Path, schema: &Schema) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let make = || -> rusqlite::Result<Connection> {
        let mut connection = connect(path, flags)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if version(&transaction)? == 0 {
            transaction.execute_batch(schema.sql)?;
            transaction.pragma_update(None, "user_version", schema.version)?;
        }
        transaction.commit()?;
        Ok(connection)
    };
    let connection = make().map_err(|error| open_error(path, &error))?;
    sync_folder(path).map_err(|error| unusable(path, error))?;
    Ok(connection)
}

/// Makes the name of a new file durable, not just its content.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

/// The further connections of a database that [`open`] has accepted, for reading only.
pub fn reader_manager(path: &Path) -> SqliteConnectionManager {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    SqliteConnectionManager::file(path).with_flags(flags).with_init(|connection| {
        configure(connection)?;
        connection.pragma_update(None, "query_only", true)
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that opens connections, and it sets the pragmas")]
fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    configure(&connection)?;
    Ok(connection)
}

/// The busy handler comes first: setting WAL may have to wait too.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // A plan must not depend on bound values: it would be made anew at every `LIMIT ?`, which costs more than a page.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", WAL_LIMIT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true).map(drop)
}

thread_local! {
    /// Locks that this thread had to wait for. SQLite hands its callback nothing to count in.
    static LOCK_WAITS: Cell<u64> = const { Cell::new(0) };
}

/// How many locks this thread has waited for since it was asked last.
pub fn take_lock_waits() -> u64 {
    LOCK_WAITS.take()
}

/// Frees a connection's cached pages. Where it fails, they stay.
pub(super) fn release_cache(connection: &Connection) {
    let _ = connection.release_memory();
}

/// Has this connection, if it is the last of its database to close, leave the write-ahead log there, emptied, and its index.
/// To make and remove two files whenever a tenant is opened and closed costs more than all else about it, and under a lock of
/// the folder. Where it cannot be had, they are removed.
#[expect(unsafe_code, reason = "rusqlite has no name for it")]
pub(super) fn persist_wal(connection: &Connection) {
    let mut keep: c_int = 1;
    // SAFETY: the handle is an open connection's, and no other thread can use it meanwhile, since a `Connection` is not
    // `Sync`. No name means the main database. This operation reads and writes one int, which is ours.
    let _ = unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            ptr::null(),
            ffi::SQLITE_FCNTL_PERSIST_WAL,
            (&raw mut keep).cast(),
        )
    };
}

/// Keeps what savepoints may have to undo in memory. One change touches a page of each index, which is more than the 64 KiB from
/// which SQLite writes it to a temporary file. It is for connections that make small changes and sort nothing: what they keep is
/// not bounded.
pub(super) fn keep_temporary_files_in_memory(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// What a connection's page cache takes, in bytes.
#[expect(unsafe_code, reason = "rusqlite has no name for it")]
pub(super) fn cached_bytes(connection: &Connection) -> usize {
    let (mut bytes, mut highest) = (0, 0);
    // SAFETY: as above; the two ints that it writes are ours.
    let _ = unsafe {
        ffi::sqlite3_db_status(
            connection.handle(),
            ffi::SQLITE_DBSTATUS_CACHE_USED,
            &raw mut bytes,
            &raw mut highest,
            0,
        )
    };
    usize::try_from(bytes).unwrap_or(0)
}

/// SQLite's own busy wait would keep the worker's turn while it sleeps. Short naps at first, then 25 ms each, 5 s in all.
fn wait_for_lock(tries: i32) -> bool {
    const NAP: Duration = Duration::from_millis(25);
    if tries == 0 {
        LOCK_WAITS.set(LOCK_WAITS.get() + 1);
    }
    let long = u32::try_from(tries.saturating_sub(5)).unwrap_or(0);
    if NAP * long >= LOCK_WAIT {
        return false;
    }
    let nap = if tries < 5 { Duration::from_millis(1) } else { NAP };
    cpu_permits::release_while_blocking(|| std::thread::sleep(nap));
    true
}

/// The version of the SQLite library in this binary.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// The schema version that the file says it has.
pub fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Copies the file beside itself and takes every step in one transaction: it is migrated whole or not at all. Whoever comes
/// second finds it done.
fn migrate(path: &Path, connection: &mut Connection, schema: &Schema) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| open_error(path, &error);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = version(&transaction).map_err(failed)?;
    if found >= schema.version {
        return Ok(());
    }
    let copy = copy_before_migration(path, found)?;
    let taken = usize::try_from(found.saturating_sub(1)).unwrap_or(usize::MAX);
    let steps = || -> rusqlite::Result<()> {
        for step in schema.migrations.iter().skip(taken) {
            transaction.execute_batch(step)?;
        }
        transaction.pragma_update(None, "user_version", schema.version)
    };
    steps().and_then(|()| transaction.commit()).map_err(|error| {
        // The next try makes its own copy: until then an older version may write to the file.
        if let Some(copy) = copy {
            let _ = fs::remove_file(copy);
        }
        let cause = format!("migrating it from schema {found} to {} failed ({error})", schema.version);
        unusable(path, cause)
    })?;
    tracing::info!(file = %path.display(), from = found, to = schema.version, "schema migrated");
    Ok(())
}

/// `1.db.v1` beside `1.db`, and its path if it was made here. The transaction around it keeps others from writing; reading
/// goes on, also for the copy.
fn copy_before_migration(path: &Path, found: u32) -> Result<Option<PathBuf>, OpenError> {
    let copy = path.with_extension(format!("db.v{found}"));
    if copy.try_exists().map_err(|error| unusable(path, error))? {
        return Ok(None);
    }
    let partial = path.with_extension(format!("db.v{found}.partial"));
    match fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(&partial, error)),
        _ => (),
    }
    let source = open_raw(path).map_err(|error| open_error(path, &error))?;
    copy_to(&source, &partial)?;
    let renamed = fs::rename(&partial, &copy).and_then(|()| sync_folder(&copy));
    renamed.map_err(|error| {
        remove_database(&partial);
        remove_database(&copy);
        unusable(&copy, error)
    })?;
    Ok(Some(copy))
}

/// A copy of one moment of the database, in a new private file that is whole in itself and on disk. Writers go on meanwhile.
/// Where this fails, no file stays.
///
/// # Errors
///
/// [`CopyError::Source`] where the database cannot be read, [`CopyError::Target`] where the copy cannot be written.
///
/// All pages are taken in one step: in several, each commit by somebody else would begin the copy anew.
pub fn copy_to(source: &Connection, path: &Path) -> Result<(), CopyError> {
    let cannot_write = |error: io::Error| CopyError::Target(unusable(path, error));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(cannot_write)?;
    copy_into(source, path).and_then(|()| file.sync_all().map_err(cannot_write)).inspect_err(|_| remove_database(path))
}

fn copy_into(source: &Connection, path: &Path) -> Result<(), CopyError> {
    let of_target = |error: rusqlite::Error| CopyError::Target(open_error(path, &error));
    let mut target = open_raw(path).map_err(of_target)?;
    copy_pages(source, &mut target).map_err(|error| match is_write_error(&error) {
        true => of_target(error),
        false => CopyError::Source(open_error(Path::new(source.path().unwrap_or_default()), &error)),
    })?;
    // In WAL mode it could not be read without writing beside it.
    target.pragma_update(None, "journal_mode", "DELETE").map_err(of_target)
}

/// Whether a step of a copy failed at its target. The source is only read.
fn is_write_error(error: &rusqlite::Error) -> bool {
    let written = [
        ffi::SQLITE_IOERR_WRITE,
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_IOERR_DIR_FSYNC,
        ffi::SQLITE_IOERR_TRUNCATE,
        ffi::SQLITE_IOERR_DELETE,
    ];
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::CannotOpen))
        || error.sqlite_error().is_some_and(|error| written.contains(&error.extended_code))
}

fn copy_pages(source: &Connection, target: &mut Connection) -> rusqlite::Result<()> {
    let backup = Backup::new(source, target)?;
    let mut tries = 0;
    while backup.step(-1)? != StepResult::Done {
        if !wait_for_lock(tries) {
            return Err(still_locked());
        }
        tries += 1;
    }
    Ok(())
}

/// Replaces the content of `target` by that of `source`, page by page, in one transaction of `target`, which waits for its
/// other writers. No row is written, so nothing is checked row by row.
///
/// `prepare` runs once `target` is locked for writing: it can still change `source`.
pub fn replace_content(
    source: &Connection,
    target: &mut Connection,
    prepare: impl FnOnce() -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let backup = Backup::new(source, target)?;
    // The first step takes the lock, which is held until the last is done.
    copy_step(&backup, 1)?;
    prepare()?;
    copy_step(&backup, -1)?;
    drop(backup);
    // A statement's commit would do this. Where it fails, the next commit tries again.
    let _ = target.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    Ok(())
}

/// Copies `pages` pages, all that remain where it is negative. The connection's busy handler has waited for locks before.
fn copy_step(backup: &Backup<'_, '_>, pages: c_int) -> rusqlite::Result<()> {
    match backup.step(pages)? {
        StepResult::Done | StepResult::More => Ok(()),
        _ => Err(still_locked()),
    }
}

fn still_locked() -> rusqlite::Error {
    let busy = ffi::Error::new(ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(busy, Some("the database stayed locked".to_owned()))
}

/// Whether the file, apart from its write-ahead log, begins as a database does.
///
/// It is read through SQLite, not opened as a file: to close any descriptor of a file drops all locks that this process has
/// on it, and then another process that closes the same database takes itself for the last one, and removes the log in
/// which this one goes on writing.
#[expect(clippy::disallowed_methods, reason = "this is the one place that opens connections")]
pub fn is_database(path: &Path) -> bool {
    /// What has a meaning of its own in a URI's path is percent-encoded, and all that is not ASCII.
    const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');
    let name = percent_encode(path.as_os_str().as_encoded_bytes(), KEPT);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)
        .and_then(|connection| version(&connection))
        .is_ok()
}

/// A database as it is: no schema is looked for and no WAL begun. For copies, and for files that [`open`] refuses.
#[expect(clippy::disallowed_methods, reason = "this is the one place that opens connections")]
pub fn open_raw(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(wait_for_lock))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// Makes another database readable on this connection under the name `schema`, which is ours.
pub fn attach(connection: &Connection, path: &Path, schema: &str) -> rusqlite::Result<()> {
    let name = path.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(path.to_owned()))?;
    connection.execute(&format!("ATTACH ? AS {schema}"), [name]).map(drop)
}

/// Ids go on from the higher count: each of the main database's tables takes over the count of its namesake in `schema`
/// where that is higher.
pub fn raise_id_counters(connection: &Connection, schema: &str) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "UPDATE main.sqlite_sequence AS own SET seq = other.seq
           FROM {schema}.sqlite_sequence AS other WHERE other.name = own.name AND other.seq > own.seq;
         INSERT INTO main.sqlite_sequence (name, seq) SELECT name, seq FROM {schema}.sqlite_sequence AS other
           WHERE NOT EXISTS (SELECT 1 FROM main.sqlite_sequence AS own WHERE own.name = other.name);"
    ))
}

/// Makes the connection wait longer for its turn to write: a server that is busy leaves the lock only for moments.
pub fn use_long_busy_timeout(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_long_for_lock))
}

/// Half a minute in naps of a millisecond.
fn wait_long_for_lock(tries: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    tries < 30_000
}

pub(super) fn unusable(path: &Path, cause: impl ToString) -> OpenError {
    OpenError::Unusable { path: path.to_owned(), cause: cause.to_string() }
}

fn open_error(path: &Path, error: &rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            OpenError::Damaged { path: path.to_owned(), cause: error.to_string() }
        }
        _ => unusable(path, error),
    }
}
