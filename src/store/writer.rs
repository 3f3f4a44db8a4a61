//! The one writer of a tenant. Changes that come while it works wait for it together and share a commit: one wait for the
//! disk serves them all, and none is finished before it is over.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::connection::{self, Schema};
use super::records::{ReadError, Writing};
use super::tenants::lock;
use super::trouble::Trouble;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::panics::{self, Panicked};
use crate::turns;

/// One change that waits for its tenant's writer.
pub trait Change: Send {
    /// Runs inside the transaction. What it wrote is undone where it fails.
    fn run(&mut self, writing: &Writing<'_>) -> Result<(), ReadError>;

    /// Called once, after the commit or with the reason that it did not come to it.
    fn finish(self: Box<Self>, outcome: Result<(), Error>);
}

/// Changes in one commit: enough to fill the time a disk needs, few enough that the first need not wait long.
const BATCH: usize = 128;

/// From how many waiting changes on a tenant whose file does not answer takes no more.
const MOST_WAITING: usize = 64;

/// From when on a writer that waits for its file counts as stuck.
const STUCK: Duration = Duration::from_millis(250);

pub(super) struct Writer {
    path: PathBuf,
    schema: &'static Schema,
    trouble: Arc<Trouble>,
    metrics: Arc<Metrics>,
    queue: Mutex<Queue>,
    /// Opened with the first change: a tenant that is only read needs none.
    connection: Mutex<Option<Connection>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Box<dyn Change>>,
    /// Somebody works through the queue.
    led: bool,
    /// Since when the leader waits for the file.
    waits_since: Option<Instant>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Writer {
    pub fn new(path: PathBuf, schema: &'static Schema, trouble: Arc<Trouble>, metrics: Arc<Metrics>) -> Writer {
        Writer { path, schema, trouble, metrics, queue: Mutex::default(), connection: Mutex::new(None) }
    }

    /// Queues the change. The first to come leads: it works through the queue until it is empty, also for those who came
    /// meanwhile and left their change with it.
    pub fn submit(&self, change: Box<dyn Change>) {
        let mut queue = lock(&self.queue);
        let stuck = queue.waits_since.is_some_and(|since| since.elapsed() > STUCK);
        if stuck && queue.waiting.len() >= MOST_WAITING {
            drop(queue);
            change.finish(Err(Error::TenantUnavailable));
            return;
        }
        queue.waiting.push_back(change);
        if queue.led {
            return;
        }
        queue.led = true;
        drop(queue);
        let leading = Leading(self);
        while leading.goes_on() {
            self.run_batch();
            self.metrics.lock_waits.add(connection::take_lock_waits());
        }
    }

    /// One transaction for all that wait.
    fn run_batch(&self) {
        // Taken out, and put back only after a commit: after a failure the next change begins with a new connection.
        let mut place = lock(&self.connection);
        lock(&self.queue).waits_since = Some(Instant::now());
        let opened = place.take().map_or_else(|| connection::open(&self.path, self.schema), Ok);
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(error) => {
                self.trouble.cannot_write(&error);
                return self.refuse_all(&Error::TenantUnavailable);
            }
        };
        let transaction = match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
            Ok(transaction) => transaction,
            Err(error) => {
                let error = self.trouble.writing(&error);
                return self.refuse_all(&error);
            }
        };
        let batch = self.take_batch();
        let done = self.run_changes(&transaction, batch);
        let committed = turns::while_waiting(|| commit(transaction));
        match &committed {
            Ok(()) => *place = Some(connection),
            Err(error) => self.trouble.cannot_write(error),
        }
        drop(place);
        if committed.is_ok() && done.iter().any(|(_, outcome)| outcome.is_ok()) {
            self.trouble.could_write();
        }
        for (change, outcome) in done {
            let outcome = match (&committed, outcome) {
                (Err(_), Ok(())) => Err(Error::TenantUnavailable),
                (_, outcome) => outcome,
            };
            finish(change, outcome);
        }
    }

    fn take_batch(&self) -> Vec<Box<dyn Change>> {
        let mut queue = lock(&self.queue);
        queue.waits_since = None;
        let count = queue.waiting.len().min(BATCH);
        queue.waiting.drain(..count).collect()
    }

    fn refuse_all(&self, error: &Error) {
        let waiting = {
            let mut queue = lock(&self.queue);
            queue.waits_since = None;
            std::mem::take(&mut queue.waiting)
        };
        for change in waiting {
            finish(change, Err(error.clone()));
        }
    }

    /// Each change in a savepoint of its own: one that fails, or panics, undoes its own writes alone.
    fn run_changes(
        &self,
        transaction: &Transaction<'_>,
        batch: Vec<Box<dyn Change>>,
    ) -> Vec<(Box<dyn Change>, Result<(), Error>)> {
        let mut done = Vec::with_capacity(batch.len());
        for mut change in batch {
            let outcome = self.run_one(transaction, &mut *change);
            done.push((change, outcome));
        }
        done
    }

    fn run_one(&self, transaction: &Transaction<'_>, change: &mut dyn Change) -> Result<(), Error> {
        let failed = |error: rusqlite::Error| self.trouble.writing(&error);
        // SQLite may have ended the transaction, after a full disk for instance. Nothing may be written outside of it.
        if transaction.is_autocommit() {
            return Err(Error::TenantUnavailable);
        }
        execute(transaction, "SAVEPOINT change").map_err(failed)?;
        let outcome = match catch_unwind(AssertUnwindSafe(|| change.run(&Writing::new(transaction)))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ReadError::Refused(error))) => Err(error),
            Ok(Err(ReadError::Database(error))) => Err(failed(error)),
            Err(_) => {
                let Panicked { place, message } = panics::last();
                tracing::error!(place, panic = message, file = %self.path.display(), "a change panicked and is undone");
                Err(Error::InternalError)
            }
        };
        if outcome.is_err() && !transaction.is_autocommit() {
            execute(transaction, "ROLLBACK TO change").map_err(failed)?;
        }
        if !transaction.is_autocommit() {
            execute(transaction, "RELEASE change").map_err(failed)?;
        }
        outcome
    }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// A transaction that SQLite has ended by itself cannot be committed, and nothing of it is there.
fn commit(transaction: Transaction<'_>) -> rusqlite::Result<()> {
    if transaction.is_autocommit() {
        let ended = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT_ROLLBACK);
        return Err(rusqlite::Error::SqliteFailure(ended, Some("the transaction was rolled back".to_owned())));
    }
    transaction.commit()
}

/// A panic while one answer is sent must not keep the others from theirs.
fn finish(change: Box<dyn Change>, outcome: Result<(), Error>) {
    if catch_unwind(AssertUnwindSafe(|| change.finish(outcome))).is_err() {
        let Panicked { place, message } = panics::last();
        tracing::error!(place, panic = message, "finishing a change panicked");
    }
}

/// The right to work through the queue. It ends with the queue's emptiness, and also with a panic.
struct Leading<'a>(&'a Writer);

impl Leading<'_> {
    fn goes_on(&self) -> bool {
        let mut queue = lock(&self.0.queue);
        queue.led = !queue.waiting.is_empty();
        queue.led
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.refuse_all(&Error::InternalError);
            lock(&self.0.queue).led = false;
        }
    }
}
