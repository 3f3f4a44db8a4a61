//! The tenants' files: opened on demand, bounded in number.
//!
//! | file | its concern |
//! |---|---|
//! | `writer` | the changes of a request, and the thread that makes them: group commit, upkeep |
//! | `file` | a file as commands use it |

mod file;
mod writer;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use r2d2::PooledConnection;
use r2d2_sqlite::SqliteConnectionManager;
use scheduled_thread_pool::ScheduledThreadPool;

pub use file::{FileTransaction, TenantFile};
pub use writer::{IdempotencyKey, Mutation, Outcome, StoredResponse};

use super::data_dir::tenant_database;
use super::database::{Database, Deadline, FileIdentity, LOCK_WAIT, Role};
use super::error::{Result, StoreCode, StoreError};
use super::records::Reading;
use super::registry::Registry;
use crate::config::TenantLimits;
use crate::model::{PastMoment, TenantId, Version};
use writer::{LastFailure, OpenFile, Writer, log_failure, send};

/// How long requests rely on a look at the path of the file.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long a file that could not be opened is not tried again: a locked one takes 5 s each time.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The most tenants that are open at once. Each has three descriptors or more, and up to 3 MiB.
const MAX_OPEN: NonZeroUsize = NonZeroUsize::MIN.saturating_add(511);

/// How long a file stays open without being used.
const MAX_IDLE: Duration = Duration::from_mins(2);

/// All tenants' files.
pub struct Tenants {
    registry: Arc<Registry>,
    /// The least recently used is closed for the next.
    slots: Mutex<LruCache<TenantId, Arc<Slot>>>,
    limits: TenantLimits,
    /// Opens connections for all pools: a pool would start three threads of its own. Closes files,
    /// so that no request waits while another tenant is closed.
    opener: Arc<ScheduledThreadPool>,
    /// Each open file and each writer holds a clone, also of a tenant that was closed before.
    is_open: Arc<()>,
}

/// One tenant's entry. It outlives the open file.
#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    failure: Arc<LastFailure>,
}

#[derive(Default)]
enum State {
    #[default]
    Closed,
    /// With its last use, at which its path was looked up.
    Open(Arc<Tenant>, Instant),
    Failed(Instant, StoreError),
}

impl Tenants {
    pub fn new(registry: Arc<Registry>, limits: TenantLimits) -> Tenants {
        let opener = ScheduledThreadPool::builder().num_threads(2).thread_name_pattern("opener");
        Tenants {
            registry,
            slots: Mutex::new(LruCache::new(MAX_OPEN)),
            limits,
            opener: Arc::new(opener.build()),
            is_open: Arc::default(),
        }
    }

    /// The tenant's open file, opened if necessary. A look at its path is good for a moment: a read
    /// may still use a file that has just been replaced. A write looks again, in the writer.
    pub fn open(&self, id: TenantId) -> Result<Arc<Tenant>> {
        let slot = self.slot(id);
        let state = slot.state.try_lock_for(LOCK_WAIT);
        let mut state =
            state.ok_or_else(|| StoreError::new(StoreCode::Busy, "it is being opened"))?;
        match &mut *state {
            State::Open(tenant, looked) if looked.elapsed() < LOOK_AGAIN => {
                return Ok(Arc::clone(tenant));
            }
            State::Open(tenant, looked) if tenant.is_current() => {
                *looked = Instant::now();
                return Ok(Arc::clone(tenant));
            }
            State::Failed(at, error) if at.elapsed() < RETRY_AFTER => return Err(error.clone()),
            State::Open(..) | State::Failed(..) | State::Closed => (),
        }
        // Closed first, if the path names another file now.
        *state = State::Closed;
        let database = tenant_database(self.registry.data_dir(), id);
        match self.open_file(id, database.clone(), &slot) {
            Ok(tenant) => {
                let tenant = Arc::new(tenant);
                *state = State::Open(Arc::clone(&tenant), Instant::now());
                *slot.failure.lock() = None;
                Ok(tenant)
            }
            Err(error) => {
                *state = State::Failed(Instant::now(), error.clone());
                Err(log_failure(&slot.failure, &database, error))
            }
        }
    }

    fn open_file(&self, id: TenantId, database: Database, slot: &Slot) -> Result<Tenant> {
        // Opened here, not in the pool: the pool would try again in the background and keep the
        // caller waiting.
        drop(database.open(Role::Reader)?);
        Ok(Tenant {
            identity: database.identity()?,
            file: OpenFile {
                tenant: id,
                registry: Arc::clone(&self.registry),
                readers: database.readers(Arc::clone(&self.opener)),
                database,
                limits: self.limits,
                failure: Arc::clone(&slot.failure),
                _is_open: Arc::clone(&self.is_open),
            },
            writer: Mutex::default(),
        })
    }

