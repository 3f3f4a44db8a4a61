//! The program's sources use these modules: Shuttle's threads, the queue of tiny_http, files with SQLite's
//! lock, and values with the names of the program's.

pub mod condvar;
pub mod database;
pub mod monitor;
pub mod mpsc;
pub mod oneshot;
pub mod program;
pub mod r2d2;
pub mod records;
pub mod rusqlite;
pub mod thread;
pub mod tiny_http;

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use shuttle::rand::{Rng, thread_rng};

/// With the same order in each run, so that a seed repeats a schedule.
pub type HashMap<K, V> = std::collections::HashMap<
    K,
    V,
    std::hash::BuildHasherDefault<std::collections::hash_map::DefaultHasher>,
>;

/// parking_lot's `try_lock_for`.
pub trait TryLockOrWait<T> {
    /// `None` where the time passes first, which happens now and then.
    fn try_lock_or_wait(&self, _: Duration) -> Option<MutexGuard<'_, T>>;
}

impl<T> TryLockOrWait<T> for Mutex<T> {
    fn try_lock_or_wait(&self, _: Duration) -> Option<MutexGuard<'_, T>> {
        if happens(8) { self.try_lock() } else { Some(self.lock()) }
    }
}

/// Whether something happens that happens once in `times`.
pub fn happens(times: u32) -> bool {
    thread_rng().gen_ratio(1, times)
}
