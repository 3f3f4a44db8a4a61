//! A limit for password hashing. Each hash takes 19 MiB of memory and about 20 ms of CPU time, so only a few run at once, a few
//! more wait, and the rest are refused. Sign-ins therefore cannot exhaust memory, workers or CPU time.
//!
//! The queue is round-robin by client address (contract section 9), so one address cannot keep out the others.

use std::net::IpAddr;
use std::sync::mpsc::{self, SendError, Sender};

use parking_lot::Mutex;

use crate::cpu_permits;
use crate::fair_queue::FairQueue;
use crate::password::HashBuffer;

/// Maximum number of concurrent hashes, whatever the number of cores.
const MAX_CONCURRENT: usize = 2;

/// Maximum length of the queue. Each entry blocks a worker thread; there are at least 32.
const MAX_QUEUED: usize = 10;

/// The queue is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

/// A semaphore with a fair, bounded queue.
#[derive(Debug)]
pub(super) struct HashLimiter {
    max_concurrent: usize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    running: usize,
    /// Buffers to use again, at most one for each concurrent hash.
    spare: Vec<HashBuffer>,
    /// Each sender wakes its thread and passes a buffer to it. If the sender is dropped, the entry was displaced by another
    /// address.
    waiting: FairQueue<Sender<HashBuffer>>,
    finished: u64,
}

impl Default for HashLimiter {
    /// Uses at most half of the cores and leaves the others to the API.
    fn default() -> HashLimiter {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        HashLimiter { max_concurrent: (cores / 2).clamp(1, MAX_CONCURRENT), queue: Mutex::default() }
    }
}

/// The permit to run one hash, with its buffer. Dropped, it passes both to the next in the queue.
struct Permit<'a> {
    hash_limiter: &'a HashLimiter,
    memory: HashBuffer,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut queue = self.hash_limiter.queue.lock();
        queue.finished += 1;
        queue.release(std::mem::take(&mut self.memory));
    }
}

impl HashLimiter {
    /// Runs `work` for `client` once a permit is free. The thread gives up its CPU permit meanwhile.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] if the queue is full, or if an address with fewer queued entries displaces this one.
    pub(super) fn run<T>(&self, client: IpAddr, work: impl FnOnce(&mut HashBuffer) -> T) -> Result<T, QueueFull> {
        cpu_permits::release_while_blocking(|| {
            let mut permit = self.acquire(client)?;
            Ok(work(&mut permit.memory))
        })
    }

    /// Number of finished hashes since the start.
    pub(super) fn finished(&self) -> u64 {
        self.queue.lock().finished
    }

    fn acquire(&self, client: IpAddr) -> Result<Permit<'_>, QueueFull> {
        let mut queue = self.queue.lock();
        let memory = if queue.running < self.max_concurrent {
            queue.running += 1;
            queue.spare.pop().unwrap_or_default()
        } else {
            let (admit, admitted) = mpsc::channel();
            queue.add(client, admit)?;
            drop(queue);
            admitted.recv().map_err(|_| QueueFull)?
        };
        Ok(Permit { hash_limiter: self, memory })
    }
}

impl Queue {
    fn add(&mut self, client: IpAddr, admit: Sender<HashBuffer>) -> Result<(), QueueFull> {
        if self.waiting.len() >= MAX_QUEUED {
            self.waiting.evict_for(client).ok_or(QueueFull)?;
        }
        self.waiting.push(client, admit);
        Ok(())
    }

    /// Passes a permit and its buffer to the next thread in the queue, or releases them.
    fn release(&mut self, mut memory: HashBuffer) {
        while let Some(next) = self.waiting.pop() {
            match next.send(memory) {
                Ok(()) => return,
                Err(SendError(unsent)) => memory = unsent,
            }
        }
        self.running -= 1;
        self.spare.push(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::TryRecvError;
    use std::thread;

    #[test]
    fn few_run_few_wait_and_the_rest_are_refused() {
        let hash_limiter = Arc::new(HashLimiter::default());
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (results, ends) = mpsc::channel();
        let mut release_all = Vec::new();
        for _ in 0..hash_limiter.max_concurrent + MAX_QUEUED + 5 {
            let (release, released) = mpsc::channel::<()>();
            release_all.push(release);
            let (hash_limiter, running, most, results) =
                (hash_limiter.clone(), running.clone(), most.clone(), results.clone());
            thread::spawn(move || {
                let end = hash_limiter.run(IpAddr::from([192, 0, 2, 1]), |_| {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let _ = released.recv();
                    running.fetch_sub(1, Ordering::SeqCst);
                });
                results.send(end).unwrap();
            });
        }
        for _ in 0..5 {
            assert_eq!(ends.recv().unwrap(), Err(QueueFull));
        }
        drop(release_all);
        for _ in 0..hash_limiter.max_concurrent + MAX_QUEUED {
            assert_eq!(ends.recv().unwrap(), Ok(()));
        }
        assert!(most.load(Ordering::SeqCst) <= hash_limiter.max_concurrent);
        assert_eq!(hash_limiter.finished(), (hash_limiter.max_concurrent + MAX_QUEUED) as u64);
    }

    #[test]
    fn an_address_that_fills_the_queue_keeps_no_other_out() {
        let hash_limiter = HashLimiter { max_concurrent: 1, queue: Mutex::default() };
        let (flood, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let running = hash_limiter.acquire(flood).unwrap();
        let mut waiting = Vec::new();
        let mut wait = |client| {
            let (admit, admitted) = mpsc::channel();
            let added = hash_limiter.queue.lock().add(client, admit);
            waiting.push(admitted);
            added
        };
        for _ in 0..MAX_QUEUED {
            assert_eq!(wait(flood), Ok(()));
        }
        assert_eq!(wait(flood), Err(QueueFull));
        assert_eq!(wait(other), Ok(()));
        drop(running);
        drop(Permit { hash_limiter: &hash_limiter, memory: HashBuffer::default() });
        let ends: Vec<_> = waiting.iter().map(|admitted| admitted.try_recv().err()).collect();
        let mut expected = vec![Some(TryRecvError::Empty); MAX_QUEUED + 2];
        expected[0] = None;
        expected[MAX_QUEUED - 1] = Some(TryRecvError::Disconnected);
        expected[MAX_QUEUED] = Some(TryRecvError::Disconnected);
        expected[MAX_QUEUED + 1] = None;
        assert_eq!(ends, expected, "one of each address ran, and the flood lost its newest");
    }
}
