//! The one writer of a tenant: group commit.
//!
//! Mutations that arrive while the writer works are queued and share the next commit, so one sync of the disk serves them all. No
//! mutation is answered before its commit, nor before the copy has confirmed it, if there is one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::confirmation::Confirmation;
use super::due_maintenance::DueMaintenance;
use super::file_health::FileHealth;
use super::job::{Job, Mutation, Verdict, finish};
use super::page_cache::{CacheBudget, TrackedConnection};
use super::shared::Shared;
use crate::metrics::Metrics;
use crate::panics::{self, PanicInfo};
use crate::store::connection::{self, Checkpoint, OpenError};
use crate::store::error::{DatabaseError, MutationError, StoreError};
use crate::store::log_tail::TailError;
use crate::store::records::Writing;
use crate::store::schema::{self, Schema};

/// The most mutations in one commit: enough to use the time of a sync, few enough that the first does not wait long.
const BATCH: usize = 128;

/// The page cache. A batch of 100 records changes about as many pages of each index: 5 MiB. A cache of SQLite's usual 2 MiB would write
/// pages into the log before the commit, and read them again.
const CACHE_KIB: i32 = 16 << 10;

/// The most mutations that wait for a file that does not respond; further ones are refused at once.
const MAX_WAITING: usize = 64;

/// How long the writer waits for the file before it counts as not responding: other writers of the file, an import for example, leave it
/// within two seconds (contract section 10).
const STALLED: Duration = Duration::from_secs(2);

