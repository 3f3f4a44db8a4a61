//! The pool of a tenant's reading connections.

use std::sync::Arc;

use parking_lot::Mutex;
use r2d2::{ManageConnection, Pool};
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::Connection;
use scheduled_thread_pool::ScheduledThreadPool;

use super::file_health::FileHealth;
use super::page_cache::{CacheBudget, TrackedConnection};
use crate::store::connection::{self, LOCK_WAIT};

/// The most reading connections of one tenant: reads are short, and few run at the same time.
const MAX_READERS: u32 = 4;

/// Opens the connections of one pool.
#[derive(Debug)]
pub(super) struct ReaderManager {
    inner: SqliteConnectionManager,
    budget: Arc<CacheBudget>,
    health: Arc<FileHealth>,
    /// The connection with which the file was opened and checked; the pool's first.
    first: Mutex<Option<TrackedConnection>>,
}

impl ManageConnection for ReaderManager {
    type Connection = TrackedConnection;
    type Error = rusqlite::Error;

    fn connect(&self) -> Result<TrackedConnection, rusqlite::Error> {
        if let Some(mut first) = self.first.lock().take() {
            first.update_usage();
            return Ok(first);
        }
        let connection = self.inner.connect()?;
        connection::persist_wal(&connection);
        Ok(TrackedConnection::new(connection, Arc::clone(&self.budget), Arc::clone(&self.health)))
    }

    fn is_valid(&self, connection: &mut TrackedConnection) -> Result<(), rusqlite::Error> {
        self.inner.is_valid(connection)
    }

    /// A connection that a panic left inside a transaction is not used again.
    fn has_broken(&self, connection: &mut TrackedConnection) -> bool {
        connection.is_retired() || !connection.is_autocommit()
    }
}

/// The pool that begins with `first`. `opener` opens further connections: a pool would start three threads of its own.
pub(super) fn pool(
    inner: SqliteConnectionManager,
    first: Connection,
    (budget, health): (Arc<CacheBudget>, Arc<FileHealth>),
    opener: &Arc<ScheduledThreadPool>,
) -> Pool<ReaderManager> {
    connection::persist_wal(&first);
    let first = TrackedConnection::new(first, Arc::clone(&budget), Arc::clone(&health));
    Pool::builder()
        .max_size(MAX_READERS)
        .min_idle(Some(0))
        .test_on_check_out(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .connection_timeout(LOCK_WAIT)
        .thread_pool(Arc::clone(opener))
        .build_unchecked(ReaderManager { inner, budget, health, first: Mutex::new(Some(first)) })
}

/// Frees the page caches of the idle connections and closes all of them but one.
pub(super) fn release_memory(pool: &Pool<ReaderManager>) {
    let mut idle: Vec<_> = std::iter::from_fn(|| pool.try_get()).collect();
    for (at, connection) in idle.iter_mut().enumerate() {
        if at == 0 { connection.release_cache() } else { connection.retire() }
    }
}
