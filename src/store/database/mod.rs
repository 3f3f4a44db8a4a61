//! One type for the registry and for tenants' files: where it is, how it is opened, and how a
//! commit reaches the disk. This file alone opens SQLite connections, and sets their pragmas.
//!
//! | file | its concern |
//! |---|---|
//! | `schema` | creation, versions, migration, comparison |
//! | `wal` | commits, and the end of the process at a failed sync |

mod schema;
mod wal;

use std::ffi::c_int;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io;
use std::iter;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use memchr::memmem;
use r2d2::Pool;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use rustix::fs::{FallocateFlags, fallocate};
use scheduled_thread_pool::ScheduledThreadPool;

pub(crate) use schema::differences;
pub(crate) use wal::{LAST_LINE, commit, make_durable};

use super::error::{DISK_IS_FULL, Result, StoreCode, StoreError};
use crate::clock::Timestamp;
use crate::files::{self, companion};

/// The registry or a tenant's file.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    path: PathBuf,
    pub(crate) schema: &'static Schema,
}

#[derive(Debug)]
pub(crate) struct Schema {
    /// Creates the schema in an empty database.
    pub(crate) sql: &'static str,
    /// The version of 1.0.0, the oldest that can be migrated.
    pub(crate) first: u32,
    /// The SQL of each later version, in order. A released step never changes.
    pub(crate) steps: &'static [&'static str],
}

impl Schema {
    /// The `user_version` of a database with this schema.
    pub(crate) const fn version(&self) -> u32 {
        self.first + self.steps.len() as u32
    }
}

/// The purpose of a connection, which decides the size of its page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Reads of requests.
    Reader,
    /// Writes of requests. 100 changes touch about 1,000 pages.
    Writer,
    /// A command that reads or writes whole tables, and a dozen indexes with them.
    Bulk,
}

impl Database {
    pub(crate) fn new(path: impl Into<PathBuf>, schema: &'static Schema) -> Database {
        Database { path: path.into(), schema }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name in a data directory or a backup: `registry.db`, `tenants/1.db`.
    pub(crate) fn name_in(&self, directory: &Path) -> String {
        let name = self.path.strip_prefix(directory).unwrap_or(&self.path);
        name.to_string_lossy().into_owned()
    }

    /// The path of a file that SQLite keeps beside the database.
    pub(crate) fn companion(&self, suffix: &str) -> PathBuf {
        companion(&self.path, suffix)
    }

    /// The database and what SQLite keeps beside it.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let companions = ["-wal", "-shm", "-journal"].map(|suffix| self.companion(suffix));
        iter::once(self.path.clone()).chain(companions)
    }

    /// Removes the database's files, and what a replicator keeps beside them.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for file in self.files() {
            files::ignore_missing(fs::remove_file(file))?;
        }
        files::ignore_missing(fs::remove_dir_all(self.replica_directory()))
    }

    fn replica_directory(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}-litestream"))
    }

    /// Whether the database is replicated.
    pub(super) fn is_replicated(&self) -> bool {
        self.replica_directory().is_dir()
    }

    pub(crate) fn attach_to(&self, connection: &Connection, name: &str) -> rusqlite::Result<()> {
        let path = self.path.to_str().filter(|_| self.require_file().is_ok());
        let path = path.ok_or_else(|| rusqlite::Error::InvalidPath(self.path.clone()))?;
        connection.execute(&format!("ATTACH ? AS {name}"), [path]).map(drop)
    }

    pub(crate) fn unusable(&self, cause: impl Display) -> StoreError {
        StoreError::unusable(&self.path, cause)
    }

    pub(crate) fn missing(&self) -> StoreError {
        let message = format!("{} does not exist", self.path.display());
        StoreError::new(StoreCode::Missing, message)
    }

    fn damaged(&self, cause: impl Display) -> StoreError {
        let message = format!("{} is damaged or no database: {cause}", self.path.display());
        StoreError::new(StoreCode::Damaged, message)
    }

    /// Names the file in an error of SQLite.
    pub(crate) fn error(&self, error: impl Into<StoreError>) -> StoreError {
        match error.into() {
            StoreError { code: StoreCode::Damaged, message } => self.damaged(message),
            StoreError { code, message } => StoreError { code, ..self.unusable(message) },
        }
    }

    /// Identifies the file that the path names now.
    pub(crate) fn identity(&self) -> Result<FileIdentity> {
        let found = fs::symlink_metadata(&self.path).map_err(|error| self.unusable(error))?;
        Ok((found.dev(), found.ino()))
    }
}

