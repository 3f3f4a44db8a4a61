//! CpuPermits: how many workers may use the processor at once.
//!
//! Many workers are wanted, because one that waits for a disk or a lock does nothing. Many busy ones are not: more than
//! there are cores starve the gate's one thread. So a worker takes a turn before it takes a request, and gives it back for
//! as long as it waits.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A fixed number of turns, shared by all workers.
#[derive(Debug)]
pub struct CpuPermits {
    free: Mutex<usize>,
    returned: Condvar,
}

/// One turn of this thread, given back when dropped.
#[derive(Debug)]
pub struct CpuPermit(());

thread_local! {
    /// Where this thread's turn came from, while it has one. The store, which waits, need not know its worker.
    static CURRENT: RefCell<Option<Arc<CpuPermits>>> = const { RefCell::new(None) };
}

impl CpuPermits {
    /// `count` turns, at least one.
    pub fn new(count: usize) -> Arc<CpuPermits> {
        Arc::new(CpuPermits { free: Mutex::new(count.max(1)), returned: Condvar::new() })
    }

    /// Waits for a turn and takes it for this thread, until the value is dropped.
    pub fn take(self: &Arc<CpuPermits>) -> CpuPermit {
        self.acquire();
        CURRENT.set(Some(Arc::clone(self)));
        CpuPermit(())
    }

    fn acquire(&self) {
        let mut free = self.lock();
        while *free == 0 {
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
    }

    fn release(&self) {
        *self.lock() += 1;
        self.returned.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CpuPermit {
    fn drop(&mut self) {
        if let Some(turns) = CURRENT.take() {
            turns.release();
        }
    }
}

/// Runs `wait` without this thread's turn, and takes one again before it returns. A thread without a turn just runs it.
pub fn release_while_blocking<T>(wait: impl FnOnce() -> T) -> T {
    /// Takes the turn again also when `wait` panics: [`CpuPermit`] will give it back.
    struct Again(Option<Arc<CpuPermits>>);
    impl Drop for Again {
        fn drop(&mut self) {
            if let Some(turns) = self.0.take() {
                turns.acquire();
                CURRENT.set(Some(turns));
            }
        }
    }
    let again = Again(CURRENT.take());
    if let Some(turns) = &again.0 {
        turns.release();
    }
    wait()
}

/// Locks `mutex`. The thread gives its turn back only if it has to wait: to give one back and take it again wakes others.
pub fn lock<T>(mutex: &parking_lot::Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.try_lock().unwrap_or_else(|| release_while_blocking(|| mutex.lock()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_waiting_worker_leaves_its_turn_to_another() {
        let turns = CpuPermits::new(1);
        let turn = turns.take();
        let (done, seen) = mpsc::channel();
        let other = Arc::clone(&turns);
        release_while_blocking(|| {
            thread::spawn(move || {
                drop(other.take());
                done.send(()).unwrap();
            });
            seen.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        });
        drop(turn);
        assert_eq!(*turns.lock(), 1);
    }

    #[test]
    fn a_lock_that_is_free_costs_no_turn_and_one_that_is_not_leaves_it() {
        let turns = CpuPermits::new(1);
        let _turn = turns.take();
        let mutex = Arc::new(parking_lot::Mutex::new(()));
        let held = lock(&mutex);
        assert_eq!(*turns.lock(), 0);
        drop(held);

        let (holding, held) = mpsc::channel();
        let (others, mutexs) = (Arc::clone(&turns), Arc::clone(&mutex));
        let holder = thread::spawn(move || {
            let guard = mutexs.lock();
            holding.send(()).unwrap();
            // To be had only when the other waits for the lock.
            let turn = others.take();
            drop((turn, guard));
        });
        held.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        drop(lock(&mutex));
        holder.join().unwrap();
    }
}
