//! Permits to use the processor.
//!
//! There are many worker threads, because most of them wait for the disk or a lock. If more threads than cores are runnable, they
//! delay the edge's only thread. A worker therefore acquires a permit before it handles a request, and releases it while it blocks.

use std::cell::RefCell;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// A counting semaphore that all workers share.
#[derive(Debug)]
pub struct CpuPermits {
    available: Mutex<usize>,
    released: Condvar,
}

/// A permit of this thread. Dropping it releases the permit.
#[derive(Debug)]
pub struct CpuPermit(());

thread_local! {
    /// The semaphore of the permit that this thread holds. It lets the store release the permit without a reference to it.
    static CURRENT: RefCell<Option<Arc<CpuPermits>>> = const { RefCell::new(None) };
}

impl CpuPermits {
    /// `count` permits, at least one.
    pub fn new(count: usize) -> Arc<CpuPermits> {
        Arc::new(CpuPermits { available: Mutex::new(count.max(1)), released: Condvar::new() })
    }

    /// Blocks until a permit is available and acquires it for this thread.
    pub fn acquire(self: &Arc<CpuPermits>) -> CpuPermit {
        self.decrement();
        CURRENT.set(Some(Arc::clone(self)));
        CpuPermit(())
    }

    fn decrement(&self) {
        let mut available = self.available.lock();
        self.released.wait_while(&mut available, |available| *available == 0);
        *available -= 1;
    }

    fn increment(&self) {
        *self.available.lock() += 1;
        self.released.notify_one();
    }
}

impl Drop for CpuPermit {
    fn drop(&mut self) {
        if let Some(permits) = CURRENT.take() {
            permits.increment();
        }
    }
}

/// Calls `block` without this thread's permit, and acquires one again before it returns. Does nothing else in a thread without a
/// permit.
pub fn release_while_blocking<T>(block: impl FnOnce() -> T) -> T {
    /// Acquires the permit again when dropped, also if `block` panics: [`CpuPermit`] releases it later.
    struct AcquireAgain(Option<Arc<CpuPermits>>);
    impl Drop for AcquireAgain {
        fn drop(&mut self) {
            if let Some(permits) = self.0.take() {
                permits.decrement();
                CURRENT.set(Some(permits));
            }
        }
    }
    let again = AcquireAgain(CURRENT.take());
    if let Some(permits) = &again.0 {
        permits.increment();
    }
    block()
}

/// Locks `mutex`. Releases this thread's permit only if the lock is contended, because to release and acquire one wakes other threads.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.try_lock().unwrap_or_else(|| release_while_blocking(|| mutex.lock()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_blocked_worker_leaves_its_permit_to_another() {
        let permits = CpuPermits::new(1);
        let permit = permits.acquire();
        let (sender, receiver) = mpsc::channel();
        let other = Arc::clone(&permits);
        release_while_blocking(|| {
            thread::spawn(move || {
                drop(other.acquire());
                sender.send(()).unwrap();
            });
            receiver.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        });
        drop(permit);
        assert_eq!(*permits.available.lock(), 1);
    }

    #[test]
    fn a_permit_is_released_only_for_a_contended_lock() {
        let permits = CpuPermits::new(1);
        let _permit = permits.acquire();
        let mutex = Arc::new(Mutex::new(()));
        let guard = lock(&mutex);
        assert_eq!(*permits.available.lock(), 0);
        drop(guard);

        let (sender, locked) = mpsc::channel();
        let (other_permits, other_mutex) = (Arc::clone(&permits), Arc::clone(&mutex));
        let other = thread::spawn(move || {
            let guard = other_mutex.lock();
            sender.send(()).unwrap();
            // Blocks until the main thread waits for the mutex.
            let permit = other_permits.acquire();
            drop((permit, guard));
        });
        locked.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        drop(lock(&mutex));
        other.join().unwrap();
    }
}
