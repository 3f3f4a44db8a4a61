//! The server's one writer of a tenant: a thread that owns the writing connection.
//!
//! A commit is durable only after a sync of the disk, and a sync takes about as long for a hundred
//! changes as for one. So mutations share commits. Example with a disk that syncs in 5 ms: while
//! the thread commits a first mutation, 40 others arrive and wait in the channel. The next commit
//! takes all 40. The tenant gets some 8,000 changes a second. With a commit for each change, it
//! would get 200.
//!
//! A *group* is the mutations that share a commit. (A batch of the API is one mutation.) One group:
//!
//! 1. `BEGIN IMMEDIATE` takes the file's lock. The lock also keeps out commands such as `import`,
//!    which write from other processes.
//! 2. Each mutation runs. If the 7th of 40 is rejected, it has written nothing. If SQLite fails or
//!    the 7th panics, the group is rolled back, and runs again with a savepoint for each mutation. Then
//!    only the writes of the 7th are rolled back. (A batch may be rejected after writes of its
//!    first operations, so it always has a savepoint.)
//! 3. The transaction commits and syncs.
//! 4. Each of the 40 clients gets its response.
//!
//! No response is sent before step 3, not even a rejection: its reason may be a change of the same
//! transaction. Example: the 3rd mutation deletes a customer, and the 4th answers 404 for it. If
//! the commit fails, the customer is still there, and both clients get 503.
//!
//! Between commits the thread does upkeep: it removes expired entries and responses, and copies the
//! WAL into the file. Each step is bounded, so that a mutation does not wait long.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use r2d2::Pool;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};

use crate::clock::{Clock, Timestamp};
use crate::config::TenantLimits;
use crate::files::{RESERVE, free_space};
use crate::model::TenantId;
use crate::store::database::{self, Database, FileIdentity, LOCK_WAIT, Role, execute};
use crate::store::error::{Rejection, Result, StoreCode, StoreError};
use crate::store::records::{
    Change, ChangeContext, ChangeKind, Changed, Reading, Writing, remove_old_entries,
};
use crate::store::registry::Registry;

/// Changes that commit together or not at all.
pub struct Mutation {
    /// One change, or the operations of a batch.
    pub changes: Vec<Change>,
    pub idempotency_key: Option<IdempotencyKey>,
    pub context: ChangeContext,
    /// The client waits since then.
    pub since: Instant,
    /// Makes the response to these changes. It is stored under the idempotency key, in the same
    /// transaction.
    pub make_response: MakeResponse,
    pub send: SendOutcome,
}

type MakeResponse = Box<dyn Fn(&[Changed]) -> StoredResponse + Send>;

/// Sends the outcome to the client: after the commit, or when nothing will be committed.
pub(super) type SendOutcome = Box<dyn FnOnce(Outcome) + Send>;

/// The response to a mutation. It is stored under the idempotency key of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// The HTTP status.
    pub status: u16,
    /// The path of a new record.
    pub location: Option<String>,
    /// The version of a record that is there after the mutation.
    pub etag: Option<String>,
    /// Empty without one.
    pub body: Vec<u8>,
}

/// An idempotency key and the fingerprint of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The bytes of the UUID.
    pub key: [u8; 16],
    /// SHA-256 of what makes two requests the same.
    pub request: [u8; 32],
}

/// How long a response is stored, in seconds.
const KEPT_FOR: i64 = 24 * 60 * 60;

/// How a mutation ended. Only [`Outcome::Changed`] has changed anything.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    Changed(StoredResponse),
    /// The response to an earlier request with the same idempotency key.
    Replayed(StoredResponse),
    /// Another request had the same idempotency key.
    KeyReused,
    /// With the number of the rejected change.
    Rejected(usize, Rejection),
    Failed(StoreError),
}