pub(super) struct Writer {
    path: PathBuf,
    schema: &'static Schema,
    budget: Arc<CacheBudget>,
    health: Arc<FileHealth>,
    metrics: Arc<Metrics>,
    /// How long an entry of the journal is kept.
    keep_changes: Duration,
    queue: Mutex<Queue>,
    /// Opened with the first mutation: a tenant that is only read needs none.
    connection: Mutex<Option<TrackedConnection>>,
    due_maintenance: DueMaintenance,
    /// `None` if mutations are answered without a copy.
    confirmation: Option<Arc<Confirmation<Box<dyn Job>>>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Box<dyn Job>>,
    /// A thread works through the queue.
    has_leader: bool,
    /// Since when the leader has waited for the file: for the maintenance, for the file's lock, or for a commit.
    stalled_since: Option<Instant>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Writer {
    pub fn new(path: PathBuf, shared: &Shared, health: Arc<FileHealth>) -> Writer {
        let confirmation = |confirmer| Arc::new(Confirmation::new(confirmer, path.clone(), finish));
        Writer {
            confirmation: shared.confirmer.clone().map(confirmation),
            path,
            schema: shared.schema,
            budget: Arc::clone(&shared.budget),
            health,
            metrics: Arc::clone(&shared.metrics),
            keep_changes: shared.keep_changes,
            queue: Mutex::default(),
            connection: Mutex::new(None),
            due_maintenance: DueMaintenance::default(),
        }
    }

    /// Queues a mutation. `done` is called once, on this thread or another, after the commit and its confirmation by the copy, or with
    /// the reason why nothing was committed or confirmed. What `work` rejected is rolled back, and reported once the changes that it may
    /// have seen are committed.
    pub fn submit<T, E>(
        &self,
        work: impl FnOnce(&Writing<'_>) -> Result<T, MutationError<E>> + Send + 'static,
        done: impl FnOnce(Result<Result<T, E>, StoreError>) + Send + 'static,
    ) where
        T: Send + 'static,
        E: Send + 'static,
    {
        self.enqueue(Box::new(Mutation::new(work, done)));
    }

    /// The first thread to come becomes the leader: it works through the queue until it is empty, for the followers too.
    fn enqueue(&self, job: Box<dyn Job>) {
        if let Some(Err(error)) = self.confirmation.as_ref().map(|confirmation| confirmation.admit()) {
            return job.finish(Err(error));
        }
        let mut queue = self.queue.lock();
        let stalled = queue.stalled_since.is_some_and(|since| since.elapsed() > STALLED);
        if stalled && queue.waiting.len() >= MAX_WAITING {
            drop(queue);
            job.finish(Err(StoreError::Unavailable));
            return;
        }
        queue.waiting.push_back(job);
        if queue.has_leader {
            return;
        }
        queue.has_leader = true;
        drop(queue);
        let leader = Leader(self);
        while leader.has_work() {
            self.run_batch();
            self.metrics.lock_waits.add(connection::take_lock_waits());
        }
    }

    /// One transaction for all that wait.
    fn run_batch(&self) {
        self.queue.lock().stalled_since = Some(Instant::now());
        // Taken out, and put back only after a commit: after a failure the next mutation begins with a new connection.
        let mut slot = self.connection.lock();
        let kept = slot.take().filter(|_| !self.health.log.needs_work());
        let mut connection = match kept.map_or_else(|| self.connect(), Ok) {
            Ok(connection) => connection,
            Err(error) => {
                // What failed syncs have left undone was reported when they failed.
                if !self.health.log.needs_work() {
                    self.health.cannot_write(&error);
                }
                return self.refuse_all(StoreError::Unavailable);
            }
        };
        let transaction = match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
            Ok(transaction) => transaction,
            Err(error) => return self.refuse_all(self.health.writing(&error)),
        };
        if !self.may_write_log() {
            return self.refuse_all(StoreError::CopyUnavailable);
        }
        let batch = self.take_batch();
        let (done, finished) = self.run_jobs(&transaction, batch);
        self.queue.lock().stalled_since = Some(Instant::now());
        let committed = finished.and_then(|()| commit(transaction));
        self.queue.lock().stalled_since = None;
        match &committed {
            Ok(()) => {
                connection.update_usage();
                self.count_commit(&connection);
                *slot = Some(connection);
            }
            Err(error) => {
                self.health.cannot_write(error);
                self.health.log.commit_failed(&self.path, error);
            }
        }
        drop(slot);
        if committed.is_ok() && done.iter().any(|(_, outcome)| outcome.is_ok()) {
            self.health.could_write();
        }
        let committed = committed.map_err(|_| StoreError::Unavailable);
        self.finish_all(done.into_iter().map(|(job, outcome)| (job, outcome.and(committed))));
    }

    /// Tells all of a batch the outcome: those that succeeded once the copy has confirmed the commit.
    fn finish_all(&self, done: impl Iterator<Item = Done>) {
        let Some(confirmation) = &self.confirmation else {
            return done.for_each(|(job, outcome)| finish(job, outcome));
        };
        let (succeeded, others): (Vec<Done>, Vec<Done>) =
            done.partition(|(job, outcome)| outcome.is_ok() && job.has_succeeded());
        if !succeeded.is_empty() {
            confirmation.begin(succeeded.into_iter().map(|(job, _)| job).collect());
        }
        others.into_iter().for_each(|(job, outcome)| finish(job, outcome));
    }

    /// Whether the log may be written to, as far as the copy is concerned: it reads the log in another way than SQLite.
    pub fn may_write_log(&self) -> bool {
        let Some(Err(error)) = self.confirmation.as_ref().map(|confirmation| confirmation.check_log()) else {
            return true;
        };
        match error {
            TailError::Unfinished => self.health.require_reopening(),
            TailError::Unreadable(_) | TailError::Unread(_) => self.health.cannot_write(&error),
        }
        false
    }

    fn note_end_of_log(&self, frames: u32) {
        if let Some(confirmation) = self.confirmation.as_ref().filter(|_| frames > 0) {
            confirmation.log_tail().committed(frames);
        }
    }

    fn count_commit(&self, connection: &Connection) {
        let frames = connection::take_wal_frames();
        self.note_end_of_log(frames);
        if frames > 0 {
            self.due_maintenance.count_commit(frames);
        }
        if self.due_maintenance.is_log_too_long()
            && !self.leaves_checkpoints()
            && let Ok(Some(Checkpoint { frames, .. })) = self.checkpoint(connection)
        {
            self.due_maintenance.checkpointed(frames);
        }
    }

    /// A checkpoint. If the disk fails, the tenant's file is closed and its log replayed.
    ///
    /// # Errors
    ///
    /// Those of SQLite.
    pub fn checkpoint(&self, connection: &Connection) -> rusqlite::Result<Option<Checkpoint>> {
        if self.health.log.needs_replay() {
            return Ok(None);
        }
        connection::checkpoint(connection).inspect_err(|error| self.health.checkpoint_failed(error))
    }

    /// Whether Litestream does the checkpoints.
    ///
    /// It holds a read lock while it runs, so that nobody else starts a log again that it has not read. With a confirmed copy it loses
    /// this lock when it does a checkpoint during a request to its control socket. While it does not run, it has none. When it runs
    /// again, a new log may hide from it that it has missed the end of the one before.
    pub fn leaves_checkpoints(&self) -> bool {
        self.confirmation.is_some() || connection::is_copied(&self.path)
    }

    /// Whether Litestream may need the log although nobody reads it.
    pub fn copy_may_need_log(&self) -> bool {
        self.confirmation.as_ref().is_some_and(|confirmation| confirmation.copy_may_run())
    }

    /// A checkpoint that also truncates the log. If the disk fails, the tenant's file is closed and its log replayed.
    ///
    /// # Errors
    ///
    /// Those of SQLite.
    pub fn truncate_log(&self, connection: &Connection) -> rusqlite::Result<Option<Checkpoint>> {
        connection::truncate_log(connection).inspect_err(|error| self.health.checkpoint_failed(error))
    }

    /// Handles a commit of the maintenance that failed.
    pub fn commit_failed(&self, error: &rusqlite::Error) {
        self.health.log.commit_failed(&self.path, error);
    }

    /// What is due between the commits.
    pub fn due_maintenance(&self) -> &DueMaintenance {
        &self.due_maintenance
    }

    /// Runs `work` on the writing connection, between two commits. Mutations wait meanwhile. `None` if the file cannot be opened, or a
    /// failed sync has left something undone: the next mutation reports that.
    ///
    /// # Errors
    ///
    /// Those of `work`.
    pub fn with_connection<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        if self.health.log.needs_work() {
            return Ok(None);
        }
        let mut slot = self.connection.lock();
        let Ok(mut connection) = slot.take().map_or_else(|| self.connect(), Ok) else { return Ok(None) };
        if !self.may_write_log() {
            return Ok(None);
        }
        let result = work(&mut connection).map(Some);
        self.note_end_of_log(connection::take_wal_frames());
        if connection.is_autocommit() {
            connection.update_usage();
            *slot = Some(connection);
        }
        result
    }

