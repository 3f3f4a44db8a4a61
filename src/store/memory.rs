//! What the connections of all tenants take together. SQLite bounds the page cache of each by itself only, and could bound
//! them together only under one lock for all of them, which is where requests would then wait.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::Connection;

use super::connection;

/// What a connection takes beside its page cache, in bytes: the schema as SQLite keeps it, and prepared statements. As
/// measured with a thousand of them.
const CONNECTION: usize = 45 << 10;

/// What can be given back, in bytes, as of each connection's last use: page caches, and connections that a tenant has beside
/// its first.
#[derive(Debug, Default)]
pub(super) struct Memory(AtomicUsize);

impl Memory {
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn replace(&self, before: usize, now: usize) {
        // Wraps where it became less, and comes out right.
        self.0.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// A connection that is counted.
#[derive(Debug)]
pub(super) struct Counted {
    connection: Connection,
    /// What it takes beside its cache, as far as it can be given back.
    own: usize,
    counted: usize,
    all: Arc<Memory>,
    /// It is to be closed when it comes back.
    pub retired: bool,
}

impl Counted {
    /// A tenant's first connection: it stays as long as the tenant is open, and only its cache counts.
    pub fn first(connection: Connection, all: Arc<Memory>) -> Counted {
        Counted { connection, own: 0, counted: 0, all, retired: false }
    }

    /// A further connection, which may be closed when memory is short.
    pub fn further(connection: Connection, all: Arc<Memory>) -> Counted {
        let mut further = Counted::first(connection, all);
        further.own = CONNECTION;
        further.count();
        further
    }

    /// Counts what it takes now: after each use.
    pub fn count(&mut self) {
        let now = self.own + connection::cached_bytes(&self.connection);
        self.all.replace(self.counted, now);
        self.counted = now;
    }

    /// Frees what its cache holds.
    pub fn empty(&mut self) {
        connection::forget_pages(&self.connection);
        self.count();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.replace(self.counted, 0);
    }
}

impl Deref for Counted {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Counted {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