/// Copies a consistent snapshot of the database, page by page, to the empty file at `path`. Returns
/// the copy open. It has no WAL and is not synced.
///
/// All pages are copied in one step: in several steps, each commit of another connection would
/// begin the copy anew.
pub(crate) fn copy_pages(source: &Connection, path: &Path) -> rusqlite::Result<Connection> {
    let mut copy = open_plain(path)?;
    copy.pragma_update(None, "synchronous", "OFF")?;
    step(&Backup::new(source, &mut copy)?, -1)?;
    // A reader of a database in WAL mode must be able to create files beside it.
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    Ok(copy)
}

/// Whether [`copy_pages`] failed at its target. The source is only read.
pub(crate) fn is_write_error(error: &rusqlite::Error) -> bool {
    let codes = [
        ffi::SQLITE_IOERR_WRITE,
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_IOERR_TRUNCATE,
        ffi::SQLITE_IOERR_DELETE,
    ];
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DiskFull | ErrorCode::ReadOnly | ErrorCode::CannotOpen))
        || error.sqlite_error().is_some_and(|error| codes.contains(&error.extended_code))
}

/// Replaces the content of `target` with that of `source` in one transaction of `target`, so that
/// every reader sees the old content or the new. Pages are copied, and no constraint is checked.
///
/// `prepare` runs when `target` is locked for writing. It may still change `source`.
pub(crate) fn replace_content(
    source: &Connection,
    target: &mut Connection,
    prepare: impl FnOnce() -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let path = PathBuf::from(target.path().unwrap_or_default());
    let backup = Backup::new(source, target)?;
    // The first step takes the write lock. It is held until the last page is copied.
    step(&backup, 1)?;
    wal::make_durable(&path)?;
    prepare()?;
    step(&backup, -1).inspect_err(wal::end_if_not_synced)
}

/// Copies `pages` pages; a negative number means all that remain. The busy handler does not wait
/// for every lock that a step needs.
fn step(backup: &Backup<'_, '_>, pages: c_int) -> rusqlite::Result<()> {
    let begun = Instant::now();
    while !matches!(backup.step(pages)?, StepResult::Done | StepResult::More) {
        if begun.elapsed() > LOCK_WAIT {
            let busy = ffi::Error::new(ffi::SQLITE_BUSY);
            let cause = "the database stayed locked".to_owned();
            return Err(rusqlite::Error::SqliteFailure(busy, Some(cause)));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Device and inode. An open connection goes on with a file that was removed or replaced; two
/// equal identities show that it was not.
pub(crate) type FileIdentity = (u64, u64);

/// Runs a statement that returns nothing, prepared once for each connection.
pub(crate) fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// RFC 3339 in UTC and whole seconds, whose order as text is that of time.
impl ToSql for Timestamp {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.to_string().into())
    }
}

impl FromSql for Timestamp {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Timestamp> {
        value.as_str()?.parse().map_err(FromSqlError::other)
    }
}

/// How long a connection waits for a lock that another one holds (contract section 6).
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(5);

/// How long a pool waits for a lock when it opens a connection, before it tries again. One thread
/// opens the connections of all tenants.
const OPENER_WAIT: Duration = Duration::from_millis(50);

/// SQLite truncates a longer WAL to this many bytes when it starts the WAL again.
const WAL_LIMIT: i64 = 32 << 20;

/// The first bytes of a `-shm` file. They are there while a process has the database open.
const SHARED_MEMORY: u64 = 32 << 10;

/// The most reading connections of one tenant: as many as it may run jobs with the most workers, so
/// that no read waits for one. They are opened on demand.
const MAX_READERS: u32 = 64;

/// Prepared statements that each connection keeps.
const STATEMENTS: usize = 64;

/// How long a read of a request may run (contract section 4).
const READ_TIME: Duration = Duration::from_secs(5);

/// SQLite's instructions between two looks at a deadline: well under a millisecond.
const INSTRUCTIONS: i32 = 4_000;

/// When the statements of a request are to end.
#[derive(Clone, Debug)]
pub struct Deadline {
    at: Instant,
    abandoned: Arc<AtomicBool>,
}

impl Deadline {
    /// Of a read: five seconds from now, or as soon as `abandoned` is true, because the client has
    /// gone.
    pub fn new(abandoned: &Arc<AtomicBool>) -> Deadline {
        Deadline { abandoned: Arc::clone(abandoned), ..Deadline::after(READ_TIME) }
    }

    pub(super) fn after(time: Duration) -> Deadline {
        Deadline { at: Instant::now() + time, abandoned: Arc::default() }
    }

    /// Interrupts the connection's statements at the deadline, as long as the result lives.
    pub(super) fn limit<'c>(&self, connection: &'c Connection) -> rusqlite::Result<Limited<'c>> {
        let Deadline { at, abandoned } = self.clone();
        let is_over = move || Instant::now() >= at || abandoned.load(Ordering::Relaxed);
        connection.progress_handler(INSTRUCTIONS, Some(is_over))?;
        Ok(Limited(connection))
    }
}

