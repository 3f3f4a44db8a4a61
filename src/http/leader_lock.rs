//! The lead among threads that do the same: one has it, the others wait for it. Who came last is called first, since its stack
//! and its memory are still in the processor's caches; so only as many threads are ever awake as there is work for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

/// At most one thread has it.
#[derive(Debug, Default)]
pub(super) struct LeaderLock(Mutex<LockState>);

#[derive(Debug, Default)]
struct LockState {
    is_taken: bool,
    /// Of those that waited one was called and is on its way. If another thread takes the lead before it, it waits again: a
    /// lead that is handed over stands still until who gets it runs.
    is_called: bool,
    /// The others, who came last at the end.
    waiting: Vec<Arc<Follower>>,
}

/// A thread that waits for the lead again and again.
#[derive(Debug)]
pub(super) struct Follower {
    thread: Thread,
    /// It is to look again: a thread may be unparked for other reasons.
    called: AtomicBool,
}

/// Having the lead. Dropped, it calls one of those that wait.
#[derive(Debug)]
pub(super) struct LeaderGuard<'a>(&'a LeaderLock);

impl Follower {
    pub(super) fn of_this_thread() -> Arc<Follower> {
        Arc::new(Follower { thread: thread::current(), called: AtomicBool::new(false) })
    }
}

impl LeaderLock {
    /// Waits until this thread, which is `follower`, has the lead.
    pub(super) fn take(&self, follower: &Arc<Follower>) -> LeaderGuard<'_> {
        let mut state = self.lock();
        while state.is_taken {
            state.waiting.push(Arc::clone(follower));
            drop(state);
            while !follower.called.swap(false, Ordering::Acquire) {
                thread::park();
            }
            state = self.lock();
            state.is_called = false;
        }
        state.is_taken = true;
        LeaderGuard(self)
    }

    fn lock(&self) -> MutexGuard<'_, LockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LeaderGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_taken = false;
        let next = if state.is_called { None } else { state.waiting.pop() };
        state.is_called |= next.is_some();
        drop(state);
        if let Some(next) = next {
            next.called.store(true, Ordering::Release);
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
    fn who_came_last_goes_next_and_one_at_a_time() {
        let lead = Arc::new(LeaderLock::default());
        let leading = lead.take(&Follower::of_this_thread());
        let (done, order) = mpsc::channel();
        let waiting: Vec<_> = (0..3)
            .map(|number| {
                let (own, done) = (Arc::clone(&lead), done.clone());
                let thread = thread::spawn(move || {
                    let leading = own.take(&Follower::of_this_thread());
                    done.send(number).unwrap();
                    drop(leading);
                });
                while lead.lock().waiting.len() <= number {
                    thread::yield_now();
                }
                thread
            })
            .collect();
        assert!(order.try_recv().is_err());
        drop(leading);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        let order: Vec<usize> = (0..3).map(|_| order.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        assert_eq!(order, [2, 1, 0]);
        drop(lead.take(&Follower::of_this_thread()));
    }
}
