//! Work on passwords, which takes 19 MiB and some 20 ms each time: a few at once, a few more that wait, none beyond.
//!
//! So sign-ins, however many, take neither the memory nor the workers nor all of the processor from the API.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::password::Memory;
use crate::turns;

/// The most that run at once, on any machine.
const AT_ONCE: usize = 2;

/// The most that wait, each with a worker's thread (of 32 at least) but without its turn.
const WAITING: usize = 10;

/// Nobody else can wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Busy;

#[derive(Debug)]
pub(super) struct Hashing {
    at_once: usize,
    queue: Mutex<Queue>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    running: usize,
    /// Of those that ran before: as many as ran at once, at most.
    spare: Vec<Memory>,
    waiting: usize,
    finished: u64,
}

impl Default for Hashing {
    /// Half of the cores, so that the other half is the API's.
    fn default() -> Hashing {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Hashing { at_once: (cores / 2).clamp(1, AT_ONCE), queue: Mutex::default(), freed: Condvar::new() }
    }
}

/// A place among those that run.
struct Place<'a> {
    hashing: &'a Hashing,
    memory: Memory,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = self.hashing.lock();
        queue.running -= 1;
        queue.finished += 1;
        queue.spare.push(std::mem::take(&mut self.memory));
        drop(queue);
        self.hashing.freed.notify_one();
    }
}

impl Hashing {
    /// Runs `work` once it is its turn. The thread waits and works without its turn at the API's requests.
    pub(super) fn run<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> Result<T, Busy> {
        turns::while_waiting(|| {
            let mut place = self.enter()?;
            Ok(work(&mut place.memory))
        })
    }

    /// How much work was done since the start.
    pub(super) fn finished(&self) -> u64 {
        self.lock().finished
    }

    fn enter(&self) -> Result<Place<'_>, Busy> {
        let mut queue = self.lock();
        if queue.running >= self.at_once {
            if queue.waiting >= WAITING {
                return Err(Busy);
            }
            queue.waiting += 1;
            while queue.running >= self.at_once {
                queue = self.freed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            queue.waiting -= 1;
        }
        queue.running += 1;
        let memory = queue.spare.pop().unwrap_or_default();
        drop(queue);
        Ok(Place { hashing: self, memory })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;

    #[test]
    fn few_run_few_wait_and_the_rest_is_told_so() {
        let hashing = Arc::new(Hashing::default());
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (told, ends) = mpsc::channel();
        let mut gates = Vec::new();
        for _ in 0..hashing.at_once + WAITING + 5 {
            let (open, gate) = mpsc::channel::<()>();
            gates.push(open);
            let (hashing, running, most, told) = (hashing.clone(), running.clone(), most.clone(), told.clone());
            thread::spawn(move || {
                let end = hashing.run(|_| {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let _ = gate.recv();
                    running.fetch_sub(1, Ordering::SeqCst);
                });
                told.send(end).unwrap();
            });
        }
        for _ in 0..5 {
            assert_eq!(ends.recv().unwrap(), Err(Busy));
        }
        drop(gates);
        for _ in 0..hashing.at_once + WAITING {
            assert_eq!(ends.recv().unwrap(), Ok(()));
        }
        assert!(most.load(Ordering::SeqCst) <= hashing.at_once);
        assert_eq!(hashing.finished(), (hashing.at_once + WAITING) as u64);
    }
}
