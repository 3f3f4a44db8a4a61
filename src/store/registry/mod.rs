//! The registry: tenants, their keys, the panel's sessions and the events of keys.
//!
//! Every change is one transaction of the only writing connection, and succeeds once the copy has it, if there is one. Every read
//! queries the file, so a change by another process takes effect at the next read.

mod authentication;
mod events;
mod expiry;
mod import_tenants;
mod interrupted;
mod key_replacement;
mod key_row;
mod keys;
mod sessions;
mod tenants;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use r2d2::ManageConnection as _;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, Transaction, TransactionBehavior};

pub use authentication::Principal;
pub use events::{Action, Actor, EventKey, KeyEvent};
pub use expiry::Expiry;
pub(in crate::store) use import_tenants::TenantImport;
pub use interrupted::DeletedTenant;
pub use key_replacement::Replacement;
pub use key_row::{KeyRow, KeyState};
pub use keys::{MAX_RATE_LIMIT, NewKey, check_key_name};
pub use sessions::SESSION_SECONDS;
pub use tenants::{Inactive, TenantRow, TenantState, check_tenant_name};

use super::connection::{self, MOST_LOG_FRAMES, OpenError};
use super::error::DatabaseError;
use super::file_identity::FileIdentity;
use super::log_health::LogHealth;
use super::log_tail::{self, LogTail, TailError};
use super::private_folders::create_data_dir;
use super::schema::{self, Migration, Schema};
use super::tenants as tenant_files;
use crate::copy::{ConfirmedCopy, CopyError};
use crate::files;
use crate::semaphore::Semaphore;

/// The schema of the registry.
pub static SCHEMA: Schema = Schema {
    name: "registry",
    version: 2,
    sql: include_str!("schema.sql"),
    migrations: &[Migration::new(include_str!("../migrations/registry/2.sql"))],
};

/// The registry's file name in the data directory.
pub const FILE: &str = "registry.db";

/// The most changes that wait for the copy at the same time. Others need threads meanwhile.
const MAX_CONFIRMING: usize = 8;

/// How long a change waits for others to be confirmed before the copy counts as not responding.
const STALLED: Duration = Duration::from_millis(250);

/// Prepares the registry of a data directory for changes that `copy` confirms. This process must not have it open.
///
/// # Errors
///
/// [`OpenError::Unusable`] if another process must be ended first.
pub fn recover_log(data_dir: &Path, copy: &ConfirmedCopy) -> Result<(), OpenError> {
    log_tail::recover(&data_dir.join(FILE), copy)
}

/// The open registry of a data directory.
pub struct Registry {
    data_dir: PathBuf,
    /// An open connection still works after its file was removed. The identity shows that.
    identity: FileIdentity,
    opener: SqliteConnectionManager,
    /// Idle connections for reading. There are at most as many as threads that read at the same time; a read takes
    /// microseconds. An r2d2 pool would open connections on threads of its own and retry if the file is missing.
    idle: Mutex<Vec<Connection>>,
    /// Fields are dropped in the order of their declaration, so the writer closes last and removes the write-ahead log. `None` only
    /// after a failed sync, until the registry can be opened again.
    writer: Mutex<Option<Connection>>,
    /// What failed syncs have left undone.
    log: LogHealth,
    /// Held for reading while a connection reads, and for writing while all connections are closed.
    in_use: RwLock<()>,
    /// Last uses of keys that are not written yet: key id → Unix seconds, rounded down to the minute.
    uses: Mutex<HashMap<i64, i64>>,
    /// `None` if changes succeed without a copy.
    copy: Option<Arc<ConfirmedCopy>>,
    confirming: Semaphore,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

/// Why an operation of the registry failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A tenant of this name exists.
    #[error("the tenant {0} exists already")]
    TenantExists(String),
    /// There is no tenant of this name or id.
    #[error("there is no tenant {0}")]
    NoTenant(String),
    /// The tenant has no key of this id.
    #[error("the tenant has no key {0}")]
    NoKey(i64),
    /// A revoked or expired key cannot be replaced.
    #[error("the key {id} is {state} and cannot be replaced; create a new key")]
    NotReplaceable {
        /// The key's id.
        id: i64,
        /// Its state: revoked or expired.
        state: &'static str,
    },
    /// A value breaks a rule. The text says which rule.
    #[error("{0}")]
    Invalid(&'static str),
    /// The registry's file was removed or replaced after it was opened.
    #[error("the registry's file: {0}")]
    Replaced(String),
    /// A tenant's file cannot be created or removed.
    #[error("the tenant's file cannot be made or removed: {0}")]
    File(String),
    /// The copy does not confirm changes, or has not confirmed this one.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The operating system returned no random bytes.
    #[error(transparent)]
    Randomness(#[from] crate::secret::RandomnessError),
    /// The tenant is deleted, but a file of it remains.
    #[error(
        "the tenant {name} is deleted, but its file remains ({cause}); the same command, or the next start, removes it"
    )]
    FileRemains {
        /// The tenant's name.
        name: String,
        /// The error of the file system.
        cause: String,
    },
    /// The file cannot be opened or repaired after a failed sync.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A statement failed.
    #[error("the registry cannot be used: {0}")]
    Database(#[from] DatabaseError),
}

impl From<rusqlite::Error> for RegistryError {
    fn from(error: rusqlite::Error) -> RegistryError {
        RegistryError::Database(error.into())
    }
}

impl Registry {
    /// Opens the registry of an existing data directory.
    ///
    /// # Errors
    ///
    /// [`OpenError::Missing`] if the directory has no registry, or one that was never finished; the other variants if the file
    /// cannot be used.
    pub fn open(data_dir: &Path) -> Result<Registry, OpenError> {
        let path = data_dir.join(FILE);
        let writer = match schema::open(&path, &SCHEMA) {
            Err(OpenError::Damaged { .. }) if is_unfinished(data_dir) => return Err(OpenError::Missing(path)),
            opened => opened?,
        };
        Registry::with_writer(data_dir, &path, writer)
    }

