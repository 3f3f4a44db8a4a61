//! The tenants' files: found by id, opened on demand, bounded in number.
//!
//! | file | its concern |
//! |---|---|
//! | `files` | where a tenant's file is, and what belongs to it |
//! | `tenant` | one open file: reads and mutations |
//! | `readers` | the pool of reading connections |
//! | `job` | a mutation that waits for the writer |
//! | `writer` | the one writing connection: group commit |
//! | `confirmation` | commits that the copy has not confirmed |
//! | `due_maintenance` | what is due between commits |
//! | `maintenance` | work between commits: merging of search segments, checkpoints |
//! | `shared` | what all tenants share |
//! | `open_file` | whether a path still names the file that is open |
//! | `file_health` | what is wrong with a file, logged once |
//! | `leftovers` | removal of what an interrupted import has left |
//! | `page_cache` | a bound on the memory of all connections together |
//! | `uncommitted` | marks of files whose tenant is being created or deleted |
//! | `working_set` | whether it pays to keep many files open |

mod confirmation;
mod due_maintenance;
mod file_health;
mod files;
mod job;
mod leftovers;
mod maintenance;
mod open_file;
mod page_cache;
mod readers;
mod shared;
mod tenant;
mod uncommitted;
mod working_set;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use scheduled_thread_pool::ScheduledThreadPool;

use confirmation::Confirmer;
use file_health::FileHealth;
pub use files::{file, folder, remove_file};
pub(super) use files::{file_ids, litestream_folder, with_companions};
use shared::{STALLED, Shared};
pub use tenant::Tenant;
pub(super) use uncommitted::{mark, marked_files, unmark};
use working_set::WorkingSet;

use super::error::StoreError;
use super::records;
use super::schema::{Migration, Schema};
use crate::config::TenantLimits;
use crate::copy::ConfirmedCopy;
use crate::metrics::Metrics;
use crate::semaphore::Semaphore;

/// The schema of a tenant's file.
pub static SCHEMA: Schema = Schema {
    name: "tenant",
    version: 3,
    sql: include_str!("../../../schema.sql"),
    migrations: &[
        Migration::new(include_str!("../migrations/tenant/2.sql")),
        Migration { sql: include_str!("../migrations/tenant/3.sql"), then: records::build_search },
    ],
};

/// How long a file that could not be opened is not tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The most tenants that are closed for one that is opened.
const MAX_EVICTED: usize = 32;

/// All tenants' files.
pub struct Tenants {
    folder: PathBuf,
    limits: TenantLimits,
    shared: Shared,
    slots: Mutex<HashMap<i64, Arc<Slot>>>,
    /// The slots whose tenant is open, and some that were closed since.
    opened: Mutex<HashMap<i64, Arc<Slot>>>,
    working_set: WorkingSet,
    /// Held while memory is released.
    releasing: Mutex<()>,
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenants").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// One tenant's entry. It stays when the file is closed, so that a failure is logged once.
#[derive(Debug)]
struct Slot {
    /// Held for moments only.
    state: Mutex<SlotState>,
    /// Held while the file is opened.
    opening: Mutex<()>,
    open_permits: Semaphore,
    last_use: AtomicU64,
    health: Arc<FileHealth>,
}

#[derive(Debug)]
enum SlotState {
    Closed,
    Open(Arc<Tenant>),
    Failed(Instant),
}

impl Tenants {
    /// The tenants whose files are in `data_dir`/tenants.
    pub fn new(data_dir: &Path, limits: TenantLimits, metrics: Arc<Metrics>) -> Tenants {
        let thread = |name| Arc::new(ScheduledThreadPool::builder().num_threads(1).thread_name_pattern(name).build());
        Tenants {
            folder: folder(data_dir),
            limits,
            shared: Shared {
                schema: &SCHEMA,
                max_reads: limits.reads_at_once,
                budget: Arc::default(),
                opener: thread("opener"),
                maintenance: thread("maintenance"),
                metrics,
                keep_changes: limits.keep_changes,
                open: Arc::default(),
                confirmer: None,
            },
            slots: Mutex::default(),
            opened: Mutex::default(),
            working_set: WorkingSet::new(limits.open),
            releasing: Mutex::default(),
        }
    }

    /// The same, but mutations succeed only once `copy` has them.
    #[must_use]
    pub fn confirmed_by(mut self, copy: Option<Arc<ConfirmedCopy>>) -> Tenants {
        self.shared.confirmer = copy.map(Confirmer::new);
        self
    }

    /// The same with another schema, one to which today's files are yet to be migrated.
    #[cfg(test)]
    pub(super) fn with_schema(mut self, schema: &'static Schema) -> Tenants {
        self.shared.schema = schema;
        self
    }

