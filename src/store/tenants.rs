//! The open tenant files: found by id, bounded in number, watched for being removed or replaced.

mod reuse;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use r2d2::{ManageConnection, Pool, PooledConnection};
use r2d2_sqlite::SqliteConnectionManager;
use scheduled_thread_pool::ScheduledThreadPool;

use reuse::Reuse;

use super::connection::{self, LOCK_WAIT, OpenError, Schema};
use super::error::{DatabaseError, MutationError, StoreError};
use super::file_health::FileHealth;
use super::memory::{Counted, Memory};
use super::records::{Reading, Writing};
use super::writer::Writer;
use crate::metrics::Metrics;
use crate::turns;

/// The layout of a tenant's file.
pub static SCHEMA: Schema =
    Schema { name: "tenant", version: 2, sql: include_str!("../../schema.sql"), migrations: &[WITHOUT_TRIGGERS] };

/// To version 2: records.rs keeps the search tables.
const WITHOUT_TRIGGERS: &str = "
    DROP TRIGGER customers_search_insert; DROP TRIGGER customers_search_update; DROP TRIGGER customers_search_delete;
    DROP TRIGGER employees_search_insert; DROP TRIGGER employees_search_update; DROP TRIGGER employees_search_delete;
    DROP TRIGGER hardware_search_insert; DROP TRIGGER hardware_search_update; DROP TRIGGER hardware_search_delete;";

/// How long a file that could not be opened is not tried again.
const FAILURE_REMEMBERED: Duration = Duration::from_secs(1);

/// Reading connections of one tenant: reads are short, and few are under way at once.
const READERS: u32 = 4;

/// How long a read waits for a tenant's first connection before a further one is opened for it.
const PATIENCE: Duration = Duration::from_millis(1);

/// How many tenants are closed at most for one that is opened.
const CLOSED_AT_ONCE: usize = 32;

/// One in so many reads that would have to wait does not: a further connection is opened for it.
const WAITS: usize = 16;

/// Limits of the set of open tenants.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tenants open at once; the least recently used is closed for the next.
    pub open: usize,
    /// What all tenants' page caches and further connections may take together, in bytes.
    pub memory: usize,
    /// Requests that read from one tenant at once. More come together only where its file does not answer, and then they
    /// must not hold every worker.
    pub reads_at_once: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { open: 1_000, memory: 48 << 20, reads_at_once: 16 }
    }
}

/// All tenants' files.
pub struct Tenants {
    folder: PathBuf,
    schema: &'static Schema,
    limits: Limits,
    slots: Mutex<HashMap<i64, Arc<Slot>>>,
    opened: Mutex<Opened>,
    reuse: Reuse,
    /// Tenants whose files are open, those too that are closed when their last request ends.
    open: Arc<AtomicUsize>,
    memory: Arc<Memory>,
    /// Held by whoever gives some of it back.
    giving_back: Mutex<()>,
    /// r2d2 starts three threads for each pool unless it is given some.
    opener: Arc<ScheduledThreadPool>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenants").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// One tenant's place, open or not. It stays when the file is closed, so that healths are reported once.
#[derive(Debug)]
struct Slot {
    /// Held for moments only.
    state: Mutex<State>,
    /// Held while the file is opened.
    opening: Mutex<()>,
    waiting: Places,
    last_use: AtomicU64,
    health: Arc<FileHealth>,
}

#[derive(Debug)]
enum State {
    Closed,
    Open(Arc<Tenant>),
    Failed(Instant),
}

/// One tenant's open file.
#[derive(Debug)]
pub struct Tenant {
    identity: Identity,
    further: Pool<Further>,
    reading: Places,
    reads_at_once: usize,
    writer: Writer,
    health: Arc<FileHealth>,
    metrics: Arc<Metrics>,
    /// The connection that the file was checked with, while nobody reads with it; most tenants never need another. Declared
    /// after the others and so closed after them: it leaves the log's file in place.
    first: Mutex<First>,
    first_is_idle: Condvar,
    _open: OneMore,
}

/// A tenant's first connection, while nobody reads with it.
#[derive(Debug)]
struct First {
    idle: Option<Counted>,
    /// Who waits for it.
    waiting: usize,
    /// How often somebody had to wait.
    waits: usize,
}

/// Counts one while it lives.
#[derive(Debug)]
struct OneMore(Arc<AtomicUsize>);

impl OneMore {
    fn of(count: &Arc<AtomicUsize>) -> OneMore {
        count.fetch_add(1, Ordering::Relaxed);
        OneMore(Arc::clone(count))
    }
}

impl Drop for OneMore {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Which file a path names, and whether it was written to by other means than SQLite's.
#[derive(Debug)]
struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Nanoseconds; a change is a reason to look at the header again.
    modified: AtomicU64,
}

impl Tenants {
    /// The tenants whose files lie in `data_dir`/tenants.
    pub fn new(data_dir: &Path, limits: Limits, metrics: Arc<Metrics>) -> Tenants {
        Tenants {
            folder: folder(data_dir),
            schema: &SCHEMA,
            limits,
            slots: Mutex::default(),
            opened: Mutex::default(),
            reuse: Reuse::new(limits.open),
            open: Arc::default(),
            memory: Arc::default(),
            giving_back: Mutex::default(),
            opener: Arc::new(ScheduledThreadPool::builder().num_threads(1).thread_name_pattern("opener").build()),
            metrics,
        }
    }