/// A connection with a deadline.
pub(super) struct Limited<'c>(&'c Connection);

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        // Without a handler nothing is left to fail.
        let _ = self.0.progress_handler(0, None::<fn() -> bool>);
    }
}

impl Role {
    const fn cache_kibibytes(self) -> i32 {
        match self {
            Role::Reader => 1 << 10,
            Role::Writer => 4 << 10,
            Role::Bulk => 64 << 10,
        }
    }
}

impl Database {
    /// Opens an existing database of the program's schema version.
    pub(crate) fn open(&self, role: Role) -> Result<Connection> {
        let connection = self.connect(role)?;
        self.require_current(&connection)?;
        Ok(connection)
    }

    /// Opens an existing database, whatever its version.
    pub(super) fn connect(&self, role: Role) -> Result<Connection> {
        self.require_file()?;
        let has_shared_memory =
            fs::metadata(self.companion("-shm")).is_ok_and(|found| found.len() >= SHARED_MEMORY);
        if !has_shared_memory && files::is_disk_full(&self.path) {
            // SQLite maps the `-shm` file into memory. If the disk has no block for a page of the
            // map, the system ends the process (SIGBUS).
            return Err(StoreError { code: StoreCode::DiskFull, ..self.unusable(DISK_IS_FULL) });
        }
        let connection = raw(&self.path).map_err(|error| self.error(error))?;
        configure(&connection, role, LOCK_WAIT)
            .and_then(|()| self.limit_wal(&connection))
            .inspect_err(wal::end_if_not_synced)
            .map_err(|error| self.error(error))?;
        Ok(connection)
    }

    /// Refuses a database that is missing. SQLite would follow a link, and keep the WAL beside the
    /// file to which it leads, where no other function looks for it.
    pub(crate) fn require_file(&self) -> Result<()> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if !found.is_file() => Err(self.unusable("it is no regular file")),
            // SQLite would take it for a new database, and begin one.
            Ok(found) if found.len() == 0 => Err(self.damaged("the file is empty")),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.missing()),
            Err(error) => Err(self.unusable(error)),
        }
    }

    /// Bounds what SQLite keeps of the WAL's file when it starts the WAL again. A replicated
    /// database keeps nothing: a frame that is left there would tell the replicator, when it runs
    /// again, that it has missed nothing.
    pub(super) fn limit_wal(&self, connection: &Connection) -> rusqlite::Result<()> {
        let limit = if self.is_replicated() { 0 } else { WAL_LIMIT };
        connection.pragma_update(None, "journal_size_limit", limit)
    }

    /// A pool of connections for reading, which the threads of `opener` open. [`Database::open`]
    /// has accepted the file before.
    pub(crate) fn readers(
        &self,
        opener: Arc<ScheduledThreadPool>,
    ) -> Pool<SqliteConnectionManager> {
        let manager = SqliteConnectionManager::file(&self.path).with_flags(FLAGS);
        let manager = manager.with_init(|connection| {
            configure(connection, Role::Reader, OPENER_WAIT)?;
            connection.busy_timeout(LOCK_WAIT)?;
            connection.pragma_update(None, "query_only", true)
        });
        Pool::builder()
            .max_size(MAX_READERS)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .connection_timeout(LOCK_WAIT)
            .thread_pool(opener)
            .build_unchecked(manager)
    }
}

/// The bytes of the disk for [`Database::reserve_wal`]: some ten commits of the registry.
const WAL_RESERVE: u64 = 256 << 10;

/// The bytes of a frame of the WAL: a page with its header.
const FRAME: u64 = 24 + (4 << 10);

impl Database {
    /// Copies the WAL into the database while others read and write. With `truncate`, it also waits
    /// for them and empties the WAL file, if no other connection uses it. Returns how many bytes of
    /// the WAL remain in use. Ends the process if the disk refuses to sync.
    pub(crate) fn checkpoint(
        &self,
        connection: &Connection,
        truncate: bool,
    ) -> rusqlite::Result<u64> {
        self.limit_wal(connection)?;
        let mode = if truncate { "TRUNCATE" } else { "PASSIVE" };
        self.run_checkpoint(connection, mode).inspect_err(wal::end_if_not_synced)
    }

    /// How many bytes of the WAL are in use.
    pub(crate) fn used_wal(&self, connection: &Connection) -> rusqlite::Result<u64> {
        self.run_checkpoint(connection, "NOOP")
    }

    fn run_checkpoint(&self, connection: &Connection, mode: &str) -> rusqlite::Result<u64> {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        let frames: i64 = connection.prepare_cached(&sql)?.query_row([], |row| row.get(1))?;
        // If another process makes a checkpoint at this moment, SQLite says -1.
        let bytes = u64::try_from(frames).map(|frames| frames.saturating_mul(FRAME));
        Ok(bytes.unwrap_or_else(|_| self.wal_length()))
    }

