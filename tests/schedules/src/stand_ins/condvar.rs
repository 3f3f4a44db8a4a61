//! parking_lot's `Condvar`, for the locks of `parking_lot`.

use std::collections::VecDeque;

use parking_lot::MutexGuard;

use super::monitor::Monitor;

/// The numbers of the threads that wait. A thread takes its number while it holds the lock, so no
/// notification is lost.
#[derive(Default)]
pub struct Condvar(Monitor<(u64, VecDeque<u64>)>);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let own = {
            let mut waiting = self.0.lock();
            waiting.0 += 1;
            let own = waiting.0;
            waiting.1.push_back(own);
            own
        };
        MutexGuard::unlocked(guard, || {
            drop(self.0.wait_until(|(_, waiting)| !waiting.contains(&own)));
        });
    }

    pub fn notify_one(&self) {
        self.0.change_for_all(|(_, waiting)| {
            waiting.pop_front();
        });
    }

    pub fn notify_all(&self) {
        self.0.change_for_all(|(_, waiting)| waiting.clear());
    }
}