    /// Opens a connection for checkpoints, during which mutations go on.
    ///
    /// # Errors
    ///
    /// Those of SQLite.
    pub fn connect_beside(&self) -> rusqlite::Result<Connection> {
        let connection = connection::connect(&self.path)?;
        connection::persist_wal(&connection);
        connection::keep_log_on_close(&connection);
        Ok(connection)
    }

    /// Counts a step of merging in the metrics.
    pub fn count_merge(&self, duration: Duration) {
        self.metrics.search_merges.add(duration);
    }

    /// Counts a checkpoint in the metrics.
    pub fn count_checkpoint(&self, duration: Duration) {
        self.metrics.checkpoints.add(duration);
    }

    fn connect(&self) -> Result<TrackedConnection, OpenError> {
        if self.health.log.needs_replay() {
            return Err(connection::unusable(&self.path, "its write-ahead log has to be replayed"));
        }
        self.health.log.ensure_discarded(&self.path)?;
        let connection = schema::open(&self.path, self.schema)?;
        connection::persist_wal(&connection);
        connection::count_wal_frames(&connection);
        connection::set_cache_size(&connection, CACHE_KIB)
            .and_then(|()| connection::keep_temporary_files_in_memory(&connection))
            .map_err(|error| connection::unusable(&self.path, error))?;
        Ok(TrackedConnection::new(connection, Arc::clone(&self.budget), Arc::clone(&self.health)))
    }

    /// Frees the page cache, or closes the connection, unless it is in use: the next mutation opens one.
    pub fn release_memory(&self, close: bool) {
        if let Some(mut slot) = self.connection.try_lock() {
            match slot.as_mut() {
                Some(connection) if !close => connection.release_cache(),
                _ => *slot = None,
            }
        }
    }

    fn take_batch(&self) -> Vec<Box<dyn Job>> {
        let mut queue = self.queue.lock();
        queue.stalled_since = None;
        let count = queue.waiting.len().min(BATCH);
        queue.waiting.drain(..count).collect()
    }

    fn refuse_all(&self, error: StoreError) {
        let waiting = {
            let mut queue = self.queue.lock();
            queue.stalled_since = None;
            std::mem::take(&mut queue.waiting)
        };
        for job in waiting {
            finish(job, Err(error));
        }
    }

    /// Each mutation in a savepoint of its own: one that fails, or panics, undoes its own writes alone. Then the search tables
    /// and the journal, for all of them: without these none can be committed.
    fn run_jobs(&self, transaction: &Transaction<'_>, batch: Vec<Box<dyn Job>>) -> (Vec<Done>, rusqlite::Result<()>) {
        let writing = Writing::new(transaction);
        let run = |mut job: Box<dyn Job>| {
            let outcome = self.run_one(&writing, &mut *job);
            (job, outcome)
        };
        let done = batch.into_iter().map(run).collect();
        // Where SQLite has ended the transaction, nothing may be written any more; the commit reports it.
        let finish = || writing.finish_search().and_then(|()| writing.finish_journal(Some(self.keep_changes)));
        let finished = if transaction.is_autocommit() { Ok(()) } else { finish() };
        (done, finished)
    }

