//! The one writer of a tenant: a thread that owns the writing connection.
//!
//! Mutations that arrive while it commits wait in its channel and share the next commit, so one
//! sync of the disk serves them all. No mutation is answered before its commit.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};

use super::Shared;
use super::health::Health;
use super::mutation::{Queued, Verdict};
use super::space;
use super::upkeep::Upkeep;
use crate::clock::{Clock, Timestamp};
use crate::store::database::{self, Database, LOCK_WAIT, Role, execute};
use crate::store::error::{DatabaseError, OpenError, StoreError};
use crate::store::records::Writing;

/// The most operations in one commit: enough to use the time of a sync, few enough that the first
/// does not wait long, and that a commit does not take the disk's last space.
const BATCH: usize = 128;

/// The most mutations that wait; further ones are refused at once.
const MAX_WAITING: usize = 1_024;

/// How long the writer waits for a mutation before it does what a few commits have left.
const IDLE: Duration = Duration::from_secs(1);

/// The thread's other end.
#[derive(Debug)]
pub(super) struct Writer {
    queue: SyncSender<Queued>,
    thread: JoinHandle<()>,
}

impl Writer {
    pub(super) fn start(
        database: Database,
        shared: Arc<Shared>,
        health: Arc<Health>,
    ) -> std::io::Result<Writer> {
        let (queue, jobs) = mpsc::sync_channel(MAX_WAITING);
        let mut work = WriterThread {
            database,
            shared,
            health,
            jobs,
            waiting: VecDeque::new(),
            connection: None,
            upkeep: Upkeep::new(),
        };
        let thread = thread::Builder::new().name("writer".to_owned()).spawn(move || work.run())?;
        Ok(Writer { queue, thread })
    }

    /// Queues a mutation. Its outcome is told by the thread.
    pub(super) fn submit(&self, job: Queued) {
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) =
            self.queue.try_send(job)
        {
            job.finish(Err(StoreError::Unavailable));
        }
    }

    /// Has the thread end when it has done what is queued.
    pub(super) fn stop(self) -> JoinHandle<()> {
        self.thread
    }
}

struct WriterThread {
    database: Database,
    shared: Arc<Shared>,
    health: Arc<Health>,
    jobs: Receiver<Queued>,
    /// Taken from the channel and not yet run.
    waiting: VecDeque<Queued>,
    /// Opened with the first mutation, and again after a failure.
    connection: Option<Connection>,
    upkeep: Upkeep,
}

/// A mutation and its outcome before the commit.
type Done = (Queued, Result<(), StoreError>);

impl WriterThread {
    fn run(&mut self) {
        while let Some(job) = self.next() {
            self.waiting.push_back(job);
            self.waiting.extend(self.jobs.try_iter().take(BATCH));
            self.run_batch();
            if self.upkeep.is_urgent() {
                self.keep_up();
            }
        }
        if let Some(connection) = self.connection.take() {
            // What fails here is done at the next start.
            let _ = self.database.checkpoint(&connection, true);
        }
    }