impl Reading<'_> {
    /// The outcome of a request if its idempotency key was used in the last 24 hours.
    pub fn replay(&self, key: &IdempotencyKey, now: Timestamp) -> Result<Option<Outcome>> {
        let sql = "SELECT status, location, etag, body, request FROM idempotency
                   WHERE key = ? AND created_at > ?";
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut rows = statement.query(params![key.key, now.unix() - KEPT_FOR])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        if row.get::<_, [u8; 32]>(4)? != key.request {
            return Ok(Some(Outcome::KeyReused));
        }
        let response = StoredResponse {
            status: row.get(0)?,
            location: row.get(1)?,
            etag: row.get(2)?,
            body: row.get(3)?,
        };
        Ok(Some(Outcome::Replayed(response)))
    }
}

impl Writing<'_> {
    /// Stores the response to a request, in place of one that is over.
    fn store_response(
        &self,
        IdempotencyKey { key, request }: &IdempotencyKey,
        response: &StoredResponse,
        now: Timestamp,
    ) -> Result<()> {
        let StoredResponse { status, location, etag, body } = response;
        self.connection()
            .prepare_cached(
                "INSERT OR REPLACE INTO idempotency
                   (key, request, status, location, etag, body, created_at)
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![key, request, status, location, etag, body, now.unix()])?;
        Ok(())
    }
}

impl Mutation {
    /// The caller rolls back what it has written, unless the outcome is [`Outcome::Changed`].
    /// With a `shortage`, only deletions run.
    fn run(&self, writing: &Writing<'_>, shortage: Option<&StoreError>) -> Result<Outcome> {
        let now = self.context.at;
        if let Some(key) = &self.idempotency_key
            && let Some(outcome) = writing.replay(key, now)?
        {
            return Ok(outcome);
        }
        let is_deletion = |change: &Change| matches!(change.kind, ChangeKind::Delete(_));
        if let Some(error) = shortage
            && !self.changes.iter().all(is_deletion)
        {
            return Ok(Outcome::Failed(error.clone()));
        }
        let mut done = Vec::with_capacity(self.changes.len());
        for (number, change) in self.changes.iter().enumerate() {
            match writing.apply(change, &done) {
                Ok(changed) => done.push(changed),
                Err(error) => return Ok(Outcome::Rejected(number, error.into_rejection()?)),
            }
        }
        let response = (self.make_response)(&done);
        if let Some(key) = &self.idempotency_key {
            writing.store_response(key, &response, now)?;
        }
        Ok(Outcome::Changed(response))
    }
}

/// Removes at most `count` responses that are over. Runs inside a transaction.
fn remove_old_responses(
    connection: &Connection,
    now: Timestamp,
    count: u16,
) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM idempotency WHERE id IN
                 (SELECT id FROM idempotency WHERE created_at <= ? ORDER BY created_at LIMIT ?)";
    connection.prepare_cached(sql)?.execute(params![now.unix() - KEPT_FOR, count])
}

/// A group takes no further mutation when it has tried this many changes, or has changed this many
/// records. With more, the first client would wait long.
const GROUP: usize = 128;

/// How long one mutation may run (contract section 6). A mutation of the most records takes a tenth
/// of a second, so only a machine or a disk in trouble needs longer.
const MUTATION_TIME: Duration = Duration::from_secs(5);

/// A WAL of this length is emptied before the next group, and again when it has grown by as much.
const LONG_WAL: u64 = 48 << 20;

/// How long a group waits for the reads that use a long WAL. Most lists end sooner.
const READERS_WAIT: Duration = Duration::from_millis(250);

/// The longest WAL, if the disk has the space. A read of another process may keep it from being
/// emptied for hours.
const MAX_WAL: u64 = 1 << 30;

/// The most mutations that wait. A further mutation gets 503 `overloaded` at once.
const MAX_WAITING: usize = 1_024;

/// How long the writer waits for a mutation before a step of upkeep. A client that sends one change
/// after the other needs less than this time between two changes. Without the pause, each of its
/// changes would wait for a step.
const PAUSE: Duration = Duration::from_millis(200);

/// Changed records after which a step of upkeep is due, also while mutations wait.
const CHANGES: usize = 170;

/// The bytes of the WAL from which on a step of upkeep copies the WAL into the file.
const COPIED_WAL: u64 = 8 << 20;

