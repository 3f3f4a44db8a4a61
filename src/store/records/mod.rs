//! The operations on records. SQL consists of declared names only; values are always bound.
//!
//! | file | its concern |
//! |---|---|
//! | `statements` | SQL that depends on the resource alone |
//! | `encoding` | records from rows, and as JSON |
//! | `write` | insert, update, delete |
//! | `list` | pages: SQL, keyset position, JSON |
//! | `query` | the statement of a list |
//! | `search` | the search text of a record, the search tables, their segments |
//! | `change_log` | the entry and the version of each change |
//! | `changes` | pages of the change log |
//! | `stored_responses` | responses of idempotent requests |
//! | `bulk` | whole tables: export, import, checks |

mod bulk;
mod change_log;
mod changes;
mod encoding;
mod list;
mod query;
mod search;
mod statements;
mod stored_responses;
mod write;

use std::borrow::Cow;

use rusqlite::{Connection, OptionalExtension as _};

pub use bulk::Match;
pub(crate) use bulk::{count, problems};
pub use change_log::{Actor, ChangeContext, KeyLabel};
pub(crate) use change_log::{remove_old_entries, renew_lineage};
pub use changes::{ChangesPage, ChangesQuery, Position, Start};
pub use list::Page;
pub use search::fold;
pub(crate) use search::{build_search, import_settings, merge_step};
pub use stored_responses::StoredResponse;
pub(crate) use stored_responses::remove_old_responses;
pub use write::{DeleteOutcome, Writing};

use super::error::DatabaseError;
use crate::clock::Timestamp;
use crate::model::{Field, Inclusion, RecordId, Resource, Value, Version};
use encoding::{checked, read_record, write_row};
use statements::{Statements, including};

/// A connection that reads.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    connection: &'a Connection,
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub id: RecordId,
    /// The values of the resource's fields, in their order.
    pub values: Vec<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub version: Version,
}

impl<'a> Reading<'a> {
    pub(super) fn new(connection: &'a Connection) -> Reading<'a> {
        Reading { connection }
    }

    /// The record as a JSON object with what it is to include, and its version.
    pub fn json(
        &self,
        resource: &Resource,
        id: RecordId,
        include: &[&Inclusion],
    ) -> Result<Option<(Vec<u8>, Version)>, DatabaseError> {
        let one = Cow::Borrowed(Statements::of(resource).one.as_str());
        let sql = if include.is_empty() { one } else { including(resource, include, &one).into() };
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let mut json = Vec::with_capacity(512);
        write_row(&mut json, resource, include, row);
        Ok(Some((checked(json)?, row.get(resource.fields.len() + 3)?)))
    }

    pub fn record(
        &self,
        resource: &Resource,
        id: RecordId,
    ) -> Result<Option<Record>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(&Statements::of(resource).one)?;
        Ok(statement.query_row([id], |row| read_record(resource, row)).optional()?)
    }

    /// The record's version; `None` if there is no such record.
    pub fn version(
        &self,
        resource: &Resource,
        id: RecordId,
    ) -> Result<Option<Version>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(&Statements::of(resource).version)?;
        Ok(statement.query_row([id], |row| row.get(0)).optional()?)
    }

    pub fn exists(&self, resource: &Resource, id: RecordId) -> Result<bool, DatabaseError> {
        Ok(self.version(resource, id)?.is_some())
    }

    /// The record that `field` refers to with `value`, if there is no such record. `None` if it
    /// exists, or if the field or its value refers to none.
    pub fn missing_reference(
        &self,
        field: &Field,
        value: &Value,
    ) -> Result<Option<(&'static Resource, i64)>, DatabaseError> {
        match (Resource::referenced(field), value) {
            (Some(target), Value::Integer(id)) if !self.exists(target, RecordId(*id))? => {
                Ok(Some((target, *id)))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
