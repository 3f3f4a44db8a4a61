//! Changes of records inside a write transaction, and the stored responses of idempotent requests
//! (contract section 8).

use std::cell::{Cell, RefCell};

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension as _, ffi, params};
use serde_json::{Map, json};

use super::change_log::{ChangeContext, Entry};
use super::encoding::{Statements, damaged_text};
use super::search::search_text;
use super::{Reading, Record, Writing};
use crate::clock::Timestamp;
use crate::model::{ALL, Field, RecordId, Resource, Value};
use crate::store::database;
use crate::store::error::DatabaseError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    Deleted,
    NotFound,
    /// Other records refer to it.
    Referenced {
        /// The database's own message.
        details: String,
        /// How many records of which resource refer to it.
        counts: Vec<(&'static Resource, i64)>,
    },
}

impl<'a> Writing<'a> {
    /// [`Writing::flush`] must be called before the transaction commits.
    pub(in crate::store) fn new(connection: &'a Connection) -> Writing<'a> {
        Writing {
            reading: Reading::new(connection),
            search: RefCell::default(),
            pending_bytes: Cell::default(),
        }
    }

    pub(in crate::store) fn connection(&self) -> &'a Connection {
        self.reading.connection
    }

    /// Rolls back the writes of the present mutation. The mutation must be rejected then.
    pub fn undo(&self) -> Result<(), DatabaseError> {
        database::execute(self.connection(), "ROLLBACK TO mutation")
    }

    /// Adds a record with the next id, or with `id`.
    pub fn insert(
        &self,
        resource: &Resource,
        id: Option<RecordId>,
        values: Vec<Value>,
        context: &ChangeContext,
    ) -> Result<Record, DatabaseError> {
        let version = self.next_version()?;
        let search = search_text(resource, &values);
        let (id, now) = (id.map(|id| id.0), context.at);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(values.len() + 5);
        bound.push(&id);
        bound.extend(values.iter().map(|value| value as &dyn ToSql));
        bound.extend([&now as &dyn ToSql, &now, &search, &version.0]);
        let sql = &Statements::of(resource).insert;
        self.connection().prepare_cached(sql)?.execute(bound.as_slice())?;
        let id = RecordId(self.connection().last_insert_rowid());
        let record = Record { id, values, created_at: now, updated_at: now, version };
        let filled = resource.fields.iter().zip(&record.values);
        let filled = filled.filter(|(_, value)| !value.is_absent());
        let fields = filled.map(|(field, _)| field.name).collect();
        let entry = Entry { action: "created", fields, before: None };
        self.log(resource, &record, &entry, context)?;
        self.change_search(resource, id, None, Some(search));
        Ok(record)
    }