/// The most entries, and the most responses, that one step of upkeep removes. It is more than the
/// groups between two steps add.
const REMOVED: u16 = 2_000;

/// SQLite's instructions between two looks at a deadline: well under a millisecond.
pub(super) const INSTRUCTIONS: i32 = 4_000;

/// The kind of the last failure that was logged, and when. All requests for a damaged file fail,
/// each where it meets the damage, and one line a minute is enough. A file that could be opened
/// begins anew, so that its next failure is logged at once.
pub(super) type LastFailure = Mutex<Option<(StoreCode, Instant)>>;

/// How long a failure of the kind of the last one is not logged again.
const LOG_PAUSE: Duration = Duration::from_mins(1);

/// Logs why a file cannot be used, or takes no change. Returns the error, for the answer.
pub(super) fn log_failure(
    failure: &LastFailure,
    database: &Database,
    error: StoreError,
) -> StoreError {
    let (file, cause) = (database.path().display(), &error.message);
    let kind = match &error.code {
        code @ (StoreCode::Busy | StoreCode::Interrupted | StoreCode::DiskFull) => code.clone(),
        _ => StoreCode::Unavailable,
    };
    let mut last = failure.lock();
    let is_logged = |(last, at): &(StoreCode, Instant)| *last == kind && at.elapsed() < LOG_PAUSE;
    if last.as_ref().is_some_and(is_logged) {
        return error;
    }
    match kind {
        StoreCode::Busy => {
            tracing::warn!(%file, cause, "another program, such as an import, uses the tenant's file");
        }
        StoreCode::Interrupted => {
            tracing::warn!(%file, cause, "a change took too long and was rolled back");
        }
        StoreCode::DiskFull => tracing::error!(%file, cause, "the disk is full"),
        _ => tracing::error!(%file, cause, "the tenant's file cannot be used"),
    }
    *last = Some((kind, Instant::now()));
    error
}

/// What the readers and the writer of one tenant's file share.
#[derive(Clone)]
pub(super) struct OpenFile {
    pub(super) tenant: TenantId,
    pub(super) registry: Arc<Registry>,
    pub(super) database: Database,
    pub(super) limits: TenantLimits,
    pub(super) readers: Pool<SqliteConnectionManager>,
    pub(super) failure: Arc<LastFailure>,
    pub(super) writers: Arc<Writers>,
}

impl OpenFile {
    pub(super) fn failed(&self, error: StoreError) -> StoreError {
        log_failure(&self.failure, &self.database, error)
    }
}

/// Sends the outcome of a mutation, after the commit or when nothing will be committed. If sending
/// one response panics, Rust prints the panic, and the other responses are sent all the same.
pub(super) fn send(client: SendOutcome, outcome: Outcome) {
    let _ = catch_unwind(AssertUnwindSafe(|| client(outcome)));
}

/// The threads of all tenants, also of tenants that are closed.
#[derive(Debug, Default)]
pub(super) struct Writers {
    pub(super) threads: Mutex<Vec<Arc<JoinHandle<()>>>>,
    /// Whether the threads end at once. They commit nothing any more.
    is_over: AtomicBool,
}

/// How long the threads have to end once they are interrupted.
const INTERRUPT_WAIT: Duration = Duration::from_secs(1);

impl Writers {
    /// Waits until the threads have ended. All queues must be closed. Threads that still run after
    /// `wait` are interrupted, and roll back.
    pub(super) fn end(&self, wait: Duration) {
        if !self.have_ended(wait) {
            self.is_over.store(true, Ordering::Relaxed);
            self.have_ended(INTERRUPT_WAIT);
        }
    }

