//! A counting semaphore for threads.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A fixed number of permits.
#[derive(Debug)]
pub struct Semaphore {
    permits: usize,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug)]
struct State {
    available: usize,
    /// When a permit was last released, or acquired while none was held.
    last_progress: Instant,
}

/// One permit, released when dropped.
#[derive(Debug)]
pub struct Permit<'a>(&'a Semaphore);

impl Semaphore {
    /// A semaphore of `permits` permits.
    pub fn new(permits: usize) -> Semaphore {
        let state = State { available: permits, last_progress: Instant::now() };
        Semaphore { permits, state: Mutex::new(state), released: Condvar::new() }
    }

    /// Waits at most `timeout` for a permit. Returns `None` at once if none was released for that long: then the holders do not
    /// make progress, and waiting would only hold one more thread.
    pub fn acquire(&self, timeout: Duration) -> Option<Permit<'_>> {
        let mut state = self.state.lock();
        if state.available == 0 {
            if state.last_progress.elapsed() > timeout {
                return None;
            }
            drop(state);
            return self.wait(timeout);
        }
        if state.available == self.permits {
            state.last_progress = Instant::now();
        }
        state.available -= 1;
        Some(Permit(self))
    }

    fn wait(&self, timeout: Duration) -> Option<Permit<'_>> {
        let mut state = self.state.lock();
        self.released.wait_while_for(&mut state, |state| state.available == 0, timeout);
        state.available = state.available.checked_sub(1)?;
        Some(Permit(self))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.available += 1;
        state.last_progress = Instant::now();
        drop(state);
        self.0.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_permit_is_waited_for_and_released() {
        let semaphore = Semaphore::new(1);
        let permit = semaphore.acquire(Duration::ZERO).unwrap();
        std::thread::scope(|scope| {
            let (waiting, is_waiting) = mpsc::channel();
            let semaphore = &semaphore;
            let waiter = scope.spawn(move || {
                waiting.send(()).unwrap();
                semaphore.acquire(Duration::from_secs(30)).is_some()
            });
            is_waiting.recv().unwrap();
            drop(permit);
            assert!(waiter.join().unwrap());
        });
        assert!(semaphore.acquire(Duration::ZERO).is_some());
    }

    #[test]
    fn no_permit_comes_from_holders_without_progress() {
        let semaphore = Semaphore::new(1);
        let _held = semaphore.acquire(Duration::ZERO).unwrap();
        assert!(semaphore.acquire(Duration::from_millis(20)).is_none());
    }

    #[test]
    fn holders_that_have_just_begun_are_waited_for() {
        let timeout = Duration::from_secs(30);
        let semaphore = Semaphore::new(1);
        // It was idle for longer than the timeout.
        semaphore.state.lock().last_progress = Instant::now().checked_sub(2 * timeout).unwrap();
        let _held = semaphore.acquire(timeout).unwrap();
        assert!(semaphore.state.lock().last_progress.elapsed() < timeout);
    }
}