    /// The same with another schema: one that today's files have yet to be migrated to.
    #[cfg(test)]
    pub(super) fn with_schema(self, schema: &'static Schema) -> Tenants {
        Tenants { schema, ..self }
    }

    /// The tenant's file, opened if need be: 503 `tenant_unavailable` where it is missing, damaged, of a newer schema or
    /// cannot be opened now.
    pub fn open(&self, id: i64) -> Result<Arc<Tenant>, StoreError> {
        let slot = Arc::clone(lock(&self.slots).entry(id).or_insert_with(|| Arc::new(Slot::new(id))));
        self.reuse.count(&slot.last_use);
        if self.memory.bytes() > self.limits.memory {
            self.give_back();
        }
        if let Some(answer) = slot.present() {
            return answer;
        }
        let Some(_place) = slot.waiting.take(self.limits.reads_at_once) else {
            return Err(StoreError::Unavailable);
        };
        // Opening may take as long as a lock is waited for. Whoever waits here finds the outcome.
        let _opening = turns::lock(&slot.opening);
        if let Some(answer) = slot.present() {
            return answer;
        }
        self.make_room();
        match self.connect(id, &slot) {
            Ok(tenant) => {
                slot.health.opened();
                slot.set(State::Open(Arc::clone(&tenant)));
                lock(&self.opened).0.insert(id, Arc::clone(&slot));
                Ok(tenant)
            }
            Err(error) => {
                slot.health.cannot_open(&error);
                slot.set(State::Failed(Instant::now()));
                Err(StoreError::Unavailable)
            }
        }
    }

    fn connect(&self, id: i64, slot: &Slot) -> Result<Arc<Tenant>, OpenError> {
        let path = file(&self.folder, id);
        // Opened here, not in the pool: that would try again in the background and keep the caller waiting.
        let mut first = Counted::first(connection::open(&path, self.schema)?, Arc::clone(&self.memory));
        connection::keep_log(&first);
        // Reading the schema took as many pages as it has tables and indexes; few of them are asked for again.
        first.empty();
        let identity =
            Identity::of(&path).map_err(|e| OpenError::Unusable { path: path.clone(), cause: e.to_string() })?;
        let manager = Further { manager: connection::readers(&path), memory: Arc::clone(&self.memory) };
        let further = Pool::builder()
            .max_size(READERS - 1)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .connection_timeout(LOCK_WAIT)
            .thread_pool(Arc::clone(&self.opener))
            .build_unchecked(manager);
        Ok(Arc::new(Tenant {
            identity,
            further,
            reading: Places::default(),
            reads_at_once: self.limits.reads_at_once,
            writer: Writer::new(
                path,
                self.schema,
                Arc::clone(&self.memory),
                Arc::clone(&slot.health),
                Arc::clone(&self.metrics),
            ),
            health: Arc::clone(&slot.health),
            metrics: Arc::clone(&self.metrics),
            first: Mutex::new(First { idle: Some(first), waiting: 0, waits: 0 }),
            first_is_idle: Condvar::new(),
            _open: OneMore::of(&self.open),
        }))
    }

