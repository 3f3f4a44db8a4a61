//! The one writer of a tenant. Changes that come while it works wait for it together and share a commit: one wait for the
//! disk serves them all, and none is finished before it is over.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::connection::{self, OpenError, Schema};
use super::file_health::Trouble;
use super::memory::{Counted, Memory};
use super::records::{ReadError, Writing};
use super::tenants::lock;
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
    memory: Arc<Memory>,
    trouble: Arc<Trouble>,
    metrics: Arc<Metrics>,
    queue: Mutex<Queue>,
    /// Opened with the first change: a tenant that is only read needs none.
    connection: Mutex<Option<Counted>>,
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
    pub fn new(
        path: PathBuf,
        schema: &'static Schema,
        memory: Arc<Memory>,
        trouble: Arc<Trouble>,
        metrics: Arc<Metrics>,
    ) -> Writer {
        Writer { path, schema, memory, trouble, metrics, queue: Mutex::default(), connection: Mutex::new(None) }
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
        let opened = place.take().map_or_else(|| self.connect(), Ok);
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
        let (done, searchable) = self.run_changes(&transaction, batch);
        let committed = searchable.and_then(|()| turns::while_waiting(|| commit(transaction)));
        match &committed {
            Ok(()) => {
                connection.count();
                *place = Some(connection);
            }
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

    fn connect(&self) -> Result<Counted, OpenError> {
        let connection = connection::open(&self.path, self.schema)?;
        connection::undo_in_memory(&connection)
            .map_err(|error| OpenError::Unusable { path: self.path.clone(), cause: error.to_string() })?;
        Ok(Counted::further(connection, Arc::clone(&self.memory)))
    }

    /// Frees the page cache, or closes the connection, unless it is in use: the next change opens one.
    pub fn give_back(&self, whole: bool) {
        if let Ok(mut place) = self.connection.try_lock() {
            match place.as_mut() {
                Some(connection) if !whole => connection.empty(),
                _ => *place = None,
            }
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

    /// Each change in a savepoint of its own: one that fails, or panics, undoes its own writes alone. Then the search tables,
    /// for all of them: without these none can be committed.
    fn run_changes(
        &self,
        transaction: &Transaction<'_>,
        batch: Vec<Box<dyn Change>>,
    ) -> (Vec<Done>, rusqlite::Result<()>) {
        let writing = Writing::new(transaction);
        let run = |mut change: Box<dyn Change>| {
            let outcome = self.run_one(&writing, &mut *change);
            (change, outcome)
        };
        let done = batch.into_iter().map(run).collect();
        // Where SQLite has ended the transaction, nothing may be written any more; the commit will say so.
        let searchable = if transaction.is_autocommit() { Ok(()) } else { writing.finish_search() };
        (done, searchable)
    }

    fn run_one(&self, writing: &Writing<'_>, change: &mut dyn Change) -> Result<(), Error> {
        let transaction = writing.connection();
        let failed = |error: rusqlite::Error| self.trouble.writing(&error);
        // SQLite may have ended the transaction, after a full disk for instance. Nothing may be written outside of it.
        if transaction.is_autocommit() {
            return Err(Error::TenantUnavailable);
        }
        execute(transaction, "SAVEPOINT change").map_err(failed)?;
        let pending = writing.pending_search();
        let outcome = match catch_unwind(AssertUnwindSafe(|| change.run(writing))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ReadError::Refused(error))) => Err(error),
            Ok(Err(ReadError::Database(error))) => Err(failed(error)),
            Err(_) => {
                let Panicked { place, message } = panics::last();
                tracing::error!(place, panic = message, file = %self.path.display(), "a change panicked and is undone");
                Err(Error::InternalError)
            }
        };
        if outcome.is_err() {
            writing.forget_search(pending);
        }
        if outcome.is_err() && !transaction.is_autocommit() {
            execute(transaction, "ROLLBACK TO change").map_err(failed)?;
        }
        if !transaction.is_autocommit() {
            execute(transaction, "RELEASE change").map_err(failed)?;
        }
        outcome
    }
}

/// A change and what became of it, before the commit.
type Done = (Box<dyn Change>, Result<(), Error>);

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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;
    use crate::model::{ALL, Kind, Resource, Value};
    use crate::store::tenants::SCHEMA;

    type Work = Box<dyn FnMut(&Writing<'_>) -> Result<(), ReadError> + Send>;

    /// Does its work and tells the outcome.
    struct Told(Work, Sender<Result<(), Error>>);

    impl Change for Told {
        fn run(&mut self, writing: &Writing<'_>) -> Result<(), ReadError> {
            self.0(writing)
        }

        fn finish(self: Box<Self>, outcome: Result<(), Error>) {
            self.1.send(outcome).unwrap();
        }
    }

    fn customer() -> &'static Resource {
        ALL[0]
    }

    /// Adds a customer whose name, and whatever else must not be null, is `text`.
    fn add(writing: &Writing<'_>, text: &str) -> Result<(), ReadError> {
        let value = |field: &crate::model::Field| match (field.required, field.kind) {
            (true, Kind::Text { .. }) => Value::Text(text.to_owned()),
            _ => field.default_value(),
        };
        writing.insert(customer(), customer().fields.iter().map(value).collect(), "2026-01-01T00:00:00Z")?;
        Ok(())
    }

    #[test]
    fn what_a_failed_change_wrote_is_gone_from_the_search_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.db");
        drop(connection::create(&path, &SCHEMA).unwrap());
        let metrics = Arc::new(Metrics::new(|_| ""));
        let writer = Writer::new(path.clone(), &SCHEMA, Arc::default(), Arc::new(Trouble::new(1)), metrics);

        let (running, is_running) = mpsc::channel();
        let (go, may_go): (Sender<()>, Receiver<()>) = mpsc::channel();
        let (told, outcomes) = mpsc::channel();
        let submit = |work: Work| writer.submit(Box::new(Told(work, told.clone())));
        std::thread::scope(|scope| {
            // It holds the writer until all others wait, which makes these one batch.
            let hold = Told(
                Box::new(move |writing| {
                    running.send(()).unwrap();
                    may_go.recv().unwrap();
                    add(writing, "the first")
                }),
                told.clone(),
            );
            scope.spawn(|| writer.submit(Box::new(hold)));
            is_running.recv().unwrap();
            submit(Box::new(|writing| add(writing, "second kept")));
            submit(Box::new(|writing| {
                add(writing, "third refused")?;
                Err(Error::InternalError.into())
            }));
            submit(Box::new(|writing| {
                add(writing, "fourth panics")?;
                panic!("on purpose")
            }));
            submit(Box::new(|writing| {
                add(writing, "fifth removed")?;
                writing.update(
                    customer(),
                    3,
                    &[(&customer().fields[0], Value::Text("fifth renamed".to_owned()))],
                    "now",
                )?;
                add(writing, "sixth kept")
            }));
            submit(Box::new(|writing| writing.delete(customer(), 2).map(drop).map_err(ReadError::from)));
            go.send(()).unwrap();
        });
        let outcomes: Vec<bool> = outcomes.try_iter().map(|outcome| outcome.is_ok()).collect();
        assert_eq!(outcomes, [true, true, false, false, true, true]);

        let file = connection::open(&path, &SCHEMA).unwrap();
        let found = |trigram: &str| -> Vec<i64> {
            let mut statement = file.prepare("SELECT rowid FROM customers_search(?) ORDER BY rowid").unwrap();
            statement.query_map([trigram], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        assert_eq!(found("fir"), [1]);
        assert_eq!(found("kep"), [4], "the second was deleted");
        assert_eq!(found("ren"), [3]);
        for gone in ["sec", "thi", "fou", "rem"] {
            assert_eq!(found(gone), [0; 0], "{gone}");
        }
        // Compares the table with the records.
        file.execute_batch("INSERT INTO customers_search (customers_search, rank) VALUES ('integrity-check', 1)")
            .unwrap();
    }
}