    /// Gives the WAL blocks of the disk before it needs them, as far as the file system can. So a
    /// full disk still takes some commits.
    pub(crate) fn reserve_wal(&self) {
        if let Ok(wal) = OpenOptions::new().write(true).open(self.companion("-wal")) {
            let _ = fallocate(&wal, FallocateFlags::KEEP_SIZE, 0, WAL_RESERVE);
        }
    }

    /// The length of the file without its WAL.
    pub(crate) fn file_length(&self) -> u64 {
        fs::metadata(self.path()).map_or(0, |found| found.len())
    }

    /// The length of the WAL's file. A part of it may be free for later changes.
    pub(crate) fn wal_length(&self) -> u64 {
        fs::metadata(self.companion("-wal")).map_or(0, |found| found.len())
    }

    /// Makes a WAL durable that an earlier process has left, and copies it into the database. No
    /// other process may use the database.
    ///
    /// If the WAL cannot be read or written, the result is an error, because nothing may be
    /// committed behind it. If its sync fails, the process ends. If only the copy fails, because the
    /// database is damaged for example, the WAL stays where it is and loses nothing. The next open
    /// of the database reports the cause.
    pub(crate) fn recover(&self) -> Result<()> {
        let wal = self.companion("-wal");
        if !wal::rewrite_in_place(&wal).map_err(|error| self.unusable(error))? {
            return Ok(());
        }
        let copied = self.connect(Role::Writer).and_then(|connection| {
            self.checkpoint(&connection, true).map(drop).map_err(|error| self.error(error))
        });
        if let Err(error) = copied {
            tracing::warn!(%error, "a WAL cannot be copied into its database");
        }
        Ok(())
    }
}

/// A connection is never used by two threads at the same time, so SQLite needs no mutex for it.
const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

#[expect(clippy::disallowed_methods, reason = "every connection is opened here")]
fn raw(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(path, FLAGS)
}

/// The time-out comes first: the change to WAL mode may have to wait for a lock.
fn configure(connection: &Connection, role: Role, lock_wait: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(lock_wait)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise SQLite prepares a statement again for every value of `LIMIT ?`.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // SQLite ignores a failed sync of the checkpoints that it makes by itself. The server makes
    // them (wal.rs); a command leaves the WAL as it is.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -role.cache_kibibytes())?;
    if role == Role::Writer {
        // The journals of savepoints: a mutation changes a page of each index.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
    }
    add_functions(connection)
}

/// The functions of statements:
///
/// - `contains(text, word, …)`: whether a text has all words. SQLite's own `instr` takes length ×
///   length on hostile text.
/// - `search_text(text, …)`: the text in which a search looks.
/// - `trimmed(text)`: a text without white space (Unicode) at both ends.
fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("contains", -1, flags, |arguments| {
        let text = arguments.get_raw(0).as_bytes()?;
        for word in 1..arguments.len() {
            if memmem::find(text, arguments.get_raw(word).as_bytes()?).is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    connection.create_scalar_function("search_text", -1, flags, |arguments| {
        let mut search = SearchText::default();
        for text in 0..arguments.len() {
            if let Some(text) = arguments.get_raw(text).as_str_or_null()? {
                search.add(text);
            }
        }
        Ok(search.0)
    })?;
    connection.create_scalar_function("trimmed", 1, flags, |arguments| {
        Ok(arguments.get::<Option<String>>(0)?.map(|text| text.trim().to_owned()))
    })
}

/// The text in which `q` searches: folded texts, one a line. A word of `q` has no white space, and
/// so stays within one.
#[derive(Default)]
pub(crate) struct SearchText(pub(crate) String);

impl SearchText {
    pub(crate) fn add(&mut self, text: &str) {
        self.0.push_str(&fold(text));
        self.0.push('\n');
    }
}

/// Unicode's full case folding: SQLite's own folds letter by letter, so that `strasse` would miss
/// `Straße`.
pub(crate) fn fold(text: &str) -> String {
    unicase::UniCase::unicode(text).to_folded_case()
}

/// Opens a database without WAL mode and without a check of its schema: for copies.
pub(crate) fn open_plain(path: &Path) -> rusqlite::Result<Connection> {
    let connection = raw(path)?;
    connection.busy_timeout(LOCK_WAIT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    add_functions(&connection)?;
    Ok(connection)
}

/// The schema version of a database, 0 of an empty one.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// A busy handler that waits for about `MILLISECONDS`. SQLite's own wait between two tries grows to
/// 100 ms, in which a busy server always comes first.
pub(crate) fn wait_for<const MILLISECONDS: i32>(tries: i32) -> bool {
    thread::sleep(Duration::from_millis(1));
    tries < MILLISECONDS
}

#[cfg(test)]
mod tests;
