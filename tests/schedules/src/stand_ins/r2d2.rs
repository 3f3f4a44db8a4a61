//! Pools that open a connection each time.

use std::marker::PhantomData;

use super::rusqlite::{Connection, Error};
use crate::store::database::Database;

pub struct Pool<M>(pub Database, pub PhantomData<M>);

pub struct SqliteConnectionManager;

pub struct ScheduledThreadPool;

impl<M> Pool<M> {
    pub fn get(&self) -> Result<Connection, Error> {
        self.0.connect()
    }
}

impl ScheduledThreadPool {
    pub fn builder() -> ScheduledThreadPool {
        ScheduledThreadPool
    }

    pub fn num_threads(self, _: usize) -> ScheduledThreadPool {
        self
    }

    pub fn thread_name_pattern(self, _: &str) -> ScheduledThreadPool {
        self
    }

    pub fn build(self) -> ScheduledThreadPool {
        self
    }

    pub fn execute(&self, job: impl FnOnce()) {
        job();
    }
}