    fn have_ended(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        while self.threads.lock().iter().any(|thread| !thread.is_finished()) {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// The sending end of the thread's queue. When it is dropped, the thread finishes the queued
/// mutations and ends.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) queue: SyncSender<Mutation>,
    pub(super) thread: Arc<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(file: OpenFile) -> std::io::Result<Writer> {
        let (queue, waiting) = mpsc::sync_channel(MAX_WAITING);
        let writers = Arc::clone(&file.writers);
        let mut writer = WriterThread {
            file,
            waiting,
            connection: None,
            identity: None,
            next_wait: LONG_WAL,
            time_limit: Arc::default(),
            changes: 0,
            // An earlier process or an import may have left entries.
            has_upkeep: true,
        };
        let thread =
            thread::Builder::new().name("writer".to_owned()).spawn(move || writer.run())?;
        let thread = Arc::new(thread);
        let mut threads = writers.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(Arc::clone(&thread));
        drop(threads);
        Ok(Writer { queue, thread })
    }

    /// Whether the thread has panicked.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Queues a mutation. The thread later sends its outcome. The mutation also counts as too many
    /// while a thread that panicked is being replaced.
    pub(super) fn submit(&self, mutation: Mutation) {
        if let Err(TrySendError::Full(refused) | TrySendError::Disconnected(refused)) =
            self.queue.try_send(mutation)
        {
            let error = StoreError::new(StoreCode::QueueFull, "too many changes wait");
            send(refused.send, Outcome::Failed(error));
        }
    }
}

struct WriterThread {
    file: OpenFile,
    waiting: Receiver<Mutation>,
    /// Opened with the first mutation, and again after a failure.
    connection: Option<Connection>,
    /// The file of the connection.
    identity: Option<FileIdentity>,
    /// The length of the WAL from which on a group waits for its readers.
    next_wait: u64,
    /// When the mutation that runs is interrupted.
    time_limit: Arc<Mutex<Option<Instant>>>,
    /// The records that were changed since the last step of upkeep that was due, at most.
    changes: usize,
    /// Whether there may be something to remove.
    has_upkeep: bool,
}

impl WriterThread {
    fn run(&mut self) {
        while let Some(first) = self.next() {
            // An open connection goes on with a file that was removed or replaced.
            let found = self.file.database.identity().ok();
            let connection = match self.connection.take() {
                Some(connection) if found == self.identity => Ok(connection),
                _ => self.connect(lock_wait(first.since)),
            };
            match connection {
                // If its state is unknown, the next group opens another connection.
                Ok(mut connection) => {
                    let is_usable = self.run_group(&mut connection, first);
                    self.connection = is_usable.then_some(connection);
                }
                Err(error) => {
                    self.refuse(first, self.file.failed(error));
                }
            }
            if self.file.writers.is_over.load(Ordering::Relaxed) {
                return;
            }
            if self.changes >= CHANGES {
                self.run_upkeep();
            }
        }
        if let Some(connection) = self.connection.take() {
            // If the checkpoint fails, the next start copies the WAL. The thread waits for no
            // reader, because the next writer of the file may wait for this thread.
            let outcome = connection.busy_timeout(Duration::ZERO);
            let _ = outcome.and_then(|()| self.file.database.checkpoint(&connection, true));
        }
    }

    /// Waits for the next mutation, and does upkeep while none comes. `None` if the tenant closes.
    fn next(&mut self) -> Option<Mutation> {
        while let Some(connection) = &self.connection {
            match self.waiting.recv_timeout(PAUSE) {
                Ok(mutation) => return Some(mutation),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.has_upkeep => self.run_upkeep(),
                Err(RecvTimeoutError::Timeout) => {
                    // A thousand idle writers must not keep their pages.
                    let _ = execute(connection, "PRAGMA shrink_memory");
                    break;
                }
            }
        }
        self.waiting.recv().ok()
    }

    fn run_upkeep(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        match self.remove_and_copy(&mut connection) {
            Ok(()) => self.connection = Some(connection),
            Err(error) => drop(self.file.failed(error.into())),
        }
    }

    fn remove_and_copy(&mut self, connection: &mut Connection) -> rusqlite::Result<()> {
        self.has_upkeep = false;
        // If another process writes, nothing is removed. The next commit makes a step due again.
        connection.busy_timeout(Duration::ZERO)?;
        let outcome = self.remove_expired(connection, Clock::system().now().timestamp());
        connection.busy_timeout(LOCK_WAIT)?;
        match outcome {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            outcome => outcome?,
        }
        if self.changes >= CHANGES {
            self.changes = 0;
            // A checkpoint copies each page once, so a longer WAL has fewer copies for each change.
            if self.file.database.used_wal(connection)? >= COPIED_WAL {
                self.file.database.checkpoint(connection, false)?;
            }
        }
        Ok(())
    }

    fn remove_expired(
        &mut self,
        connection: &mut Connection,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let keep = self.file.limits.keep_changes;
        let entries = remove_old_entries(&transaction, now, keep, REMOVED.into())?;
        let responses = remove_old_responses(&transaction, now, REMOVED)?;
        database::commit(transaction)?;
        self.has_upkeep = entries.max(responses) >= REMOVED.into();
        Ok(())
    }

    /// Commits `first` and the mutations that wait or arrive before the commit, until the group has
    /// [`GROUP`] changes, and answers. Returns whether the connection can be used again.
    fn run_group(&mut self, connection: &mut Connection, first: Mutation) -> bool {
        let since = first.since;
        // An unknown free space refuses nothing.
        let free = free_space(self.file.database.path()).map_or(u64::MAX, |(free, _)| free);
        let shortened = self.shorten_wal(connection, longest_wal(free), since);
        let transaction = match begin(connection, lock_wait(since)) {
            Ok(transaction) => transaction,
            Err(error) => {
                let error = self.file.failed(error.into());
                // Only the lock was missing.
                let is_usable = error.code == StoreCode::Busy;
                self.refuse(first, error);
                return is_usable;
            }
        };
        if let Err(refusal) = self.check_active() {
            send(first.send, Outcome::Failed(refusal));
            return true;
        }
        let shortage = shortened.and_then(|wal| self.find_shortage(&transaction, wal, free));
        let shortage = shortage.unwrap_or_else(|error| Some(self.file.failed(error.into())));
        let (mut group, mut outcomes, mut changes) = (vec![first], Vec::new(), 0);
        // Why SQLite has ended the transaction by itself, on a full disk for example.
        let mut ended = None;
        let mut with_savepoints = false;
        while let Some(mutation) = group.get(outcomes.len()) {
            let writing = Writing::new(&transaction, &mutation.context);
            let outcome = self.run_mutation(&writing, mutation, shortage.as_ref(), with_savepoints);
            // A rolled back change has taken its time, too.
            changes += mutation.changes.len().max(writing.changed());
            if transaction.is_autocommit() {
                ended = Some(match outcome {
                    Some(Outcome::Failed(error)) => error,
                    _ => self.file.database.unusable("SQLite has ended the transaction"),
                });
                break;
            }
            if let Some(outcome) = outcome {
                outcomes.push(outcome);
            } else {
                let begun = execute(&transaction, "ROLLBACK")
                    .and_then(|()| execute(&transaction, "BEGIN IMMEDIATE"))
                    .map_err(|error| self.file.failed(error.into()));
                if let Err(error) = begun.and_then(|()| self.check_active()) {
                    ended = Some(error);
                    break;
                }
                outcomes.clear();
                with_savepoints = true;
            }
            if changes < GROUP && outcomes.len() == group.len() {
                group.extend(self.waiting.try_recv());
            }
        }
        let committed = match ended {
            Some(error) => Err(error),
            None => database::commit(transaction).map_err(|error| self.file.failed(error.into())),
        };
        answer(group, outcomes, &committed);
        self.changes += changes;
        self.has_upkeep = true;
        committed.is_ok()
    }

    /// Runs one mutation. Returns `None` if the group must run again, with savepoints.
    ///
    /// Every rejection of a change comes before its first write, so a mutation of one change needs
    /// no savepoint, which would copy each page that the change writes. Only if it panics, or if
    /// SQLite fails, its writes cannot be told from those of the group.
    fn run_mutation(
        &self,
        writing: &Writing<'_>,
        mutation: &Mutation,
        shortage: Option<&StoreError>,
        with_savepoints: bool,
    ) -> Option<Outcome> {
        let transaction = writing.connection();
        let has_savepoint = with_savepoints || mutation.changes.len() > 1;
        let savepoint = |sql| if has_savepoint { execute(transaction, sql) } else { Ok(()) };
        if let Err(error) = savepoint("SAVEPOINT mutation") {
            return Some(Outcome::Failed(self.file.failed(error.into())));
        }
        *self.time_limit.lock() = Some(Instant::now() + MUTATION_TIME);
        let ran = catch_unwind(AssertUnwindSafe(|| mutation.run(writing, shortage)));
        *self.time_limit.lock() = None;
        let outcome = match ran {
            Ok(Ok(outcome)) => outcome,
            _ if !has_savepoint && !transaction.is_autocommit() => return None,
            Ok(Err(error)) => Outcome::Failed(self.file.failed(error)),
            Err(_) => Outcome::Failed(StoreError::other("a mutation panicked and is undone")),
        };
        if transaction.is_autocommit() {
            return Some(outcome);
        }
        let rolled_back = match outcome {
            Outcome::Changed(_) => Ok(()),
            _ => savepoint("ROLLBACK TO mutation"),
        };
        match rolled_back.and_then(|()| savepoint("RELEASE mutation")) {
            Ok(()) => Some(outcome),
            Err(error) => Some(Outcome::Failed(self.file.failed(error.into()))),
        }
    }

    /// Answers a mutation that the file does not take. A repeat gets its response all the same: a
    /// read needs neither the lock nor space.
    fn refuse(&self, mutation: Mutation, error: StoreError) {
        let mut outcome = Outcome::Failed(error);
        if let Some(key) = &mutation.idempotency_key
            && let Ok(connection) = self.file.readers.get()
            && let Ok(Some(replayed)) = Reading::new(&connection).replay(key, mutation.context.at)
        {
            outcome = replayed;
        }
        send(mutation.send, outcome);
    }

    /// Refuses a change of a suspended tenant. Asked inside the write transaction: a suspension
    /// waits until the transactions that began before it have ended.
    fn check_active(&self) -> Result<()> {
        match self.file.registry.find_suspension(self.file.tenant) {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => Err(reason.into()),
            Err(error) => Err(self.file.failed(self.file.database.unusable(error))),
        }
    }

    /// Why the file takes only deletions now (contract section 6, `tenant_unavailable`). `None` if
    /// it takes all changes. `wal` is the length of the WAL, and `free` the disk's free space.
    fn find_shortage(
        &self,
        transaction: &Transaction<'_>,
        wal: u64,
        free: u64,
    ) -> rusqlite::Result<Option<StoreError>> {
        if free >= RESERVE && wal >= longest_wal(free) {
            let cause = "another program reads the file, so its write-ahead log cannot be emptied";
            return Ok(Some(self.file.failed(StoreError::new(StoreCode::Busy, cause))));
        }
        find_shortage(transaction, free, wal, self.file.limits.max_size)
    }

    /// Empties the WAL if it is long, or if the file may reach its largest size with it. Returns
    /// its length.
    ///
    /// Checkpoints of upkeep wait for no reader. SQLite starts a WAL again only while nobody reads
    /// from it, so two clients whose lists overlap would let it grow without end. While a group
    /// waits here, no frame is added, and new reads no longer need the WAL. At `longest` bytes, the
    /// group waits until the reads of all clients have ended.
    fn shorten_wal(
        &mut self,
        connection: &Connection,
        longest: u64,
        since: Instant,
    ) -> rusqlite::Result<u64> {
        let length = self.file.database.wal_length();
        // The WAL may become a part of the file, and counts in the size besides.
        let most = self.file.database.file_length().saturating_add(2 * length);
        if length == 0 || length < self.next_wait.min(longest) && most < self.file.limits.max_size {
            return Ok(length);
        }
        let wait = match length {
            _ if length >= longest => LOCK_WAIT,
            _ if length >= self.next_wait => READERS_WAIT,
            _ => Duration::ZERO,
        };
        connection.busy_timeout(wait.min(lock_wait(since)))?;
        // A checkpoint needs space, too. If it fails, deletions may still run.
        let left = self.file.database.checkpoint(connection, true).unwrap_or(length);
        self.next_wait = left + LONG_WAL;
        Ok(left)
    }

    fn connect(&mut self, wait: Duration) -> Result<Connection> {
        self.identity = Some(self.file.database.identity()?);
        let mut connection = self.file.database.open(Role::Writer)?;
        let (time_limit, writers) = (Arc::clone(&self.time_limit), Arc::clone(&self.file.writers));
        let is_over = move || {
            let time_limit = *time_limit.lock();
            writers.is_over.load(Ordering::Relaxed)
                || time_limit.is_some_and(|end| Instant::now() >= end)
        };
        connection
            .progress_handler(INSTRUCTIONS, Some(is_over))
            .map_err(|error| self.file.database.error(error))?;
        self.prepare(&mut connection, wait).map_err(|error| self.file.database.error(error))?;
        Ok(connection)
    }

    /// Prepares a new connection for writing. The WAL may be from a process that has ended at a
    /// failed sync: see database/wal.rs. Also stores `--max-tenant-size`, because commands do not
    /// know this option of `serve`.
    fn prepare(&self, connection: &mut Connection, wait: Duration) -> rusqlite::Result<()> {
        let size = i64::try_from(self.file.limits.max_size).unwrap_or(i64::MAX);
        let transaction = begin(connection, wait)?;
        database::make_durable(self.file.database.path())?;
        let sql = "UPDATE changes_state SET max_size = ?1 WHERE max_size IS NOT ?1";
        transaction.execute(sql, [size])?;
        database::commit(transaction)
    }
}

/// Sends the outcomes of a group. If `committed` is an error, there may be fewer outcomes than
/// mutations.
fn answer(group: Vec<Mutation>, outcomes: Vec<Outcome>, committed: &Result<()>) {
    let mut outcomes = outcomes.into_iter();
    for mutation in group {
        // A rejection, too, depends on the commit: its reason may be a change of the same group.
        let outcome = match (committed, outcomes.next()) {
            (_, Some(Outcome::Failed(error))) => Outcome::Failed(error),
            (Err(error), _) => Outcome::Failed(error.clone()),
            (Ok(()), Some(outcome)) => outcome,
            (Ok(()), None) => Outcome::Failed(StoreError::other("a mutation has no outcome")),
        };
        send(mutation.send, outcome);
    }
}

/// How long a mutation that came at `since` may still wait for a lock. The time in the queue
/// counts, so that no client waits more than 5 s for the lock.
fn lock_wait(since: Instant) -> Duration {
    LOCK_WAIT.saturating_sub(since.elapsed())
}

fn longest_wal(free: u64) -> u64 {
    MAX_WAL.min(free / 4)
}

/// Why only deletions are taken: the disk is nearly full, or the file with its WAL has reached its
/// largest size.
pub(super) fn find_shortage(
    connection: &Connection,
    free: u64,
    wal: u64,
    max_size: u64,
) -> rusqlite::Result<Option<StoreError>> {
    if free < RESERVE {
        let message = "the disk has too little free space; nothing was changed";
        return Ok(Some(StoreError::new(StoreCode::DiskFull, message)));
    }
    let size = used_bytes(connection)?.saturating_add(wal);
    let message = "the tenant's file has reached its size limit; nothing was changed";
    Ok((size >= max_size).then(|| StoreError::new(StoreCode::SizeLimit, message)))
}

fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let count =
        |pragma: &str| connection.prepare_cached(pragma)?.query_row([], |row| row.get::<_, i64>(0));
    let used = count("PRAGMA page_count")?.saturating_sub(count("PRAGMA freelist_count")?);
    // An operator may have given the file another page size.
    let bytes = used.saturating_mul(count("PRAGMA page_size")?);
    Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
}

fn begin(connection: &mut Connection, wait: Duration) -> rusqlite::Result<Transaction<'_>> {
    connection.busy_timeout(wait)?;
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}
