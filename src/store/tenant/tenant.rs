//! One tenant's open file.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use r2d2::Pool;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::ErrorCode;

use super::writer::{Demand, Mutation, Writer, tell};
use super::{Health, Shared, Slot};
use crate::store::database::{Database, FileIdentity, Role};
use crate::store::error::{DatabaseError, MutationError, OpenError, StoreError};
use crate::store::records::{Reading, Writing};

/// The most reading connections of one tenant.
const MAX_READERS: u32 = 4;

/// How long a read of a request may run (contract section 4).
const READ_TIME: Duration = Duration::from_secs(5);

/// SQLite's instructions between two looks at the deadline: well under a millisecond.
const INSTRUCTIONS: i32 = 4_000;

/// When a read is to end.
#[derive(Clone, Debug)]
pub struct Deadline {
    at: Instant,
    is_abandoned: Arc<AtomicBool>,
}

impl Deadline {
    /// Five seconds from now, or as soon as `is_abandoned` is true: the client has gone.
    pub fn new(is_abandoned: Arc<AtomicBool>) -> Deadline {
        Deadline { at: Instant::now() + READ_TIME, is_abandoned }
    }

    /// Ends at `at`, for tests.
    #[cfg(test)]
    pub(super) fn at(at: Instant) -> Deadline {
        Deadline { at, is_abandoned: Arc::default() }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.at || self.is_abandoned.load(Ordering::Relaxed)
    }
}

/// One tenant's open file.
pub struct Tenant {
    database: Database,
    identity: FileIdentity,
    readers: Pool<SqliteConnectionManager>,
    /// `None` once it was stopped.
    writer: Mutex<Option<Writer>>,
    reading: Arc<Health>,
}

impl Tenant {
    pub(super) fn open(
        database: Database,
        shared: Arc<Shared>,
        slot: &Slot,
    ) -> Result<Tenant, OpenError> {
        // Opened here, not in the pool: the pool would try again in the background and keep the
        // caller waiting.
        drop(database.open(Role::Reader)?);
        let missing = || OpenError::Missing(database.path().to_owned());
        let identity = database.identity().ok_or_else(missing)?;
        let readers = database.readers(MAX_READERS, Arc::clone(&shared.opener));
        let reading = Arc::clone(&slot.reading);
        let writer = Writer::start(database.clone(), shared, Arc::clone(&slot.writing))
            .map_err(|error| OpenError::unusable(database.path(), error))?;
        Ok(Tenant { database, identity, readers, writer: Mutex::new(Some(writer)), reading })
    }

    /// Whether the path still names the file that is open. An open connection goes on with a file
    /// that was removed or replaced.
    pub(super) fn is_current(&self) -> bool {
        self.database.identity() == Some(self.identity)
    }

    /// Runs `work` on one moment of the file, until the deadline.
    pub fn read<T>(
        &self,
        deadline: Deadline,
        work: impl FnOnce(&Reading<'_>) -> Result<T, DatabaseError>,
    ) -> Result<T, StoreError> {
        let fails = |error: &dyn Display| self.reading.fails(error);
        let connection = self.readers.get().map_err(|error| fails(&error))?;
        let is_over = move || deadline.is_over();
        let outcome = connection
            .progress_handler(INSTRUCTIONS, Some(is_over))
            .map_err(DatabaseError)
            .and_then(|()| Reading::of_one_moment(&connection, work));
        // Without a handler nothing is left to fail.
        let _ = connection.progress_handler(0, None::<fn() -> bool>);
        match outcome {
            Ok(value) => {
                self.reading.works();
                Ok(value)
            }
            Err(DatabaseError(error)) => Err(match error.sqlite_error_code() {
                Some(ErrorCode::OperationInterrupted) => StoreError::TimedOut,
                _ => fails(&error),
            }),
        }
    }

    /// Runs `work` in a transaction of the tenant's one writer and passes the outcome to `done`, on
    /// another thread: what `work` returned once it is on disk, what it rejected, or why nothing
    /// was changed.
    pub fn mutate<T, E>(
        &self,
        demand: Demand,
        work: impl FnOnce(&Writing<'_>) -> Result<T, MutationError<E>> + Send + 'static,
        done: impl FnOnce(Result<Result<T, E>, StoreError>) + Send + 'static,
    ) where
        T: Send + 'static,
        E: Send + 'static,
    {
        let mutation = Mutation::new(demand, work, done);
        match &*self.writer.lock() {
            Some(writer) => writer.submit(mutation),
            None => tell(mutation.done, Err(StoreError::Unavailable)),
        }
    }

    /// Ends the writer once it has done what is queued.
    pub(super) fn stop(&self) -> Option<JoinHandle<()>> {
        self.writer.lock().take().map(|writer| writer.thread)
    }
}
