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
use crate::store::database::{self, Database, Deadline, FileIdentity, LOCK_WAIT, Role, execute};
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

/// When a failure was logged last. All requests for a damaged file fail, and one line a minute is
/// enough. A file that could be opened begins anew, so that its next failure is logged at once.
pub(super) type LastFailure = Mutex<Option<Instant>>;

/// How long no further failure is logged.
const LOG_PAUSE: Duration = Duration::from_mins(1);

/// Logs why a file cannot be used, or takes no change. Returns the error, for the answer.
pub(super) fn log_failure(
    failure: &LastFailure,
    database: &Database,
    error: StoreError,
) -> StoreError {
    let mut last = failure.lock();
    if last.is_none_or(|at| at.elapsed() >= LOG_PAUSE) {
        let file = database.path().display();
        tracing::warn!(%file, cause = error.message, "the tenant's file cannot be used");
        *last = Some(Instant::now());
    }
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
    /// Shows the end of the server that the file, or its writer, is still there.
    pub(super) _is_open: Arc<()>,
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

/// The sending end of the thread's queue. When it is dropped, the thread finishes the queued
/// mutations and ends.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) queue: SyncSender<Mutation>,
    pub(super) thread: JoinHandle<()>,
}

impl Writer {
    pub(super) fn start(file: OpenFile) -> std::io::Result<Writer> {
        let (queue, waiting) = mpsc::sync_channel(MAX_WAITING);
        let mut writer = WriterThread {
            file,
            waiting,
            connection: None,
            identity: None,
            next_wait: LONG_WAL,
            changes: 0,
            // An earlier process or an import may have left entries.
            has_upkeep: true,
        };
        let thread =
            thread::Builder::new().name("writer".to_owned()).spawn(move || writer.run())?;
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
                Err(error) => send(first.send, Outcome::Failed(self.file.failed(error))),
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

    /// Runs `first` and the mutations that wait or arrive meanwhile, commits, and answers. Returns
    /// whether the connection can be used again.
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
                send(first.send, Outcome::Failed(error));
                return is_usable;
            }
        };
        let shortage = shortened.and_then(|wal| self.find_shortage(&transaction, wal, free));
        let shortage = shortage.unwrap_or_else(|error| Some(self.file.failed(error.into())));
        let mut group = vec![first];
        let ran = self.run_mutations(&transaction, &mut group, shortage.as_ref());
        let committed = ran.and_then(|outcomes| {
            let committed = database::commit(transaction);
            committed.map(|()| outcomes).map_err(|error| self.file.failed(error.into()))
        });
        self.has_upkeep = true;
        let is_usable = committed.is_ok();
        match committed {
            Ok(outcomes) => {
                group
                    .into_iter()
                    .zip(outcomes)
                    .for_each(|(done, outcome)| send(done.send, outcome));
            }
            // Also of a rejection: its reason may be a change of the same group.
            Err(error) => {
                group.into_iter().for_each(|lost| send(lost.send, Outcome::Failed(error.clone())));
            }
        }
        is_usable
    }

    /// Runs the mutations of the group, and those that arrive, until it has [`GROUP`] changes. Fails
    /// if nothing can be committed, for example because a full disk has ended the transaction.
    fn run_mutations(
        &mut self,
        transaction: &Transaction<'_>,
        group: &mut Vec<Mutation>,
        shortage: Option<&StoreError>,
    ) -> Result<Vec<Outcome>> {
        self.check_active()?;
        let (mut outcomes, mut changes, mut with_savepoints) = (Vec::new(), 0, false);
        while let Some(mutation) = group.get(outcomes.len()) {
            let writing = Writing::new(transaction, &mutation.context);
            let outcome = self.run_mutation(&writing, mutation, shortage, with_savepoints);
            // A rolled back change has taken its time, too.
            changes += mutation.changes.len().max(writing.changed());
            if transaction.is_autocommit() {
                return Err(match outcome {
                    Some(Outcome::Failed(error)) => error,
                    _ => self.file.database.unusable("SQLite has ended the transaction"),
                });
            }
            match outcome {
                Some(outcome) => outcomes.push(outcome),
                None => {
                    execute(transaction, "ROLLBACK")
                        .and_then(|()| execute(transaction, "BEGIN IMMEDIATE"))
                        .map_err(|error| self.file.failed(error.into()))?;
                    self.check_active()?;
                    outcomes.clear();
                    with_savepoints = true;
                }
            }
            if changes < GROUP && outcomes.len() == group.len() {
                group.extend(self.waiting.try_recv());
            }
        }
        self.changes += changes;
        Ok(outcomes)
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
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let _limited = Deadline::after(MUTATION_TIME).limit(transaction)?;
            mutation.run(writing, shortage)
        }));
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
        connection: &Connection,
        wal: u64,
        free: u64,
    ) -> rusqlite::Result<Option<StoreError>> {
        let (code, cause) = if free < RESERVE {
            (StoreCode::DiskFull, "the disk has too little free space")
        } else if wal >= longest_wal(free) {
            let cause = "another program reads the file, so its write-ahead log cannot be emptied";
            (StoreCode::Busy, cause)
        } else if used_bytes(connection)? >= self.file.limits.max_size {
            (StoreCode::SizeLimit, "the file has reached its size limit")
        } else {
            return Ok(None);
        };
        Ok(Some(self.file.failed(StoreError::new(code, cause))))
    }

    /// Empties the WAL if it is long. Returns its length.
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
        if length < self.next_wait.min(longest) {
            return Ok(length);
        }
        let wait = if length >= longest { LOCK_WAIT } else { READERS_WAIT };
        connection.busy_timeout(wait.min(lock_wait(since)))?;
        // A checkpoint needs space, too. If it fails, deletions may still run.
        let left = self.file.database.checkpoint(connection, true).unwrap_or(length);
        self.next_wait = left + LONG_WAL;
        Ok(left)
    }

    fn connect(&mut self, wait: Duration) -> Result<Connection> {
        self.identity = Some(self.file.database.identity()?);
        let mut connection = self.file.database.open(Role::Writer)?;
        // The WAL may be from a process that has ended at a failed sync: see database/wal.rs.
        begin(&mut connection, wait)
            .and_then(|_locked| database::make_durable(self.file.database.path()))
            .map_err(|error| self.file.database.error(error))?;
        Ok(connection)
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