    /// `Ok` also for a mutation that rejected itself: its own outcome says so.
    fn run_one(&self, writing: &Writing<'_>, job: &mut dyn Job) -> Result<(), StoreError> {
        let transaction = writing.connection();
        let failed = |error: rusqlite::Error| self.health.writing(&error);
        // SQLite may have ended the transaction, after a full disk for instance. Nothing may be written outside of it.
        if transaction.is_autocommit() {
            return Err(StoreError::Unavailable);
        }
        execute(transaction, "SAVEPOINT mutation").map_err(failed)?;
        let (pending, journal) = (writing.pending_search(), writing.journal());
        let (keeps, outcome) = match catch_unwind(AssertUnwindSafe(|| job.run(writing))) {
            Ok(Verdict::Keep) => (true, Ok(())),
            Ok(Verdict::RollBack) => (false, Ok(())),
            Ok(Verdict::Failed(error)) => (false, Err(failed(error))),
            Err(_) => {
                let PanicInfo { location: place, message } = panics::last();
                tracing::error!(place, panic = message, file = %self.path.display(), "a mutation panicked and is undone");
                (false, Err(StoreError::Internal))
            }
        };
        if !keeps {
            writing.forget_search(pending);
            writing.restore_journal(journal);
        }
        if !keeps && !transaction.is_autocommit() {
            writing.undo().map_err(|DatabaseError(error)| failed(error))?;
        }
        if !transaction.is_autocommit() {
            execute(transaction, "RELEASE mutation").map_err(failed)?;
        }
        outcome
    }
}

impl Writing<'_> {
    /// Undoes what the present mutation has written. The mutation must be rejected then.
    ///
    /// # Errors
    ///
    /// Those of SQLite.
    pub fn undo(&self) -> Result<(), DatabaseError> {
        Ok(execute(self.connection(), "ROLLBACK TO mutation")?)
    }
}

/// A mutation and its outcome before the commit.
type Done = (Box<dyn Job>, Result<(), StoreError>);

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

/// The thread that works through the queue. It steps down when the queue is empty, and also with a panic.
struct Leader<'a>(&'a Writer);