    /// Opens the registry of a data directory. Creates the directory and the registry, private to the owner, if they do not
    /// exist. A registry that was never finished is replaced.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the directory cannot be created or the file cannot be used.
    pub fn create(data_dir: &Path) -> Result<Registry, OpenError> {
        create_data_dir(data_dir)?;
        let writer = create_file(data_dir)?;
        Registry::with_writer(data_dir, &data_dir.join(FILE), writer)
    }

    fn with_writer(data_dir: &Path, path: &Path, writer: Connection) -> Result<Registry, OpenError> {
        connection::count_wal_frames(&writer);
        Ok(Registry {
            data_dir: data_dir.to_owned(),
            identity: FileIdentity::of_path(path).map_err(|error| connection::unusable(path, error))?,
            opener: connection::reader_manager(path),
            idle: Mutex::default(),
            writer: Mutex::new(Some(writer)),
            log: LogHealth::default(),
            in_use: RwLock::default(),
            uses: Mutex::default(),
            copy: None,
            confirming: Semaphore::new(MAX_CONFIRMING),
        })
    }

    /// The same, but changes succeed only once `copy` has them. The caller has called [`recover_log`] before it opened the registry.
    #[must_use]
    pub fn confirmed_by(mut self, copy: Option<Arc<ConfirmedCopy>>) -> Registry {
        self.copy = copy;
        self
    }

    /// Checks that the copy, if there is one, confirms changes.
    ///
    /// # Errors
    ///
    /// [`CopyError::Unavailable`].
    pub fn check_copy(&self) -> Result<(), CopyError> {
        self.copy.as_ref().map_or(Ok(()), |copy| copy.check(&self.data_dir.join(FILE)))
    }

    /// Returns the data directory that the registry belongs to.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Returns the path of the file of the tenant `id`.
    fn tenant_file(&self, id: i64) -> PathBuf {
        tenant_files::file(&tenant_files::folder(&self.data_dir), id)
    }

    /// Checks that the registry can be read and is still the file in the data directory.
    ///
    /// # Errors
    ///
    /// A text for the operator.
    pub fn ready(&self) -> Result<(), String> {
        self.check_identity().map_err(|error| error.to_string())?;
        self.read(|connection| connection.prepare_cached("SELECT count(*) FROM tenants")?.query_row([], |_| Ok(())))
            .map_err(|error| error.to_string())
    }

    /// A change to a file that was removed or replaced would be lost.
    fn check_identity(&self) -> Result<(), RegistryError> {
        match FileIdentity::of_path(&self.data_dir.join(FILE)) {
            Ok(found) if found == self.identity => Ok(()),
            Ok(_) => Err(RegistryError::Replaced("it was replaced".to_owned())),
            Err(error) => Err(RegistryError::Replaced(error.to_string())),
        }
    }

    /// The server recovers the log when it starts. It cannot while it has the registry open.
    fn check_log(&self) -> Result<(), RegistryError> {
        let Some(copy) = &self.copy else { return Ok(()) };
        LogTail::new(self.file()).check(copy).map_err(|error| match error {
            TailError::Unreadable(error) => error.into(),
            TailError::Unfinished => CopyError::Unavailable(Some(format!("{error}; restart the server"))).into(),
            TailError::Unread(_) => CopyError::Unavailable(Some(error.to_string())).into(),
        })
    }

    /// Runs `query` on a connection for reading.
    fn read<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, RegistryError> {
        if self.log.needs_replay() {
            self.prepare_writer(&mut self.writer.lock())?;
        }
        let _in_use = self.in_use.read();
        let idle = self.idle.lock().pop();
        let reader = idle.map_or_else(|| self.opener.connect(), Ok)?;
        let result = query(&reader)?;
        // A connection whose query failed is closed. The next read opens a new one.
        self.idle.lock().push(reader);
        Ok(result)
    }

    /// Runs `work` in a write transaction, and waits until the copy has the change. An error of `work` and a panic roll it back.
    fn change<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, RegistryError>) -> Result<T, RegistryError> {
        self.confirmed(|| self.change_unconfirmed(work), |_| None)
    }

