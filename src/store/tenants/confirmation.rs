//! Confirmation of a tenant's commits by the copy (contract section 16), on threads of its own: the writer goes on with the next
//! commits, and workers with other requests. Whatever was committed meanwhile shares the next request to the copy.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use scheduled_thread_pool::ScheduledThreadPool;

use crate::copy::ConfirmedCopy;
use crate::store::error::StoreError;
use crate::store::log_tail::{LogTail, TailError};

/// The most tenants whose commits are confirmed at the same time.
const THREADS: usize = 32;

/// The most mutations that wait for a copy that does not respond; further ones are refused at once.
const MAX_WAITING: usize = 64;

/// How long a confirmation takes before the copy counts as not responding.
const STALLED: Duration = Duration::from_secs(2);

/// The copy, and the threads that wait for it.
#[derive(Clone)]
pub(super) struct Confirmer {
    copy: Arc<ConfirmedCopy>,
    threads: Arc<ScheduledThreadPool>,
}

impl Confirmer {
    pub fn new(copy: Arc<ConfirmedCopy>) -> Confirmer {
        let threads = ScheduledThreadPool::builder().num_threads(THREADS).thread_name_pattern("confirmer-{}").build();
        Confirmer { copy, threads: Arc::new(threads) }
    }

    /// The copy.
    pub fn copy(&self) -> &ConfirmedCopy {
        &self.copy
    }
}

/// The committed mutations of one tenant that the copy has not confirmed.
pub(super) struct Confirmation<J> {
    confirmer: Confirmer,
    file: PathBuf,
    /// Tells a mutation the outcome.
    finish: fn(J, Result<(), StoreError>),
    queue: Mutex<Queue<J>>,
    log_tail: LogTail,
}

struct Queue<J> {
    waiting: Vec<J>,
    /// When the first of `waiting` was committed.
    committed: Option<Instant>,
    /// Since when a thread has waited for the copy.
    asking_since: Option<Instant>,
}

impl<J: Send + 'static> Confirmation<J> {
    pub fn new(confirmer: Confirmer, file: PathBuf, finish: fn(J, Result<(), StoreError>)) -> Confirmation<J> {
        let queue = Queue { waiting: Vec::new(), committed: None, asking_since: None };
        let log_tail = LogTail::new(file.clone());
        Confirmation { confirmer, file, finish, queue: Mutex::new(queue), log_tail }
    }

    /// The end of the file's log.
    pub fn log_tail(&self) -> &LogTail {
        &self.log_tail
    }

    /// Returns whether Litestream may run.
    pub fn copy_may_run(&self) -> bool {
        self.confirmer.copy.may_run()
    }

    /// Checks that the log may be written to, as far as the copy is concerned.
    ///
    /// # Errors
    ///
    /// [`TailError`].
    pub fn check_log(&self) -> Result<(), TailError> {
        self.log_tail.check(&self.confirmer.copy)
    }

    /// Returns whether a mutation may begin.
    ///
    /// # Errors
    ///
    /// [`StoreError::CopyUnavailable`] if the copy does not confirm earlier ones.
    pub fn admit(&self) -> Result<(), StoreError> {
        let queue = self.queue.lock();
        let is_stalled = queue.asking_since.is_some_and(|since| since.elapsed() > STALLED);
        if is_stalled && queue.waiting.len() >= MAX_WAITING {
            return Err(StoreError::CopyUnavailable);
        }
        drop(queue);
        self.confirmer.copy.admit(&self.file).map_err(|_| StoreError::CopyUnavailable)
    }

    /// Tells mutations that were just committed the outcome once the copy has them.
    pub fn begin(self: &Arc<Confirmation<J>>, committed: Vec<J>) {
        let mut queue = self.queue.lock();
        queue.committed.get_or_insert_with(Instant::now);
        queue.waiting.extend(committed);
        if queue.asking_since.is_none() {
            queue.asking_since = Some(Instant::now());
            let confirmation = Arc::clone(self);
            self.confirmer.threads.execute(move || confirmation.run());
        }
    }

    fn run(&self) {
        while let Some((mutations, committed)) = self.take() {
            let confirmed = self.confirmer.copy.confirm(&self.file, committed).map_err(|_| StoreError::Unconfirmed);
            for mutation in mutations {
                (self.finish)(mutation, confirmed);
            }
        }
    }

    /// All that wait, and when the first of them was committed.
    fn take(&self) -> Option<(Vec<J>, Instant)> {
        let mut queue = self.queue.lock();
        let waiting = std::mem::take(&mut queue.waiting);
        let committed = queue.committed.take();
        queue.asking_since = committed.map(|_| Instant::now());
        Some((waiting, committed?))
    }
}
