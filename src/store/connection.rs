//! The only place that opens SQLite connections and sets their pragmas.

use std::cell::Cell;
use std::ffi::c_int;
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, ffi};

use super::log_file;
use crate::files;

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// The file has a schema that this program does not know.
    #[error("{} was written by a newer version of tenantdesk (schema {found}, this binary knows {known}); use that version", .path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// The schema version of the file.
        found: u32,
        /// The newest schema version that this program knows.
        known: u32,
    },
    /// The file is no database, or its content is inconsistent.
    #[error("{} is damaged or no database: {cause}", .path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// The error of SQLite.
        cause: String,
    },
    /// The file cannot be used for another reason: permissions, locks, a full disk, a failed migration.
    #[error("{} cannot be used: {cause}", .path.display())]
    Unusable {
        /// The database.
        path: PathBuf,
        /// The error of SQLite or of the file system.
        cause: String,
    },
}

/// How long a connection waits for a lock that another process or connection holds (contract section 6, condition 6).
pub const LOCK_WAIT: Duration = Duration::from_secs(5);

/// SQLite truncates the write-ahead log to this many bytes when it restarts the log after a larger transaction. The limit is twice
/// the size from which the maintenance has the log start again, so a log of usual size is never truncated.
pub(super) const WAL_LIMIT: i64 = 32 << 20;

/// Frames from which a write-ahead log is too long: checkpoints are too slow for this disk, or Litestream, which does them, does not run.
/// 64 MiB.
pub(super) const MOST_LOG_FRAMES: u32 = 16_000;

/// The number of prepared statements that each connection caches.
const STATEMENT_CACHE: usize = 64;

/// Returns the path of a file that SQLite keeps next to a database. `suffix` is `-wal`, `-shm` or `-journal`.
pub fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes a database and SQLite's files for it. Errors are ignored: nothing uses the files.
pub(super) fn remove_database(path: &Path) {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let _ = fs::remove_file(sibling_path(path, suffix));
    }
}

/// The database must exist. A connection is never used by two threads at the same time, so SQLite needs no mutex for it.
fn open_flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// Returns a manager that opens read-only connections of a database that [`super::schema::open`] has accepted.
pub fn reader_manager(path: &Path) -> SqliteConnectionManager {
    SqliteConnectionManager::file(path).with_flags(open_flags()).with_init(|connection| {
        configure(connection)?;
        connection.pragma_update(None, "query_only", true)
    })
}

/// Opens a database for reading and writing. The schema is not checked.
///
/// # Errors
///
/// Those of SQLite: the file does not exist, is no database or stays locked; the name of a new write-ahead log cannot be synced.
#[expect(clippy::disallowed_methods, reason = "this is the only place that opens connections, and it sets the pragmas")]
pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let log = sibling_path(path, "-wal");
    let is_new_log = !log.exists();
    let connection = Connection::open_with_flags(path, open_flags())?;
    configure(&connection)?;
    if is_new_log {
        // SQLite does this, too, but ignores a failure.
        files::sync_parent(&log).map_err(|error| {
            rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_DIR_FSYNC), Some(error.to_string()))
        })?;
    }
    Ok(connection)
}

/// The busy handler is set first, because the change to WAL mode may have to wait for a lock.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // Otherwise a plan depends on bound values, and SQLite prepares the statement again for every value of `LIMIT ?`, which
    // takes longer than reading a page of a list.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", WAL_LIMIT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true).map(drop)
}

/// Opens a database without a check of its schema and without a change to WAL mode: for copies, and for files that
/// [`super::schema::open`] refuses.
///
/// # Errors
///
/// Those of SQLite: the file does not exist, is no database or stays locked.
#[expect(clippy::disallowed_methods, reason = "this is the only place that opens connections")]
pub fn open_raw(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, open_flags())?;
    connection.busy_handler(Some(wait_for_lock))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// Returns whether the file, without its write-ahead log, has the header of a database.