    /// Runs `change`, and waits until the copy has the registry and the other file that `file` names.
    fn confirmed<T>(
        &self,
        change: impl FnOnce() -> Result<T, RegistryError>,
        file: impl FnOnce(&T) -> Option<PathBuf>,
    ) -> Result<T, RegistryError> {
        let Some(copy) = &self.copy else { return change() };
        let registry = self.data_dir.join(FILE);
        copy.admit(&registry)?;
        let _permit = self.confirming.acquire(STALLED).ok_or(CopyError::Unavailable(None))?;
        let result = change()?;
        let committed = Instant::now();
        file(&result).map_or(Ok(()), |file| copy.confirm(&file, committed))?;
        copy.confirm(&registry, committed)?;
        Ok(result)
    }

    /// Runs `work` in a write transaction, whether or not the copy has it. An error and a panic roll it back.
    fn change_unconfirmed<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let mut slot = self.writer.lock();
        let connection = self.prepare_writer(&mut slot)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.check_identity()?;
        self.check_log()?;
        let result = work(&transaction)?;
        transaction.commit().inspect_err(|error| self.log.commit_failed(&self.file(), error))?;
        let frames = connection::take_wal_frames();
        if frames >= CHECKPOINT_FRAMES {
            self.checkpoint(connection, frames);
        }
        Ok(result)
    }

    /// Copies a write-ahead log of `frames` frames into the file, unless Litestream does that. If the disk fails, the next use of the
    /// registry closes it and replays the log.
    fn checkpoint(&self, connection: &mut Connection, frames: u32) {
        let is_copied = self.copy.is_some() || connection::is_copied(&self.file());
        if is_copied && (frames < MOST_LOG_FRAMES || self.copy.as_ref().is_some_and(|copy| copy.may_run())) {
            return;
        }
        let checkpoint = if is_copied { connection::truncate_log } else { connection::checkpoint };
        // A checkpoint that a reader prevents is done at the next commit.
        if let Err(error) = connection::without_lock_wait(connection, |connection| checkpoint(connection))
            && self.log.checkpoint_failed(&error)
        {
            tracing::error!(%error, "the registry's write-ahead log cannot be copied into its file");
        }
    }

    /// Returns the writing connection when nothing is left undone after a failed sync.
    fn prepare_writer<'a>(&self, slot: &'a mut Option<Connection>) -> Result<&'a mut Connection, RegistryError> {
        if self.log.needs_replay() {
            let _unused = self.in_use.write();
            let closed = std::mem::take(&mut *self.idle.lock()).into_iter().chain(slot.take());
            closed.for_each(|connection| self.log.before_close(&connection));
        }
        self.log.ensure_discarded(&self.file())?;
        let connection = match slot.take() {
            Some(connection) => connection,
            None => self.reopen()?,
        };
        Ok(slot.insert(connection))
    }

    /// Opens the registry after all its connections were closed.
    fn reopen(&self) -> Result<Connection, RegistryError> {
        let path = self.file();
        let connection = schema::open(&path, &SCHEMA)?;
        self.log.check_replayed(&connection, &path)?;
        connection::count_wal_frames(&connection);
        Ok(connection)
    }

    fn file(&self) -> PathBuf {
        self.data_dir.join(FILE)
    }
}

impl Drop for Registry {
    /// A log that has to be replayed is left to the next process.
    fn drop(&mut self) {
        let writer = self.writer.get_mut().iter();
        self.idle.get_mut().iter().chain(writer).for_each(|connection| self.log.before_close(connection));
    }
}

/// The frames in the write-ahead log from which a commit copies it into the file: as many as for SQLite's own automatic checkpoint,
/// which ignores failures.
const CHECKPOINT_FRAMES: u32 = 1_000;

/// Opens the file of the registry. Creates it if it does not exist or was never finished.
///
/// # Errors
///
/// [`OpenError`].
pub(in crate::store) fn create_file(data_dir: &Path) -> Result<Connection, OpenError> {
    let path = data_dir.join(FILE);
    match schema::open(&path, &SCHEMA) {
        Err(OpenError::Missing(_)) => (),
        Err(OpenError::Damaged { .. }) if is_unfinished(data_dir) => (),
        opened => return opened,
    }
    // A killed process may have created the directory without syncing its name.
    match files::sync_parent(data_dir) {
        // Whoever may list the folder above has created the directory.
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(connection::unusable(data_dir, error)),
        _ => schema::create(&path, &SCHEMA),
    }
}

/// Returns whether the first start was interrupted: the registry has no table, and there is no tenant's file. Beside tenants'
/// files, a registry without a table is damaged.
pub(in crate::store) fn is_unfinished(data_dir: &Path) -> bool {
    let has_files = tenant_files::file_ids(data_dir).map_or(true, |ids| !ids.is_empty());
    !has_files && schema::is_unfinished(&data_dir.join(FILE))
}

#[cfg(test)]
mod tests;