    /// Closes the least recently used tenants where as many are open as are worth it. Requests that are in one finish first.
    fn make_room(&self) {
        let most = self.reuse.worth_keeping();
        if self.open_count() < most {
            return;
        }
        let closed = lock(&self.opened).take_surplus(most);
        // Outside the lock, since closing a file takes its time.
        closed.iter().for_each(|slot| drop(slot.set(State::Closed)));
    }

    /// Gives back memory of the least recently used tenants until a quarter of what all may take is free. What is in use
    /// stays.
    fn give_back(&self) {
        let Ok(_giving_back) = self.giving_back.try_lock() else { return };
        let order: Vec<Arc<Slot>> = {
            let opened = lock(&self.opened);
            opened.oldest_first().iter().filter_map(|id| opened.0.get(id).cloned()).collect()
        };
        for writers_too in [false, true] {
            for tenant in order.iter().filter_map(|slot| slot.tenant()) {
                if self.memory.bytes() <= self.limits.memory / 4 * 3 {
                    return;
                }
                tenant.give_back(writers_too);
            }
        }
    }

    /// How many tenants are open.
    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Closes all files, so that nothing is left in a write-ahead log.
    pub fn close(&self) {
        *lock(&self.opened) = Opened::default();
        let slots = std::mem::take(&mut *lock(&self.slots));
        drop(slots);
    }
}

/// The slots that are open, and some that have been closed since.
#[derive(Debug, Default)]
struct Opened(HashMap<i64, Arc<Slot>>);

impl Opened {
    /// Takes out the least recently used, where with one more there would be more than `most`: a few at once, since to find
    /// them costs more than to close one, but not so many that the request which closes them has long to wait.
    fn take_surplus(&mut self, most: usize) -> Vec<Arc<Slot>> {
        self.0.retain(|_, slot| slot.is_open());
        let surplus = (self.0.len() + 1).saturating_sub(most);
        if surplus == 0 {
            return Vec::new();
        }
        let leaving = self.oldest_first();
        leaving.iter().take((surplus + most / 32).min(CLOSED_AT_ONCE)).filter_map(|id| self.0.remove(id)).collect()
    }

    /// Their tenants' ids, the least recently used first.
    fn oldest_first(&self) -> Vec<i64> {
        let by_use = self.0.iter().map(|(id, slot)| (slot.last_use.load(Ordering::Relaxed), *id));
        let mut by_use: Vec<(u64, i64)> = by_use.collect();
        by_use.sort_unstable();
        by_use.into_iter().map(|(_, id)| id).collect()
    }
}

/// Where the tenants' files lie.
pub fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("tenants")
}

/// The file of the tenant `id` in `folder`.
pub fn file(folder: &Path, id: i64) -> PathBuf {
    folder.join(format!("{id}.db"))
}

/// Removes a tenant's file, what SQLite and Litestream keep beside it, and copies from before migrations. A file that is not
/// there is no error.
pub fn remove_file(data_dir: &Path, id: i64) -> io::Result<()> {
    let path = file(&folder(data_dir), id);
    for name in files_of(&path)? {
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
    }
    match fs::remove_dir_all(litestreams(&path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => (),
    }
    connection::sync_folder(&path)
}

/// Where Litestream, if a copy is kept, holds the last changes of a database ready: a folder beside it, `.1.db-litestream`.
pub(super) fn litestreams(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push("-litestream");
    path.with_file_name(name)
}

/// The file itself first, then `-wal` and `-shm`, then what begins with its name and a dot.
fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = with_companions(path).into();
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(files) };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?.file_name();
        let rest = entry.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        if rest.is_some_and(|rest| rest.starts_with(b".")) {
            files.push(folder.join(entry));
        }
    }
    Ok(files)
}

/// A database's file and the two that SQLite keeps beside it.
pub(super) fn with_companions(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| connection::beside(path, suffix))
}

