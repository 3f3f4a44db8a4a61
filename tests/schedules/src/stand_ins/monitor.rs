//! A lock with a condition. Shuttle switches threads also while one unwinds a panic, which poisons
//! the locks of others, so poison is ignored.

use shuttle::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub struct Monitor<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    pub fn new(value: T) -> Monitor<T> {
        Monitor { value: Mutex::new(value), changed: Condvar::new() }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait_until(&self, mut condition: impl FnMut(&T) -> bool) -> MutexGuard<'_, T> {
        let mut guard = self.lock();
        while !condition(&guard) {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        guard
    }

    /// Changes the value and wakes one thread.
    pub fn change_for_one(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    pub fn change_for_all(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}