impl Leader<'_> {
    fn has_work(&self) -> bool {
        let mut queue = self.0.queue.lock();
        queue.has_leader = !queue.waiting.is_empty();
        queue.has_leader
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.refuse_all(StoreError::Internal);
            self.0.queue.lock().has_leader = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use scheduled_thread_pool::ScheduledThreadPool;

    use super::*;
    use uuid::Uuid;

    use crate::clock::Clock;
    use crate::model::{ALL, Kind, Resource, Value};
    use crate::store::records::{KeyLabel, Origin};
    use crate::store::tenants::SCHEMA;

    type Outcome = Result<Result<(), &'static str>, StoreError>;

    fn customer() -> &'static Resource {
        ALL[0]
    }

    fn origin() -> Origin {
        let key = KeyLabel { id: 1, name: "test".to_owned(), prefix: "tdk_test".to_owned() };
        Origin::new(Clock::system().now(), key, Uuid::nil())
    }

    /// Adds a customer whose name, and whatever else must not be null, is `text`.
    fn add(writing: &Writing<'_>, text: &str) -> Result<(), MutationError<&'static str>> {
        let value = |field: &crate::model::Field| match (field.required, field.kind) {
            (true, Kind::Text { .. }) => Value::Text(text.to_owned()),
            _ => field.default_value(),
        };
        writing.insert(customer(), customer().fields.iter().map(value).collect(), &origin())?;
        Ok(())
    }

    /// A new file, and its writer.
    fn new_writer(folder: &tempfile::TempDir) -> (PathBuf, Writer) {
        let path = folder.path().join("1.db");
        drop(schema::create(&path, &SCHEMA).unwrap());
        let opener = ScheduledThreadPool::builder().num_threads(1).build();
        let shared = Shared {
            schema: &SCHEMA,
            max_reads: 1,
            budget: Arc::default(),
            maintenance: Arc::new(ScheduledThreadPool::builder().num_threads(1).build()),
            opener: Arc::new(opener),
            metrics: Arc::new(Metrics::new(|_| "")),
            keep_changes: Duration::from_hours(24),
            open: Arc::default(),
            confirmer: None,
        };
        let writer = Writer::new(path.clone(), &shared, Arc::new(FileHealth::new(1)));
        (path, writer)
    }

    fn done(report: &Sender<Outcome>) -> impl FnOnce(Outcome) + Send + 'static {
        let report = report.clone();
        move |outcome| report.send(outcome).unwrap()
    }

    /// Adds a first customer, and then runs the mutations that `submit` submits as one batch. Returns the outcomes of all.
    fn outcomes_of_batch(writer: &Writer, submit: impl FnOnce(&Sender<Outcome>)) -> Vec<Outcome> {
        let (running, is_running) = mpsc::channel();
        let (go, may_go): (Sender<()>, Receiver<()>) = mpsc::channel();
        let (report, outcomes) = mpsc::channel();
        // It holds the writer until all others wait.
        let hold = move |writing: &Writing<'_>| {
            running.send(()).unwrap();
            may_go.recv().unwrap();
            add(writing, "the first")
        };
        let first = done(&report);
        std::thread::scope(|scope| {
            scope.spawn(|| writer.submit(hold, first));
            is_running.recv().unwrap();
            submit(&report);
            go.send(()).unwrap();
        });
        outcomes.try_iter().collect()
    }

    #[test]
    fn a_rejection_beside_a_change_that_cannot_be_committed_is_not_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (path, writer) = new_writer(&folder);
        let outcomes = outcomes_of_batch(&writer, |report| {
            let deletes = |writing: &Writing<'_>| {
                // The commit finds a reference to a record that is missing.
                let statements = "PRAGMA defer_foreign_keys = ON;
                    INSERT INTO employees (customer_id, email, is_active, created_at, updated_at, search, version)
                    VALUES (9, '', 1, '', '', '', 1)";
                writing.connection().execute_batch(statements).map_err(DatabaseError)?;
                Ok(writing.delete(customer(), 1, &origin()).map(drop)?)
            };
            writer.submit(deletes, done(report));
            let rejected = |writing: &Writing<'_>| {
                assert!(!writing.exists(customer(), 1)?);
                Err(MutationError::Rejected("no such record"))
            };
            writer.submit(rejected, done(report));
        });
        assert_eq!(outcomes, [Ok(Ok(())), Err(StoreError::Unavailable), Err(StoreError::Unavailable)]);
        let file = schema::open(&path, &SCHEMA).unwrap();
        let count: i64 = file.query_row("SELECT count(*) FROM customers", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 1);
    }

    #[test]
    fn what_a_failed_mutation_wrote_is_gone_from_the_search_too() {
        let folder = tempfile::tempdir().unwrap();
        let (path, writer) = new_writer(&folder);
        let outcomes = outcomes_of_batch(&writer, |report| {
            writer.submit(|writing| add(writing, "second kept"), done(report));
            let rejected = |writing: &Writing<'_>| {
                add(writing, "third refused")?;
                Err(MutationError::Rejected("no"))
            };
            writer.submit(rejected, done(report));
            let panics = |writing: &Writing<'_>| {
                add(writing, "fourth panics")?;
                panic!("on purpose")
            };
            writer.submit(panics, done(report));
            let renames = |writing: &Writing<'_>| {
                add(writing, "fifth removed")?;
                writing.update(
                    customer(),
                    3,
                    &[(&customer().fields[0], Value::Text("fifth renamed".to_owned()))],
                    &origin(),
                )?;
                add(writing, "sixth kept")
            };
            writer.submit(renames, done(report));
            writer.submit(|writing| Ok(writing.delete(customer(), 2, &origin()).map(drop)?), done(report));
        });
        let done = Ok(Ok(()));
        assert_eq!(outcomes, [done, done, Ok(Err("no")), Err(StoreError::Internal), done, done]);

        let file = schema::open(&path, &SCHEMA).unwrap();
        let found = |term: &str| -> Vec<i64> {
            let mut statement = file.prepare("SELECT rowid FROM customers_search(?) ORDER BY rowid").unwrap();
            statement.query_map([term], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        assert_eq!(found("fir"), [1]);
        assert_eq!(found("kep"), [4], "the second was deleted");
        assert_eq!(found("ren"), [3]);
        for gone in ["sec", "thi", "fou", "rem"] {
            assert_eq!(found(gone), [0; 0], "{gone}");
        }
        let journal = "SELECT group_concat(substr(action, 1, 1) || record_id, ' ') FROM changes ORDER BY seq";
        let entries: String = file.query_row(journal, [], |row| row.get(0)).unwrap();
        assert_eq!(entries, "c1 c2 c3 u3 c4 d2");
        let counts = "SELECT last_seq - base, entries FROM journal";
        let counts: (i64, i64) = file.query_row(counts, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(counts, (6, 6), "what was rolled back used no number");
        assert_eq!(crate::store::records::damaged_search(&file).unwrap(), [""; 0]);
    }
}