///
/// SQLite reads the file here. If the program opened and closed the file itself, the process would lose all its POSIX locks on
/// it. Another process that closes the same database would then find no other user and remove the log that this process
/// still writes to.
#[expect(clippy::disallowed_methods, reason = "this is the only place that opens connections")]
pub fn is_database(path: &Path) -> bool {
    /// All other characters have a meaning in the path of a URI, or are not ASCII. They are percent-encoded.
    const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');
    let name = percent_encode(path.as_os_str().as_encoded_bytes(), UNRESERVED);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let read = || -> rusqlite::Result<u32> {
        let connection = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)?;
        // Otherwise SQLite takes a file for damaged that is shorter than its header says. A checkpoint copies the header first, and
        // cannot extend the file where the disk is full.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
        connection.pragma_query_value(None, "user_version", |row| row.get(0))
    };
    read().is_ok()
}

thread_local! {
    /// The number of locks that this thread had to wait for. SQLite passes no context to a busy handler.
    static LOCK_WAITS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of locks that this thread has waited for since the last call.
pub fn take_lock_waits() -> u64 {
    LOCK_WAITS.take()
}

/// The busy handler. SQLite's own handler would hold the worker's permit while it sleeps. The first sleeps take 1 ms, the others
/// 25 ms, [`LOCK_WAIT`] in all.
pub(super) fn wait_for_lock(tries: i32) -> bool {
    const SLEEP: Duration = Duration::from_millis(25);
    const SHORT_SLEEPS: i32 = 5;
    if tries == 0 {
        LOCK_WAITS.set(LOCK_WAITS.get() + 1);
    }
    let long_sleeps = u32::try_from(tries.saturating_sub(SHORT_SLEEPS)).unwrap_or(0);
    if SLEEP * long_sleeps >= LOCK_WAIT {
        return false;
    }
    let sleep = if tries < SHORT_SLEEPS { Duration::from_millis(1) } else { SLEEP };
    std::thread::sleep(sleep);
    true
}

/// Makes the connection wait half a minute for locks, for commands that write next to a busy server.
///
/// # Errors
///
/// Those of SQLite.
pub fn use_long_busy_timeout(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_long_for_lock))
}

/// Short sleeps, because a busy server releases the lock only for moments.
fn wait_long_for_lock(tries: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    tries < 30_000
}

/// Sets the size of the connection's page cache, in KiB.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn set_cache_size(connection: &Connection, kibibytes: i32) -> rusqlite::Result<()> {
    connection.pragma_update(None, "cache_size", -kibibytes)
}

/// Has no commit of the connection copy the write-ahead log into the file. The caller calls [`checkpoint`].
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn disable_automatic_checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", 0)
}

/// Returns whether Litestream copies the database: it keeps a folder beside it. It then does the checkpoints, because it may not have read
/// a log that somebody else restarts. Commands ask, since they may run without the option that names the copy.
pub(super) fn is_copied(path: &Path) -> bool {
    path.file_name().is_some_and(|name| {
        let folder = format!(".{}-litestream", name.to_string_lossy());
        path.with_file_name(folder).is_dir()
    })
}

/// The write-ahead log after a checkpoint, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// The frames in the log.
    pub frames: u32,
    /// The frames whose pages are in the database file. If these are all, the next commit restarts the log.
    pub copied: u32,
}

/// Copies pages from the write-ahead log into the database file. Neither readers nor writers wait for it. Returns `None` if another
/// connection does the same at the moment.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn checkpoint(connection: &Connection) -> rusqlite::Result<Option<Checkpoint>> {
    run_checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")
}

/// Copies all pages from the write-ahead log into the database file and truncates the log. Returns `None` if another connection reads or
/// writes. The next commit of this connection that starts the log again then truncates it.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn truncate_log(connection: &Connection) -> rusqlite::Result<Option<Checkpoint>> {
    connection.pragma_update(None, "journal_size_limit", 0)?;
    let log = run_checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)")?;
    if log.is_some() {
        connection.pragma_update(None, "journal_size_limit", WAL_LIMIT)?;
    }
    Ok(log)
}

