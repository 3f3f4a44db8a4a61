//! Work on passwords, which takes 19 MiB and some 20 ms each time: a few at once, a few more that wait, none beyond.
//!
//! So sign-ins, however many, take neither the memory nor the workers nor all of the processor from the API. Those that wait
//! are served round-robin by client address (contract section 9), so the sign-ins of one address do not keep out another's.

use std::net::IpAddr;
use std::sync::mpsc::{self, SendError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::fair_queue::FairQueue;
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
}

#[derive(Debug, Default)]
struct Queue {
    running: usize,
    /// Of those that ran before: as many as ran at once, at most.
    spare: Vec<Memory>,
    /// Each sender wakes the thread that waits and hands it the memory of the one before. Dropped, it tells the thread that its
    /// place went to another address.
    waiting: FairQueue<Sender<Memory>>,
    finished: u64,
}

impl Default for Hashing {
    /// Half of the cores, so that the other half is the API's.
    fn default() -> Hashing {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Hashing { at_once: (cores / 2).clamp(1, AT_ONCE), queue: Mutex::default() }
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
        queue.finished += 1;
        queue.pass_on(std::mem::take(&mut self.memory));
    }
}

impl Hashing {
    /// Runs `work` for `client` once it is its turn. The thread waits and works without its turn at the API's requests.
    ///
    /// # Errors
    /// [`Busy`] if too many wait already, or if the place of this one goes to an address with fewer that wait.
    pub(super) fn run<T>(&self, client: IpAddr, work: impl FnOnce(&mut Memory) -> T) -> Result<T, Busy> {
        turns::while_waiting(|| {
            let mut place = self.enter(client)?;
            Ok(work(&mut place.memory))
        })
    }

    /// How much work was done since the start.
    pub(super) fn finished(&self) -> u64 {
        self.lock().finished
    }

    fn enter(&self, client: IpAddr) -> Result<Place<'_>, Busy> {
        let mut queue = self.lock();
        let memory = if queue.running < self.at_once {
            queue.running += 1;
            queue.spare.pop().unwrap_or_default()
        } else {
            let (admit, admitted) = mpsc::channel();
            queue.add(client, admit)?;
            drop(queue);
            admitted.recv().map_err(|_| Busy)?
        };
        Ok(Place { hashing: self, memory })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn add(&mut self, client: IpAddr, admit: Sender<Memory>) -> Result<(), Busy> {
        if self.waiting.len() >= WAITING {
            self.waiting.displace_for(client).ok_or(Busy)?;
        }
        self.waiting.push(client, admit);
        Ok(())
    }

    /// Gives a place that became free, and its memory, to the next that waits.
    fn pass_on(&mut self, mut memory: Memory) {
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
                let end = hashing.run(IpAddr::from([192, 0, 2, 1]), |_| {
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

    #[test]
    fn an_address_that_fills_the_queue_keeps_no_other_out() {
        let hashing = Hashing { at_once: 1, queue: Mutex::default() };
        let (flood, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let running = hashing.enter(flood).unwrap();
        let mut waiting = Vec::new();
        let mut wait = |client| {
            let (admit, admitted) = mpsc::channel();
            let added = hashing.lock().add(client, admit);
            waiting.push(admitted);
            added
        };
        for _ in 0..WAITING {
            assert_eq!(wait(flood), Ok(()));
        }
        assert_eq!(wait(flood), Err(Busy));
        assert_eq!(wait(other), Ok(()));
        drop(running);
        drop(Place { hashing: &hashing, memory: Memory::default() });
        let ends: Vec<_> = waiting.iter().map(|admitted| admitted.try_recv().err()).collect();
        let mut expected = vec![Some(TryRecvError::Empty); WAITING + 2];
        expected[0] = None;
        expected[WAITING - 1] = Some(TryRecvError::Disconnected);
        expected[WAITING] = Some(TryRecvError::Disconnected);
        expected[WAITING + 1] = None;
        assert_eq!(ends, expected, "one of each address ran, and the flood lost its newest");
    }
}
