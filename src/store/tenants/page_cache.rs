//! A bound on the memory of all tenants' connections together.
//!
//! SQLite bounds the page cache of each connection. It could bound them together only under one lock for all connections, on which
//! requests would then wait.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::Connection;

use super::file_health::FileHealth;
use crate::store::connection;

/// What a connection takes beside its page cache, in bytes: the schema and prepared statements, as measured with a thousand of
/// them.
const CONNECTION_BYTES: usize = 45 << 10;

/// The bytes that all connections take, as of each connection's last use.
#[derive(Debug, Default)]
pub(super) struct CacheBudget(AtomicUsize);

impl CacheBudget {
    /// The bytes in use.
    pub fn used(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection whose memory is part of a [`CacheBudget`].
#[derive(Debug)]
pub(super) struct TrackedConnection {
    connection: Connection,
    tracked: usize,
    budget: Arc<CacheBudget>,
    health: Arc<FileHealth>,
    is_retired: bool,
}

impl TrackedConnection {
    pub fn new(connection: Connection, budget: Arc<CacheBudget>, health: Arc<FileHealth>) -> TrackedConnection {
        let mut tracked = TrackedConnection { connection, tracked: 0, budget, health, is_retired: false };
        tracked.update_usage();
        tracked
    }

    /// Measures what it takes. To be called after each use.
    pub fn update_usage(&mut self) {
        self.set_usage(CONNECTION_BYTES + connection::cached_bytes(&self.connection));
    }

    /// Frees its page cache.
    pub fn release_cache(&mut self) {
        connection::release_cache(&self.connection);
        self.update_usage();
    }

    /// Has it closed when it returns to its pool.
    pub fn retire(&mut self) {
        self.is_retired = true;
    }

    pub fn is_retired(&self) -> bool {
        self.is_retired
    }

    fn set_usage(&mut self, bytes: usize) {
        self.budget.0.fetch_add(bytes, Ordering::Relaxed);
        self.budget.0.fetch_sub(self.tracked, Ordering::Relaxed);
        self.tracked = bytes;
    }
}

impl Drop for TrackedConnection {
    fn drop(&mut self) {
        self.health.log.before_close(&self.connection);
        self.set_usage(0);
    }
}

impl Deref for TrackedConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for TrackedConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