fn run_checkpoint(connection: &Connection, pragma: &str) -> rusqlite::Result<Option<Checkpoint>> {
    connection.query_row(pragma, [], |row| {
        if row.get(0)? {
            return Ok(None);
        }
        // -1 where the log is not in use.
        let count = |column| row.get(column).map(|count: i64| u32::try_from(count).unwrap_or(0));
        Ok(Some(Checkpoint { frames: count(1)?, copied: count(2)? }))
    })
}

/// Returns the state of the write-ahead log.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn log_state(connection: &Connection) -> rusqlite::Result<Checkpoint> {
    connection
        .query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| Ok(Checkpoint { frames: row.get(1)?, copied: row.get(2)? }))
}

/// Returns whether the disk refused an operation: it failed, or it is full.
pub(super) fn is_disk_error(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull))
}

/// Returns whether the disk refused to sync.
pub(super) fn is_failed_sync(error: &rusqlite::Error) -> bool {
    let codes = [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC];
    error.sqlite_error().is_some_and(|error| codes.contains(&error.extended_code))
}

/// Commits. After an error of the disk the frames of the failed commit are discarded as far as that is possible, see
/// [`discard_failed_commit`].
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn commit(transaction: Transaction<'_>) -> rusqlite::Result<()> {
    let path = transaction.path().map(PathBuf::from);
    transaction.commit().inspect_err(|error| {
        if let Some(path) = path.filter(|_| is_disk_error(error)) {
            let _ = discard_failed_commit(&path);
        }
    })
}

/// Discards what is in the write-ahead log of the database behind the last committed frame, and syncs the log.
///
/// A commit that could not be synced leaves complete frames there. If the process ended before another commit overwrites them, they
/// would count as committed, although the disk may not have them, and later commits would follow a gap.
///
/// # Errors
///
/// [`OpenError`]. The frames may still be there.
pub(super) fn discard_failed_commit(path: &Path) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| open_error(path, &error);
    let connect = || connect(path).inspect(keep_log_on_close).map_err(failed);
    let (mut writer, reader) = (connect()?, connect()?);
    // Nobody appends to the log meanwhile.
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let Checkpoint { frames, .. } = log_state(&reader).map_err(failed)?;
    log_file::discard_after(&sibling_path(path, "-wal"), frames).map_err(|error| unusable(path, error))?;
    transaction.rollback().map_err(failed)
}

/// Keeps the write-ahead log as it is when this connection is the last of its database to close: it is not copied into the
/// database. The next connection then reads it from its beginning. An error is ignored: SQLite knows the option.
pub(super) fn keep_log_on_close(connection: &Connection) {
    let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
}

/// Checks that no page of the write-ahead log counts as copied into the database: all will be written again before the log can
/// start again. Undoes [`keep_log_on_close`].
///
/// A checkpoint that could not sync the database may have lost pages that earlier, partial checkpoints wrote: these do not sync
/// it. SQLite counts them as copied until all connections are closed and the next one reads the log.
///
/// # Errors
///
/// [`OpenError::Unusable`] while another connection uses the file.
pub(super) fn check_replayed(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let state = log_state(connection).map_err(|error| open_error(path, &error))?;
    if state.copied > 0 {
        return Err(unusable(path, "after a failed sync all connections have to be closed, and one is still open"));
    }
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
        .map(drop)
        .map_err(|error| open_error(path, &error))
}

/// Frees the unused pages of the connection's cache. An error is ignored: the pages stay in the cache.
pub(super) fn release_cache(connection: &Connection) {
    let _ = connection.release_memory();
}