impl Slot {
    fn new(id: i64) -> Slot {
        Slot {
            state: Mutex::new(State::Closed),
            opening: Mutex::new(()),
            waiting: Places::default(),
            last_use: AtomicU64::new(0),
            health: Arc::new(FileHealth::new(id)),
        }
    }

    /// What is known without opening: the open file, or that it failed a moment ago.
    fn present(&self) -> Option<Result<Arc<Tenant>, StoreError>> {
        let state = lock(&self.state);
        match &*state {
            State::Open(tenant) => {
                let tenant = Arc::clone(tenant);
                drop(state);
                if tenant.identity.still_holds() && !self.health.take_read_only() {
                    return Some(Ok(tenant));
                }
                self.set(State::Closed);
                None
            }
            State::Failed(at) if at.elapsed() < FAILURE_REMEMBERED => Some(Err(StoreError::Unavailable)),
            State::Failed(_) | State::Closed => None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(*lock(&self.state), State::Open(_))
    }

    fn tenant(&self) -> Option<Arc<Tenant>> {
        match &*lock(&self.state) {
            State::Open(tenant) => Some(Arc::clone(tenant)),
            State::Closed | State::Failed(_) => None,
        }
    }

    /// The state before. It is returned, so that a file is not closed under the lock.
    fn set(&self, state: State) -> State {
        std::mem::replace(&mut *lock(&self.state), state)
    }
}

impl Tenant {
    /// Runs `work` on a connection that only reads.
    pub fn read<T>(&self, work: impl FnOnce(&Reading<'_>) -> Result<T, DatabaseError>) -> Result<T, StoreError> {
        let Some(_place) = self.reading.take(self.reads_at_once) else { return Err(StoreError::Unavailable) };
        let answer = match self.take_first() {
            // Where a panic or a failure left it in the middle of something, it does not come back.
            Some(mut connection) => {
                let answer = work(&Reading::new(&connection));
                connection.count();
                let mut first = lock(&self.first);
                first.idle = Some(connection).filter(|connection| connection.is_autocommit());
                if first.waiting > 0 {
                    self.first_is_idle.notify_one();
                }
                answer
            }
            None => {
                let mut connection = self.further()?;
                let answer = work(&Reading::new(&connection));
                connection.count();
                answer
            }
        };
        self.metrics.lock_waits.add(connection::take_lock_waits());
        match answer {
            Ok(answer) => {
                self.health.could_read();
                Ok(answer)
            }
            Err(DatabaseError(error)) => Err(self.health.reading(&error)),
        }
    }

    /// The first connection, unless it is in use and a further one may be had, or should be: most reads are over in
    /// microseconds, and to open a connection takes hundreds and memory that stays. Only a tenant that is busy gets one.
    fn take_first(&self) -> Option<Counted> {
        let mut first = lock(&self.first);
        if first.idle.is_some() || self.further.state().idle_connections > 0 {
            return first.idle.take();
        }
        first.waits += 1;
        self.metrics.pool_waits.add(1);
        if first.waits.is_multiple_of(WAITS) {
            return None;
        }
        first.waiting += 1;
        turns::while_waiting(|| {
            let waited = self.first_is_idle.wait_timeout_while(first, PATIENCE, |first| first.idle.is_none());
            let (mut first, _) = waited.unwrap_or_else(PoisonError::into_inner);
            first.waiting -= 1;
            first.idle.take()
        })
    }

    fn further(&self) -> Result<PooledConnection<Further>, StoreError> {
        if let Some(connection) = self.further.try_get() {
            return Ok(connection);
        }
        turns::while_waiting(|| self.further.get()).map_err(|error| {
            self.health.cannot_read(&error);
            StoreError::Unavailable
        })
    }

    /// Runs `work` in a transaction of the tenant's one writer and tells `done` the outcome, on this thread or another: what
    /// `work` returned once it is on disk, what it rejected, or why nothing was changed.
    pub fn mutate<T, E>(
        &self,
        work: impl FnOnce(&Writing<'_>) -> Result<T, MutationError<E>> + Send + 'static,
        done: impl FnOnce(Result<Result<T, E>, StoreError>) + Send + 'static,
    ) where
        T: Send + 'static,
        E: Send + 'static,
    {
        self.writer.submit(work, done);
    }

    /// Frees page caches and closes the further connections, the writing one at need, as far as they have nothing to do.
    fn give_back(&self, writer_too: bool) {
        if let Some(first) = &mut lock(&self.first).idle {
            first.empty();
        }
        while let Some(mut further) = self.further.try_get() {
            further.retired = true;
        }
        self.writer.give_back(writer_too);
    }
}

impl Identity {
    fn of(path: &Path) -> io::Result<Identity> {
        let found = fs::metadata(path)?;
        Ok(Identity {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            modified: AtomicU64::new(modified(&found)),
        })
    }

    /// An open connection goes on with a file that was removed or replaced, and serves cached pages of one that was
    /// overwritten in place. SQLite writes to the file only at a checkpoint, so the header is read seldom.
    fn still_holds(&self) -> bool {
        let Ok(found) = fs::metadata(&self.path) else { return false };
        if (found.dev(), found.ino()) != (self.device, self.inode) {
            return false;
        }
        let now = modified(&found);
        self.modified.swap(now, Ordering::Relaxed) == now || connection::has_header(&self.path)
    }
}

fn modified(metadata: &fs::Metadata) -> u64 {
    metadata.mtime().wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec()).cast_unsigned()
}

/// Opens further connections that read.
#[derive(Debug)]
struct Further {
    manager: SqliteConnectionManager,
    memory: Arc<Memory>,
}

impl ManageConnection for Further {
    type Connection = Counted;
    type Error = rusqlite::Error;