    fn slot(&self, id: TenantId) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(&id) {
            return Arc::clone(slot);
        }
        let slot = Arc::new(Slot::default());
        let evicted = slots.push(id, Arc::clone(&slot));
        drop(slots);
        // Its running requests finish first.
        self.opener.execute(|| drop(evicted));
        slot
    }

    /// Closes files that nobody has used for a while, which ends their writers, and files of deleted
    /// tenants, which take up space until then.
    pub fn close_unused(&self) {
        for slot in self.slots() {
            let Some(mut state) = slot.state.try_lock() else { continue };
            if let State::Open(tenant, used) = &*state
                && (used.elapsed() >= MAX_IDLE || !tenant.is_current())
            {
                *state = State::Closed;
            }
        }
    }

    fn slots(&self) -> Vec<Arc<Slot>> {
        self.slots.lock().iter().map(|(_, slot)| Arc::clone(slot)).collect()
    }

    /// Closes all files, with empty WALs. Waits for all writers, also of files that were closed
    /// before, but no longer than `wait`. The end of the process rolls back what still runs then.
    pub fn close(&self, wait: Duration) {
        let until = Instant::now() + wait;
        for slot in self.slots() {
            // A request that hangs may hold the lock.
            if let Some(mut state) = slot.state.try_lock_until(until) {
                *state = State::Closed;
            }
        }
        while Arc::strong_count(&self.is_open) > 1 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// One tenant's open file.
pub struct Tenant {
    file: OpenFile,
    identity: FileIdentity,
    /// A mutation starts it: many tenants are only read.
    writer: Mutex<Option<Writer>>,
}

impl Tenant {
    /// Whether the path still names the file that is open. An open connection goes on with a file
    /// that was removed or replaced.
    fn is_current(&self) -> bool {
        self.file.database.identity().is_ok_and(|found| found == self.identity)
    }

    /// Runs `work` on one moment of the file, until the deadline.
    pub fn read<T>(
        &self,
        deadline: Deadline,
        work: impl FnOnce(&Reading<'_>) -> Result<T>,
    ) -> Result<T> {
        let connection = self.reader()?;
        let limited = deadline.limit(&connection).map_err(StoreError::from);
        let found = limited.and_then(|_limited| Reading::in_snapshot(&connection, work));
        found.map_err(|error| self.read_failed(error))
    }

    /// Runs `work` on the past, with the last entry that belongs to the moment.
    pub fn read_past<T>(
        &self,
        deadline: Deadline,
        moment: PastMoment,
        work: impl FnOnce(&Reading<'_>, Version) -> Result<T>,
    ) -> Result<T> {
        self.read(deadline, |reading| {
            let tenant = self.file.registry.tenant(self.file.tenant)?;
            let tenant = tenant.ok_or_else(|| self.file.database.missing())?;
            let last = reading.last_entry(moment, tenant.created_at)?;
            work(&reading.after(last), last)
        })
    }

    /// Runs `work`, which is one statement for one record. SQLite runs it on one moment of the file
    /// by itself, and it ends at once.
    pub fn read_one<T>(&self, work: impl FnOnce(&Reading<'_>) -> Result<T>) -> Result<T> {
        let connection = self.reader()?;
        work(&Reading::new(&connection)).map_err(|error| self.read_failed(error))
    }

    fn reader(&self) -> Result<PooledConnection<SqliteConnectionManager>> {
        let connection = self.file.readers.get();
        connection.map_err(|error| self.file.failed(self.file.database.unusable(error)))
    }

    fn read_failed(&self, error: StoreError) -> StoreError {
        match error.code {
            StoreCode::Interrupted => StoreError { code: StoreCode::TimedOut, ..error },
            StoreCode::Gone(_) | StoreCode::TooManyChanges(_) => error,
            _ => self.file.failed(error),
        }
    }

    /// Gives a mutation to the tenant's one writer, on another thread. The mutation's client gets
    /// the outcome after the commit.
    pub fn mutate(&self, mutation: Mutation) {
        let mut writer = self.writer.lock();
        // The next mutation replaces a thread that has panicked.
        if writer.as_ref().is_none_or(Writer::has_ended) {
            match Writer::start(self.file.clone()) {
                Ok(started) => *writer = Some(started),
                Err(error) => {
                    let error = self.file.failed(self.file.database.unusable(error));
                    return send(mutation.send, Outcome::Failed(error));
                }
            }
        }
        if let Some(writer) = &*writer {
            writer.submit(mutation);
        }
    }
}

#[cfg(test)]
mod tests;