    /// Sets the named fields, and `updated_at` if that changes a value. A record that has these
    /// values already stays as it is. `None` if there is no such record.
    pub fn update(
        &self,
        resource: &Resource,
        id: RecordId,
        changes: &[(&'static Field, Value)],
        context: &ChangeContext,
    ) -> Result<Option<Record>, DatabaseError> {
        let Some(mut record) = self.record(resource, id)? else { return Ok(None) };
        let before = replace_values(resource, &mut record, changes);
        if before.is_empty() {
            return Ok(Some(record));
        }
        record.updated_at = context.at;
        record.version = self.next_version()?;
        let (old, new) = (self.stored_text(resource, id)?, search_text(resource, &record.values));
        self.store(resource, &record, &before, &new)?;
        let fields = before.iter().map(|(field, _)| field.name).collect();
        let members = before.iter().map(|(field, value)| (field.name.into(), json!(value)));
        let before = Some(json!(members.collect::<Map<_, _>>()).to_string());
        self.log(resource, &record, &Entry { action: "updated", fields, before }, context)?;
        if old != new {
            self.change_search(resource, id, Some(old), Some(new));
        }
        Ok(Some(record))
    }

    /// Stores the fields in `before` of a changed record, and what changes with them.
    fn store(
        &self,
        resource: &Resource,
        record: &Record,
        before: &[(&'static Field, Value)],
        search: &str,
    ) -> rusqlite::Result<()> {
        let mut sql = format!("UPDATE {} SET ", resource.plural);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(before.len() + 4);
        for (field, value) in resource.fields.iter().zip(&record.values) {
            if before.iter().any(|(changed, _)| changed.name == field.name) {
                sql.push_str(&format!("{} = ?, ", field.name));
                bound.push(value);
            }
        }
        sql.push_str("updated_at = ?, search = ?, version = ? WHERE id = ?");
        bound.extend([&record.updated_at as &dyn ToSql, &search, &record.version.0, &record.id.0]);
        self.connection().prepare_cached(&sql)?.execute(bound.as_slice()).map(drop)
    }

    pub fn delete(
        &self,
        resource: &Resource,
        id: RecordId,
        context: &ChangeContext,
    ) -> Result<DeleteOutcome, DatabaseError> {
        let Some(mut record) = self.record(resource, id)? else {
            return Ok(DeleteOutcome::NotFound);
        };
        let before = String::from_utf8(record.json(resource)).map_err(damaged_text)?;
        let text = self.stored_text(resource, id)?;
        let sql = format!("DELETE FROM {} WHERE id = ?", resource.plural);
        match self.connection().prepare_cached(&sql)?.execute([id.0]) {
            Ok(_) => {
                record.version = self.next_version()?;
                let entry = Entry { action: "deleted", fields: Vec::new(), before: Some(before) };
                self.log(resource, &record, &entry, context)?;
                self.change_search(resource, id, Some(text), None);
                Ok(DeleteOutcome::Deleted)
            }
            Err(rusqlite::Error::SqliteFailure(cause, message))
                if cause.extended_code == ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
            {
                let details = message.unwrap_or_else(|| cause.to_string());
                Ok(DeleteOutcome::Referenced { details, counts: self.dependents(resource, id)? })
            }
            Err(error) => Err(error),
        }
    }

    /// Counts the records that refer to a record, by their resource.
    fn dependents(
        &self,
        target: &Resource,
        RecordId(id): RecordId,
    ) -> rusqlite::Result<Vec<(&'static Resource, i64)>> {
        let fields = ALL.into_iter().flat_map(|of| of.fields.iter().map(move |field| (of, field)));
        let count = |(of, field): (&'static Resource, &Field)| {
            let sql = format!("SELECT count(*) FROM {} WHERE {} = ?", of.plural, field.name);
            Ok((of, self.connection().query_row(&sql, [id], |row| row.get(0))?))
        };
        let counts = fields.filter(|(_, field)| field.references == Some(target)).map(count);
        counts.filter(|counted| !matches!(counted, Ok((_, 0)))).collect()
    }

    fn stored_text(&self, resource: &Resource, id: RecordId) -> rusqlite::Result<String> {
        let sql = format!("SELECT search FROM {} WHERE id = ?", resource.plural);
        self.connection().prepare_cached(&sql)?.query_row([id.0], |row| row.get(0))
    }
}

/// Sets the named fields of `record`. Returns the fields whose values differ with their former
/// values, in the order of the resource.
fn replace_values(
    resource: &Resource,
    record: &mut Record,
    changes: &[(&'static Field, Value)],
) -> Vec<(&'static Field, Value)> {
    let mut before = Vec::new();
    for (declared, stored) in resource.fields.iter().zip(&mut record.values) {
        let changed = changes.iter().find(|(field, _)| field.name == declared.name);
        if let Some((field, value)) = changed.filter(|(_, value)| value != stored) {
            before.push((*field, std::mem::replace(stored, value.clone())));
        }
    }
    before
}

/// The answer to a mutation. It is stored under the idempotency key of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The path of a new record.
    pub location: Option<String>,
    /// The version of a record that is there after the mutation.
    pub etag: Option<String>,
    /// Empty without one.
    pub body: Vec<u8>,
}

/// How long a response is stored, in seconds.
const KEPT_FOR: i64 = 24 * 60 * 60;

impl Reading<'_> {
    /// The answer stored under `key`, unless it is over 24 hours old, and the SHA-256 of its
    /// request.
    pub fn stored_answer(
        &self,
        key: &[u8; 16],
        now: Timestamp,
    ) -> Result<Option<([u8; 32], Answer)>, DatabaseError> {
        let sql = "SELECT request, status, location, etag, body FROM idempotency
                   WHERE key = ? AND created_at > ?";
        let mut statement = self.connection.prepare_cached(sql)?;
        let stored = statement.query_row(params![key, now.unix() - KEPT_FOR], |row| {
            let (status, location) = (row.get(1)?, row.get(2)?);
            Ok((row.get(0)?, Answer { status, location, etag: row.get(3)?, body: row.get(4)? }))
        });
        stored.optional()
    }
}

impl Writing<'_> {
    /// Stores the answer to `request` under `key`, in place of one that is over.
    pub fn store_answer(
        &self,
        key: &[u8; 16],
        request: &[u8; 32],
        answer: &Answer,
        now: Timestamp,
    ) -> Result<(), DatabaseError> {
        let Answer { status, location, etag, body } = answer;
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

/// Removes at most `count` responses that are over. Runs inside a transaction.
pub(crate) fn remove_old_responses(
    connection: &Connection,
    now: Timestamp,
    count: u16,
) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM idempotency WHERE id IN
                 (SELECT id FROM idempotency WHERE created_at <= ? ORDER BY created_at LIMIT ?)";
    connection.prepare_cached(sql)?.execute(params![now.unix() - KEPT_FOR, count])
}
