//! A record is a number.

use std::time::Duration;

use super::program::clock::Timestamp;
use super::rusqlite::{Connection, Result};
use crate::store::error::DatabaseError;

pub struct Reading<'a>(&'a Connection);

pub struct Writing<'a>(&'a Connection);

impl Reading<'_> {
    pub fn in_snapshot<T, E>(
        connection: &Connection,
        work: impl FnOnce(&Reading<'_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        work(&Reading(connection))
    }

    pub fn records(&self) -> Vec<u32> {
        self.0.committed()
    }
}

impl<'a> Writing<'a> {
    pub fn new(connection: &'a Connection) -> Writing<'a> {
        Writing(connection)
    }

    pub fn insert(&self, record: u32) -> std::result::Result<(), DatabaseError> {
        self.0.insert(record)
    }

    pub fn connection(&self) -> &Connection {
        self.0
    }

    pub fn pending_search(&self) -> usize {
        0
    }

    pub fn forget_search(&self, _: usize) {}

    pub fn flush(&self) -> std::result::Result<(), DatabaseError> {
        Ok(())
    }

    pub fn undo(&self) -> std::result::Result<(), DatabaseError> {
        self.0.undo();
        Ok(())
    }
}

pub fn merge_step(_: &Connection, _pages: u32) -> Result<bool> {
    Ok(false)
}

pub fn remove_old_entries(
    _: &Connection,
    _: Timestamp,
    _keep: Duration,
    _most: u32,
) -> Result<usize> {
    Ok(0)
}

pub fn remove_old_responses(_: &Connection, _: Timestamp, _most: u16) -> Result<usize> {
    Ok(0)
}
