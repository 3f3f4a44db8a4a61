//! The tenants' files: opened on demand, bounded in number.
//!
//! | file | its concern |
//! |---|---|
//! | `tenant` | one open file: reads and mutations |
//! | `writer` | the thread with the one writing connection: group commit |
//! | `upkeep` | what the writer does between commits: merging, checkpoints, removal |
//! | `file` | a file as commands use it |

mod file;
#[expect(clippy::module_inception, reason = "the module is named after its main type")]
mod tenant;
mod upkeep;
mod writer;

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use rusqlite::ErrorCode;
use scheduled_thread_pool::ScheduledThreadPool;

pub use file::{ImportTransaction, TenantFile};
pub use tenant::{Deadline, Tenant};
pub use writer::Demand;

pub(crate) use super::data_dir::TENANT as SCHEMA;
use super::data_dir::tenant_database;
use super::database::LOCK_WAIT;
use super::error::StoreError;
use crate::config::TenantLimits;
use crate::model::TenantId;

/// How long a file that could not be opened is not tried again: a locked one takes 5 s each time.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// All tenants' files.
pub struct Tenants {
    data_dir: PathBuf,
    /// The least recently used is closed for the next.
    slots: Mutex<LruCache<TenantId, Arc<Slot>>>,
    shared: Arc<Shared>,
}

/// What all tenants share.
struct Shared {
    limits: TenantLimits,
    /// Opens connections for all pools: a pool would start three threads of its own.
    opener: Arc<ScheduledThreadPool>,
}

/// One tenant's entry. It outlives the open file, so that a failure is logged once.
struct Slot {
    state: Mutex<State>,
    health: Arc<Health>,
}

enum State {
    Closed,
    Open(Arc<Tenant>),
    Failed(Instant),
}

impl Tenants {
    pub fn new(data_dir: impl Into<PathBuf>, limits: TenantLimits) -> Tenants {
        let opener = ScheduledThreadPool::builder().num_threads(1).thread_name_pattern("opener");
        let most = NonZeroUsize::new(limits.open).unwrap_or(NonZeroUsize::MIN);
        Tenants {
            data_dir: data_dir.into(),
            slots: Mutex::new(LruCache::new(most)),
            shared: Arc::new(Shared { limits, opener: Arc::new(opener.build()) }),
        }
    }

    /// The tenant's open file, opened if necessary.
    pub fn open(&self, id: TenantId) -> Result<Arc<Tenant>, StoreError> {
        let slot = self.slot(id);
        let mut state = slot.state.try_lock_for(LOCK_WAIT).ok_or(StoreError::Unavailable)?;
        match &*state {
            State::Open(tenant) if tenant.is_current() => return Ok(Arc::clone(tenant)),
            State::Failed(at) if at.elapsed() < RETRY_AFTER => return Err(StoreError::Unavailable),
            State::Open(_) | State::Failed(_) | State::Closed => (),
        }
        // Closed first, if the path names another file now.
        *state = State::Closed;
        let database = tenant_database(&self.data_dir, id);
        match Tenant::open(database, Arc::clone(&self.shared), Arc::clone(&slot.health)) {
            Ok(tenant) => {
                let tenant = Arc::new(tenant);
                *state = State::Open(Arc::clone(&tenant));
                slot.health.works(Use::Reading);
                Ok(tenant)
            }
            Err(error) => {
                *state = State::Failed(Instant::now());
                Err(slot.health.fails(Use::Reading, &error))
            }
        }
    }

    fn slot(&self, id: TenantId) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(&id) {
            return Arc::clone(slot);
        }
        let (state, health) = (Mutex::new(State::Closed), Arc::new(Health::new(id)));
        let slot = Arc::new(Slot { state, health });
        let evicted = slots.push(id, Arc::clone(&slot));
        drop(slots);
        // Its running requests finish first. Closing takes time, so the map is not locked.
        drop(evicted);
        slot
    }

    /// How long an entry of a change log is kept and shown.
    pub fn keep_changes(&self) -> Duration {
        self.shared.limits.keep_changes
    }

    #[cfg(test)]
    pub fn open_count(&self) -> usize {
        self.slots.lock().len()
    }

    /// Closes all files, with empty WALs, and waits for their writers.
    pub fn close(&self) {
        let slots: Vec<Arc<Slot>> = {
            let mut slots = self.slots.lock();
            std::iter::from_fn(|| slots.pop_lru()).map(|(_, slot)| slot).collect()
        };
        let stop = |slot: Arc<Slot>| match std::mem::replace(&mut *slot.state.lock(), State::Closed)
        {
            State::Open(tenant) => tenant.stop(),
            State::Closed | State::Failed(_) => None,
        };
        let writers: Vec<_> = slots.into_iter().filter_map(stop).collect();
        for writer in writers {
            // The place of a panic is on standard error.
            let _ = writer.join();
        }
    }
}

/// What a file is used for. Opening counts as reading.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Reading,
    Writing,
}

/// The present failures of one tenant's file. A failure is logged once, not for every request, and
/// once more when it has ended.
#[derive(Debug)]
pub(super) struct Health {
    tenant: TenantId,
    reading: Mutex<Option<String>>,
    writing: Mutex<Option<String>>,
}

impl Health {
    pub(super) fn new(tenant: TenantId) -> Health {
        Health { tenant, reading: Mutex::default(), writing: Mutex::default() }
    }

    fn known(&self, usage: Use) -> &Mutex<Option<String>> {
        match usage {
            Use::Reading => &self.reading,
            Use::Writing => &self.writing,
        }
    }

    pub(super) fn works(&self, usage: Use) {
        if self.known(usage).lock().take().is_some() {
            tracing::info!(tenant = %self.tenant, ?usage, "the tenant's file can be used again");
        }
    }

    /// Returns the answer to the request.
    pub(super) fn fails(&self, usage: Use, cause: &dyn Display) -> StoreError {
        let cause = cause.to_string();
        let mut known = self.known(usage).lock();
        if known.as_ref() != Some(&cause) {
            tracing::error!(tenant = %self.tenant, ?usage, cause, "the tenant's file cannot be \
            used");
            *known = Some(cause);
        }
        StoreError::Unavailable
    }

    /// The answer to a mutation that failed in the database.
    pub(super) fn write_failed(&self, error: &rusqlite::Error) -> StoreError {
        let answer = self.fails(Use::Writing, error);
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::DiskFull,
            _ => answer,
        }
    }
}

#[cfg(test)]
mod tests;
