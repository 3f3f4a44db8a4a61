//! The tenants' files: opened on demand, bounded in number.
//!
//! | file | its concern |
//! |---|---|
//! | `tenant` | one open file: reads and mutations |
//! | `mutation` | a mutation that waits for the writer |
//! | `writer` | the thread with the one writing connection: group commit |
//! | `upkeep` | what the writer does between commits: merging, checkpoints, removal |
//! | `space` | the size of a tenant and the free space of the disk |
//! | `health` | what is wrong with a file, logged once |
//! | `file` | a file as commands use it |

mod file;
mod health;
mod mutation;
mod space;
#[expect(clippy::module_inception, reason = "the module is named after its main type")]
mod tenant;
mod upkeep;
mod writer;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use scheduled_thread_pool::ScheduledThreadPool;

pub(crate) use super::schemas::TENANT as SCHEMA;
pub use file::{ImportTransaction, TenantFile};
pub use mutation::Demand;
pub use tenant::{Deadline, Tenant};

use super::data_dir::tenant_database;
use super::database::LOCK_WAIT;
use super::error::StoreError;
use crate::config::TenantLimits;
use crate::metrics::Metrics;
use crate::model::TenantId;
use health::{Health, Use};

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
    metrics: Arc<Metrics>,
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
    pub fn new(
        data_dir: impl Into<PathBuf>,
        limits: TenantLimits,
        metrics: Arc<Metrics>,
    ) -> Tenants {
        let opener = ScheduledThreadPool::builder().num_threads(1).thread_name_pattern("opener");
        let most = NonZeroUsize::new(limits.open).unwrap_or(NonZeroUsize::MIN);
        Tenants {
            data_dir: data_dir.into(),
            slots: Mutex::new(LruCache::new(most)),
            shared: Arc::new(Shared { limits, opener: Arc::new(opener.build()), metrics }),
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
            // A panic of the thread was logged.
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests;