    fn connect(&self) -> Result<Counted, rusqlite::Error> {
        Ok(Counted::further(self.manager.connect()?, Arc::clone(&self.memory)))
    }

    fn is_valid(&self, connection: &mut Counted) -> Result<(), rusqlite::Error> {
        self.manager.is_valid(connection)
    }

    /// A panic may have left a connection in the middle of something: such a one is not used again.
    fn has_broken(&self, connection: &mut Counted) -> bool {
        connection.retired || !connection.is_autocommit()
    }
}

/// A bounded number of places. Where all are taken but get free by and by, one is waited for: so many requests may well
/// come at once, while connections are still being opened. Where none got free for a while, the file does not answer.
#[derive(Debug)]
struct Places {
    taken: AtomicUsize,
    since: Instant,
    /// Milliseconds from `since` to when a place was last given back, or the first one taken.
    moved: AtomicU64,
    /// From when on places that do not get free count as stuck.
    stuck: Duration,
}

impl Default for Places {
    fn default() -> Places {
        Places::stuck_after(Duration::from_millis(250))
    }
}

impl Places {
    fn stuck_after(stuck: Duration) -> Places {
        Places { taken: AtomicUsize::new(0), since: Instant::now(), moved: AtomicU64::new(0), stuck }
    }

    fn take(&self, most: usize) -> Option<Place<'_>> {
        let begun = Instant::now();
        loop {
            match self.taken.fetch_add(1, Ordering::Relaxed) {
                0 => self.note_move(),
                taken if taken < most => (),
                _ => {
                    self.taken.fetch_sub(1, Ordering::Relaxed);
                    let moved = self.since + Duration::from_millis(self.moved.load(Ordering::Relaxed));
                    if moved.elapsed() > self.stuck || begun.elapsed() > self.stuck {
                        return None;
                    }
                    turns::while_waiting(|| std::thread::sleep(Duration::from_millis(1)));
                    continue;
                }
            }
            return Some(Place(self));
        }
    }