/// Keeps the files `-wal` and `-shm` when this connection is the last of its database to close; the log is truncated to zero
/// bytes. Creating and removing both files takes longer than the rest of opening and closing a tenant, and locks the folder.
/// An error is ignored: SQLite then removes the files.
#[expect(unsafe_code, reason = "rusqlite has no function for it")]
pub(super) fn persist_wal(connection: &Connection) {
    let mut enabled: c_int = 1;
    // SAFETY: the handle belongs to an open connection. No other thread uses it meanwhile, because a `Connection` is not
    // `Sync`. A null name means the main database. The operation reads and writes one int, which is a local variable.
    let _ = unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            ptr::null(),
            ffi::SQLITE_FCNTL_PERSIST_WAL,
            (&raw mut enabled).cast(),
        )
    };
}

/// Keeps the journals of savepoints in memory. A mutation changes a page of each index, which is more than the 64 KiB from which
/// SQLite uses a temporary file. Use this only for connections that make small changes and sort nothing: the memory is not
/// bounded.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn keep_temporary_files_in_memory(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "temp_store", "MEMORY")
}

thread_local! {
    /// The frames in the write-ahead log after this thread's last commit. SQLite's hook takes no context.
    static WAL_FRAMES: Cell<u32> = const { Cell::new(0) };
}

/// Replaces the automatic checkpoint of a connection, which a commit waits for, by a count of the frames in the write-ahead log.
/// The caller reads it with [`take_wal_frames`] and calls [`checkpoint`].
pub(super) fn count_wal_frames(connection: &Connection) {
    connection.wal_hook(Some(|_, frames| {
        WAL_FRAMES.set(u32::try_from(frames).unwrap_or(0));
        Ok(())
    }));
}

/// Returns the frames in the write-ahead log after this thread's last commit on a connection with [`count_wal_frames`], 0 if there
/// was none since the last call.
pub(super) fn take_wal_frames() -> u32 {
    WAL_FRAMES.take()
}

/// Runs `work` without waiting for locks of other connections: it fails at once.
///
/// # Errors
///
/// Those of `work` and of SQLite.
pub(super) fn without_lock_wait<T>(
    connection: &mut Connection,
    work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    connection.busy_handler(None)?;
    let result = work(connection);
    connection.busy_handler(Some(wait_for_lock))?;
    result
}

/// Returns the memory of the connection's page cache, in bytes.
#[expect(unsafe_code, reason = "rusqlite has no function for it")]
pub(super) fn cached_bytes(connection: &Connection) -> usize {
    let (mut bytes, mut highest) = (0, 0);
    // SAFETY: as for `sqlite3_file_control` above. The function writes two ints, which are local variables.
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

/// Returns the version of the SQLite library in this program.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// Attaches another database to this connection. `schema` is its name in SQL; it is trusted.
///
/// # Errors
///
/// Those of SQLite; `InvalidPath` if the path is not UTF-8.
pub fn attach(connection: &Connection, path: &Path, schema: &str) -> rusqlite::Result<()> {
    let name = path.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(path.to_owned()))?;
    connection.execute(&format!("ATTACH ? AS {schema}"), [name]).map(drop)
}

/// Raises the id counter of each table of the main database to that of the same table in the attached database `schema`, if that
/// is higher.
///
/// # Errors
///
/// Those of SQLite.
pub fn raise_id_counters(connection: &Connection, schema: &str) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "UPDATE main.sqlite_sequence AS own SET seq = other.seq
           FROM {schema}.sqlite_sequence AS other WHERE other.name = own.name AND other.seq > own.seq;
         INSERT INTO main.sqlite_sequence (name, seq) SELECT name, seq FROM {schema}.sqlite_sequence AS other
           WHERE NOT EXISTS (SELECT 1 FROM main.sqlite_sequence AS own WHERE own.name = other.name);"
    ))
}

/// Returns an [`OpenError::Unusable`] with the text of `cause`.
pub(super) fn unusable(path: &Path, cause: impl ToString) -> OpenError {
    OpenError::Unusable { path: path.to_owned(), cause: cause.to_string() }
}

/// Returns the [`OpenError`] for an error of SQLite: damage of the file is distinguished.
pub(super) fn open_error(path: &Path, error: &rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            OpenError::Damaged { path: path.to_owned(), cause: error.to_string() }
        }
        _ => unusable(path, error),
    }
}