    /// The next mutation, after what is due while nothing waits; `None` at the end.
    fn next(&mut self) -> Option<Queued> {
        if let Some(job) = self.waiting.pop_front() {
            return Some(job);
        }
        while self.connection.is_some() && self.upkeep.is_left() {
            let patience = if self.upkeep.is_due() { Duration::ZERO } else { IDLE };
            match self.jobs.recv_timeout(patience) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.keep_up(),
            }
        }
        self.jobs.recv().ok()
    }

    fn keep_up(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        match self.upkeep.step(&self.database, &mut connection, &self.shared, now()) {
            Ok(()) => self.connection = Some(connection),
            Err(error) => self.health.cannot_write(&error),
        }
    }

    /// One transaction for those that wait.
    fn run_batch(&mut self) {
        let mut connection = match self.connection.take().map_or_else(|| self.connect(), Ok) {
            Ok(connection) => connection,
            Err(error) => {
                self.health.cannot_write(&error);
                return self.refuse_all(StoreError::Unavailable);
            }
        };
        match self.commit_batch(&mut connection) {
            Ok(Some(operations)) => {
                let frames = database::wal_frames(&connection).unwrap_or(0);
                self.upkeep.committed(operations, frames);
                self.connection = Some(connection);
            }
            // A new connection is opened for the next batch.
            Ok(None) => (),
            // Only the lock was missing. The connection is as it was.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                self.refuse_expired(&error);
                self.connection = Some(connection);
            }
            Err(error) => {
                let answer = self.health.write_failed(&error);
                self.refuse_all(answer);
            }
        }
    }

    /// Runs and commits a batch, and answers. Returns the number of operations; `None` where the
    /// commit failed. After an error nothing was run, and the batch still waits.
    fn commit_batch(&mut self, connection: &mut Connection) -> rusqlite::Result<Option<usize>> {
        let waited = self.waiting.front().map_or(Duration::ZERO, |job| job.since.elapsed());
        connection.busy_timeout(LOCK_WAIT.saturating_sub(waited))?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let max_size = self.shared.limits.max_size;
        let shortage = space::shortage(&transaction, self.database.path(), max_size)?;
        let batch = self.take_batch();
        let operations = batch.iter().map(|job| job.demand.operations).sum();
        let (done, finished) = self.run_jobs(&transaction, batch, shortage);
        let committed = finished.and_then(|()| database::commit(transaction));
        let answer = match &committed {
            Ok(()) => Ok(()),
            Err(error) => Err(self.health.write_failed(error)),
        };
        if answer.is_ok() && done.iter().any(|(_, outcome)| outcome.is_ok()) {
            self.health.could_write();
        }
        for (job, outcome) in done {
            job.finish(outcome.and(answer));
        }
        Ok(committed.ok().map(|()| operations))
    }

    fn take_batch(&mut self) -> Vec<Queued> {
        let mut operations = 0;
        let mut batch = Vec::new();
        while let Some(job) = self.waiting.front() {
            operations += job.demand.operations;
            if operations > BATCH && !batch.is_empty() {
                break;
            }
            batch.extend(self.waiting.pop_front());
        }
        batch
    }

    /// Refuses those that have waited too long for the lock.
    fn refuse_expired(&mut self, error: &rusqlite::Error) {
        self.health.cannot_write(error);
        while self.waiting.front().is_some_and(|job| job.since.elapsed() >= LOCK_WAIT) {
            if let Some(job) = self.waiting.pop_front() {
                job.finish(Err(StoreError::Unavailable));
            }
        }
    }

    fn refuse_all(&mut self, error: StoreError) {
        for job in self.waiting.drain(..) {
            job.finish(Err(error));
        }
    }

    fn connect(&self) -> Result<Connection, OpenError> {
        let mut connection = self.database.open(Role::Writer)?;
        self.prepare(&mut connection).map_err(|error| self.database.error(&error))?;
        Ok(connection)
    }

    fn prepare(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        space::limit(connection, self.shared.limits.max_size)?;
        let keep = i64::try_from(self.shared.limits.keep_changes.as_secs()).unwrap_or(i64::MAX);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        database::make_durable(self.database.path())?;
        let sql = "UPDATE changes_state SET keep_seconds = ?1 WHERE keep_seconds <> ?1";
        transaction.execute(sql, params![keep])?;
        database::commit(transaction)
    }

    /// Each mutation in a savepoint of its own: one that fails, or panics, undoes its own writes
    /// alone. Then the search tables, for all of them.
    fn run_jobs(
        &self,
        transaction: &Transaction<'_>,
        batch: Vec<Queued>,
        shortage: Option<StoreError>,
    ) -> (Vec<Done>, rusqlite::Result<()>) {
        let writing = Writing::new(transaction);
        let run = |mut job: Queued| {
            let outcome = match shortage {
                Some(error) if !job.demand.frees_space => Err(error),
                _ => self.run_one(&writing, &mut job),
            };
            (job, outcome)
        };
        let done = batch.into_iter().map(run).collect();
        // Where SQLite has ended the transaction, the commit reports it.
        let finished = if transaction.is_autocommit() { Ok(()) } else { writing.finish() };
        (done, finished)
    }

    /// `Ok` also for a mutation that rejected itself: its own outcome says so.
    fn run_one(&self, writing: &Writing<'_>, queued: &mut Queued) -> Result<(), StoreError> {
        let transaction = writing.connection();
        let failed = |error: rusqlite::Error| self.health.write_failed(&error);
        // SQLite may have ended the transaction, after a full disk for instance. Nothing may be
        // written outside of it.
        if transaction.is_autocommit() {
            return Err(StoreError::Unavailable);
        }
        execute(transaction, "SAVEPOINT mutation").map_err(failed)?;
        let pending = writing.pending_search();
        let (keeps, outcome) = match catch_unwind(AssertUnwindSafe(|| queued.job.run(writing))) {
            Ok(Verdict::Keep) => (true, Ok(())),
            Ok(Verdict::RollBack) => (false, Ok(())),
            Ok(Verdict::Failed(error)) => (false, Err(failed(error))),
            Err(_) => {
                tracing::error!("a mutation panicked and is undone");
                (false, Err(StoreError::Internal))
            }
        };
        if !keeps {
            writing.forget_search(pending);
            if !transaction.is_autocommit() {
                writing.undo().map_err(|DatabaseError(error)| failed(error))?;
            }
        }
        if !transaction.is_autocommit() {
            execute(transaction, "RELEASE mutation").map_err(failed)?;
        }
        outcome
    }
}

fn now() -> Timestamp {
    Clock::system().now().timestamp()
}