    fn note_move(&self) {
        let milliseconds = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(milliseconds, Ordering::Relaxed);
    }
}

/// One of the places, given back when dropped.
struct Place<'a>(&'a Places);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.note_move();
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A poisoned lock guards nothing that a panic could have left half done here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(folder: &tempfile::TempDir, limits: Limits) -> Tenants {
        Tenants::new(folder.path(), limits, Metrics::new(|_| "").into())
    }

    /// A data directory with the tenants 1 to `count`, without records.
    fn data_dir(count: i64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(super::folder(folder.path())).unwrap();
        for id in 1..=count {
            drop(connection::create(&file(&super::folder(folder.path()), id), &SCHEMA).unwrap());
        }
        folder
    }

    /// Reads every page of the file.
    fn read_all(tenant: &Tenant) {
        tenant.read(|reading| Ok(reading.connection().execute_batch("PRAGMA quick_check")?)).unwrap();
    }

    #[test]
    fn what_all_tenants_take_is_bounded_together() {
        let folder = data_dir(20);
        let unbounded = tenants(&folder, Limits::default());
        read_all(&unbounded.open(1).unwrap());
        let one = unbounded.memory.bytes();
        assert!(one > 150_000, "the file has over fifty pages of 4 KiB: {one}");
        unbounded.close();
        assert_eq!(unbounded.memory.bytes(), 0);

        let bounded = tenants(&folder, Limits { memory: 5 * one, ..Limits::default() });
        for id in (1..=20).chain(1..=20) {
            let tenant = bounded.open(id).unwrap();
            // A read within a read takes a second connection.
            let within = tenant.read(|_| {
                read_all(&tenant);
                Ok(())
            });
            within.unwrap();
            read_all(&tenant);
            assert!(bounded.memory.bytes() < 8 * one, "after {id}: {}", bounded.memory.bytes());
        }
        assert_eq!(bounded.open_count(), 20, "none was closed for it");
    }

    #[test]
    fn few_stay_open_where_most_are_closed_again_before_their_next_use() {
        let folder = data_dir(40);
        let tenants = tenants(&folder, Limits { open: 32, ..Limits::default() });
        let use_in_turn = |ids: std::ops::RangeInclusive<i64>, uses: usize| {
            ids.cycle().take(uses).for_each(|id| drop(tenants.open(id).unwrap()));
        };
        use_in_turn(1..=40, 120);
        assert_eq!(tenants.open_count(), 32, "at first as many as may be");
        use_in_turn(1..=40, 2_000);
        assert_eq!(tenants.open_count(), 1);
        use_in_turn(1..=20, 1_000);
        assert_eq!(tenants.open_count(), 20, "each is found open at its next use");
    }

    #[test]
    fn closing_a_tenant_leaves_its_log_empty_and_in_place() {
        let folder = data_dir(1);
        let tenants = tenants(&folder, Limits::default());
        read_all(&tenants.open(1).unwrap());
        let log = connection::beside(&file(&tenants.folder, 1), "-wal");
        let other = connection::plain(&file(&tenants.folder, 1)).unwrap();
        other
            .execute_batch("INSERT INTO customers VALUES (1, 'a', 0, 0, 0, 0, 0, 0, 0, 's', 0, 0, 'c', 'u', 'a')")
            .unwrap();
        drop(other);
        assert!(fs::metadata(&log).unwrap().len() > 0);
        let inode = fs::metadata(&log).unwrap().ino();
        tenants.close();
        let left = fs::metadata(&log).unwrap();
        assert_eq!((left.len(), left.ino()), (0, inode));
        let found = tenants.open(1).unwrap().read(|reading| reading.exists(crate::model::ALL[0], 1));
        assert!(found.unwrap());
    }

    #[test]
    fn a_place_is_waited_for_until_nothing_moves() {
        let places = Places::stuck_after(Duration::from_secs(20));
        std::thread::scope(|scope| {
            let place = places.take(1).unwrap();
            scope.spawn(|| assert!(places.take(1).is_some(), "it got free in time"));
            std::thread::sleep(Duration::from_millis(50));
            drop(place);
        });
        let places = Places::stuck_after(Duration::from_secs(2));
        let begun = Instant::now();
        let _kept = places.take(1).unwrap();
        assert!(places.take(1).is_none(), "nothing moved");
        // Counted in whole milliseconds.
        assert!(begun.elapsed() >= Duration::from_millis(1_999));
        let begun = Instant::now();
        assert!(places.take(1).is_none());
        assert!(begun.elapsed() < Duration::from_secs(2), "that nothing moves is known by now");
    }
}
