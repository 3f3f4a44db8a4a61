//! SQLite with one lock for each file, and with disks that fail now and then.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

use super::happens;
use crate::model::TenantId;

/// The times that a busy connection tries to get the lock.
const ATTEMPTS: usize = 50;

thread_local! {
    static FILES: RefCell<HashMap<TenantId, Arc<File>>> = RefCell::default();
}

/// Empties all files of this thread. Shuttle runs all threads of a scenario in one.
pub fn new_disk() {
    FILES.take();
}

pub fn file(id: TenantId) -> Arc<File> {
    FILES.with_borrow_mut(|files| Arc::clone(files.entry(id).or_default()))
}

#[derive(Default)]
pub struct File {
    is_locked: AtomicBool,
    records: std::sync::Mutex<Vec<u32>>,
}

impl File {
    pub fn records(&self) -> Vec<u32> {
        self.records.lock().unwrap().clone()
    }
}

pub struct Connection {
    file: Arc<File>,
    timeout: Cell<Duration>,
    /// The writes since the transaction began; `None` outside of one.
    writes: RefCell<Option<Writes>>,
}

#[derive(Default)]
struct Writes {
    records: Vec<u32>,
    savepoint: usize,
}

pub struct Transaction<'a>(&'a Connection);

pub enum TransactionBehavior {
    Immediate,
}

pub struct Statement;

pub struct Row;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub enum Error {
    Busy,
    DiskFull,
    NoTransaction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    DatabaseBusy,
    DiskFull,
    OperationInterrupted,
    ReadOnly,
    SystemIoFailure,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Error {}

impl Error {
    pub fn sqlite_error_code(&self) -> Option<ErrorCode> {
        match self {
            Error::Busy => Some(ErrorCode::DatabaseBusy),
            Error::DiskFull => Some(ErrorCode::DiskFull),
            Error::NoTransaction => None,
        }
    }
}

impl Connection {
    pub fn open(file: &Arc<File>) -> Result<Connection> {
        if happens(16) {
            return Err(Error::DiskFull);
        }
        let (file, writes) = (Arc::clone(file), RefCell::new(None));
        Ok(Connection { file, timeout: Cell::new(Duration::ZERO), writes })
    }

    pub fn busy_timeout(&self, timeout: Duration) -> Result<()> {
        self.timeout.set(timeout);
        Ok(())
    }

    pub fn transaction_with_behavior(&mut self, _: TransactionBehavior) -> Result<Transaction<'_>> {
        let attempts = if self.timeout.get().is_zero() || happens(16) { 1 } else { ATTEMPTS };
        for _ in 0..attempts {
            if !self.file.is_locked.swap(true, Ordering::SeqCst) {
                self.writes.replace(Some(Writes::default()));
                return Ok(Transaction(self));
            }
            thread::yield_now();
        }
        Err(Error::Busy)
    }

    pub fn is_autocommit(&self) -> bool {
        self.writes.borrow().is_none()
    }

    /// A full disk may end the transaction.
    pub fn insert(&self, record: u32) -> Result<()> {
        thread::yield_now();
        if happens(16) {
            self.end();
            return Err(Error::DiskFull);
        }
        let mut writes = self.writes.borrow_mut();
        writes.as_mut().ok_or(Error::NoTransaction)?.records.push(record);
        Ok(())
    }

    pub fn savepoint(&self) {
        if let Some(writes) = self.writes.borrow_mut().as_mut() {
            writes.savepoint = writes.records.len();
        }
    }

    pub fn undo(&self) {
        if let Some(writes) = self.writes.borrow_mut().as_mut() {
            writes.records.truncate(writes.savepoint);
        }
    }

    pub fn committed(&self) -> Vec<u32> {
        self.file.records()
    }

    /// Ends the transaction, if there is one. Returns what it wrote.
    fn end(&self) -> Option<Vec<u32>> {
        let writes = self.writes.take()?;
        self.file.is_locked.store(false, Ordering::SeqCst);
        Some(writes.records)
    }

    pub fn execute(&self, _sql: &str, _params: ()) -> Result<usize> {
        Ok(0)
    }

    pub fn prepare_cached(&self, _sql: &str) -> Result<Statement> {
        Ok(Statement)
    }

    pub fn progress_handler<F: FnMut() -> bool>(&self, _: i32, _: Option<F>) -> Result<()> {
        Ok(())
    }
}

impl Transaction<'_> {
    pub fn commit(self) -> Result<()> {
        thread::yield_now();
        if happens(8) {
            return Err(Error::DiskFull);
        }
        let mut records = self.0.file.records.lock().unwrap();
        let writes = self.0.writes.take().ok_or(Error::NoTransaction)?;
        records.extend(writes.records);
        drop(records);
        self.0.file.is_locked.store(false, Ordering::SeqCst);
        Ok(())
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Statement {
    pub fn query_row<T>(&self, _: [(); 0], read: impl FnOnce(&Row) -> Result<T>) -> Result<T> {
        read(&Row)
    }
}

impl Row {
    /// The size of a file, which is below its limit.
    pub fn get<I, T: Default>(&self, _: I) -> Result<T> {
        Ok(T::default())
    }
}

#[macro_export]
macro_rules! params {
    ($keep:expr) => {{
        let _: i64 = $keep;
    }};
}
pub use params;