    /// The tenant's open file, opened if necessary.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the file is missing, damaged, of a newer schema, or cannot be opened now.
    pub fn open(&self, id: i64) -> Result<Arc<Tenant>, StoreError> {
        let new_slot = || Arc::new(Slot::new(id, self.limits.reads_at_once));
        let slot = Arc::clone(self.slots.lock().entry(id).or_insert_with(new_slot));
        self.working_set.count(&slot.last_use);
        if self.shared.budget.used() > self.limits.memory {
            self.release_memory();
        }
        if let Some(outcome) = slot.present() {
            return outcome;
        }
        let _permit = slot.open_permits.acquire(STALLED).ok_or(StoreError::Unavailable)?;
        // Opening may take as long as a lock is waited for. A thread that waited here finds the file open, or that it failed.
        let _opening = slot.opening.lock();
        if let Some(outcome) = slot.present() {
            return outcome;
        }
        self.evict_least_recently_used();
        match Tenant::open(&file(&self.folder, id), &self.shared, &slot.health) {
            Ok(tenant) => {
                let tenant = Arc::new(tenant);
                slot.health.opened();
                slot.set(SlotState::Open(Arc::clone(&tenant)));
                self.opened.lock().insert(id, Arc::clone(&slot));
                tenant.check_segments_later();
                Ok(tenant)
            }
            Err(error) => {
                slot.health.cannot_open(&error);
                slot.set(SlotState::Failed(Instant::now()));
                Err(StoreError::Unavailable)
            }
        }
    }

    /// Closes the least recently used tenants if as many are open as are worth keeping. Their running requests finish first.
    ///
    /// A few are closed at once, because finding them costs more than closing one, but not so many that the present request waits
    /// long.
    fn evict_least_recently_used(&self) {
        let max = self.working_set.worth_keeping();
        if self.open_count() < max {
            return;
        }
        let evicted: Vec<Arc<Slot>> = {
            let mut opened = self.opened.lock();
            opened.retain(|_, slot| slot.tenant().is_some());
            // A file with frames to discard stays open: only its open connections know which frames.
            let surplus = (opened.len() + 1).saturating_sub(max);
            let count = if surplus == 0 { 0 } else { (surplus + max / 32).min(MAX_EVICTED) };
            let is_closable = |id: &i64| opened.get(id).is_some_and(|slot| !slot.health.log.needs_discard());
            let oldest: Vec<i64> = oldest_first(&opened).into_iter().filter(is_closable).take(count).collect();
            oldest.iter().filter_map(|id| opened.remove(id)).collect()
        };
        // Outside the lock, since closing a file takes time.
        evicted.iter().for_each(|slot| drop(slot.set(SlotState::Closed)));
    }

    /// Releases memory of the least recently used tenants until a quarter of the limit is free. What is in use stays.
    fn release_memory(&self) {
        let Some(_releasing) = self.releasing.try_lock() else { return };
        let order: Vec<Arc<Slot>> = {
            let opened = self.opened.lock();
            oldest_first(&opened).iter().filter_map(|id| opened.get(id).cloned()).collect()
        };
        for also_writer in [false, true] {
            for tenant in order.iter().filter_map(|slot| slot.tenant()) {
                if self.shared.budget.used() <= self.limits.memory / 4 * 3 {
                    return;
                }
                tenant.release_memory(also_writer);
            }
        }
    }

    /// How long an entry of a journal is kept and shown.
    pub fn keep_changes(&self) -> Duration {
        self.limits.keep_changes
    }

    /// How many tenants are open.
    pub fn open_count(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// The segments of the open search table that has most.
    pub fn most_search_segments(&self) -> u64 {
        let opened = self.opened.lock();
        opened.values().filter_map(|slot| slot.tenant()).map(|tenant| tenant.search_segments()).max().unwrap_or(0)
    }

    /// Closes all files, so that the write-ahead logs are empty.
    pub fn close(&self) {
        self.opened.lock().clear();
        let slots = std::mem::take(&mut *self.slots.lock());
        drop(slots);
    }
}

/// The tenants' ids, the least recently used first.
fn oldest_first(slots: &HashMap<i64, Arc<Slot>>) -> Vec<i64> {
    let by_use = slots.iter().map(|(id, slot)| (slot.last_use.load(Ordering::Relaxed), *id));
    let mut by_use: Vec<(u64, i64)> = by_use.collect();
    by_use.sort_unstable();
    by_use.into_iter().map(|(_, id)| id).collect()
}

impl Slot {
    fn new(id: i64, permits: usize) -> Slot {
        Slot {
            state: Mutex::new(SlotState::Closed),
            opening: Mutex::new(()),
            open_permits: Semaphore::new(permits),
            last_use: AtomicU64::new(0),
            health: Arc::new(FileHealth::new(id)),
        }
    }

    /// What is known without opening: the open file, or that it failed a moment ago.
    fn present(&self) -> Option<Result<Arc<Tenant>, StoreError>> {
        let tenant = match &*self.state.lock() {
            SlotState::Open(tenant) => Arc::clone(tenant),
            SlotState::Failed(at) if at.elapsed() < RETRY_AFTER => return Some(Err(StoreError::Unavailable)),
            SlotState::Failed(_) | SlotState::Closed => return None,
        };
        if tenant.is_current() && !self.health.take_must_reopen() && !self.health.log.needs_replay() {
            return Some(Ok(tenant));
        }
        self.set(SlotState::Closed);
        None
    }

    fn tenant(&self) -> Option<Arc<Tenant>> {
        match &*self.state.lock() {
            SlotState::Open(tenant) => Some(Arc::clone(tenant)),
            SlotState::Closed | SlotState::Failed(_) => None,
        }
    }

    /// Returns the state before, so that a file is not closed under the lock.
    fn set(&self, state: SlotState) -> SlotState {
        std::mem::replace(&mut *self.state.lock(), state)
    }
}
