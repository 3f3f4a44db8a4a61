//! The lock of the leader/followers pattern: one of several threads is the leader, the others wait.
//!
//! The thread that began to wait last becomes the leader next, because its stack and data are most likely still in the processor's
//! caches. A few threads therefore handle most requests; the others run only while those wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use parking_lot::Mutex;

/// Held by at most one thread, the leader.
#[derive(Debug, Default)]
pub(super) struct LeaderLock(Mutex<LockState>);

#[derive(Debug, Default)]
struct LockState {
    is_held: bool,
    /// A follower was woken and has not run yet. No other follower is woken until it has. If another thread acquires the lock first,
    /// the woken follower waits again: to hand the lock over to a sleeping thread would leave it unused meanwhile.
    is_waking: bool,
    /// The threads that wait, the last to begin at the end.
    followers: Vec<Arc<Follower>>,
}

/// A thread that acquires the lock repeatedly.
#[derive(Debug)]
pub(super) struct Follower {
    thread: Thread,
    /// Tells a wake-up by the lock from a spurious one.
    woken: AtomicBool,
}

/// Releases the lock and wakes a follower when dropped.
#[derive(Debug)]
pub(super) struct LeaderGuard<'a>(&'a LeaderLock);

impl Follower {
    pub(super) fn of_this_thread() -> Arc<Follower> {
        Arc::new(Follower { thread: thread::current(), woken: AtomicBool::new(false) })
    }
}

impl LeaderLock {
    /// Blocks until this thread is the leader. `follower` belongs to this thread.
    pub(super) fn acquire(&self, follower: &Arc<Follower>) -> LeaderGuard<'_> {
        let mut state = self.0.lock();
        while state.is_held {
            state.followers.push(Arc::clone(follower));
            drop(state);
            while !follower.woken.swap(false, Ordering::Acquire) {
                thread::park();
            }
            state = self.0.lock();
            state.is_waking = false;
        }
        state.is_held = true;
        LeaderGuard(self)
    }
}

impl Drop for LeaderGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.is_held = false;
        let next = if state.is_waking { None } else { state.followers.pop() };
        state.is_waking |= next.is_some();
        drop(state);
        if let Some(next) = next {
            next.woken.store(true, Ordering::Release);
            next.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_follower_leads_next_and_one_at_a_time() {
        let lock = Arc::new(LeaderLock::default());
        let guard = lock.acquire(&Follower::of_this_thread());
        let (sender, order) = mpsc::channel();
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let (shared, sender) = (Arc::clone(&lock), sender.clone());
                let thread = thread::spawn(move || {
                    let guard = shared.acquire(&Follower::of_this_thread());
                    sender.send(number).unwrap();
                    drop(guard);
                });
                while lock.0.lock().followers.len() <= number {
                    thread::yield_now();
                }
                thread
            })
            .collect();
        assert!(order.try_recv().is_err());
        drop(guard);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let order: Vec<usize> = (0..3).map(|_| order.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        assert_eq!(order, [2, 1, 0]);
        drop(lock.acquire(&Follower::of_this_thread()));
    }
}
