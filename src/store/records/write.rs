//! Changes of records inside a write transaction, and the stored responses of idempotent requests
//! (contract section 8).

use std::cell::{Cell, RefCell};

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension as _, ffi, params};
use serde_json::{Map, json};

use super::change::{ChangeError, Rejection};
use super::change_log::{ChangeContext, Entry};
use super::encoding::{Statements, damaged_text};
use super::search::search_text;
use super::{Reading, Record, Writing};
use crate::clock::Timestamp;
use crate::model::{ALL, EMPLOYEE, RecordId, Resource, Value};
use crate::store::error::DatabaseError;

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

    /// Adds a record with the next id, or with `id`. A record that an undo brings back was
    /// `created_at` another time.
    pub fn insert(
        &self,
        resource: &Resource,
        id: Option<RecordId>,
        created_at: Option<Timestamp>,
        values: Vec<Value>,
        context: &ChangeContext,
    ) -> Result<Record, DatabaseError> {
        let (version, now) = self.next_version(context)?;
        let created_at = created_at.unwrap_or(now);
        let search = search_text(resource, &values);
        let id = id.map(|id| id.0);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(values.len() + 5);
        bound.push(&id);
        bound.extend(values.iter().map(|value| value as &dyn ToSql));
        bound.extend([&created_at as &dyn ToSql, &now, &search, &version.0]);
        let sql = &Statements::of(resource).insert;
        self.connection().prepare_cached(sql)?.execute(bound.as_slice())?;
        let id = RecordId(self.connection().last_insert_rowid());
        let record = Record { id, values, created_at, updated_at: now, version };
        let mut fields = Vec::new();
        for (field, value) in resource.fields.iter().zip(&record.values) {
            if !value.is_absent() {
                fields.push(field.name);
            }
        }
        let entry = Entry { action: "created", fields, before: None };
        self.log(resource, &record, &entry, context)?;
        self.change_search(resource, id, None, Some(search));
        Ok(record)
    }

    /// Gives a record these values, and sets `updated_at` if that changes one.
    pub(super) fn update(
        &self,
        resource: &Resource,
        mut record: Record,
        values: Vec<Value>,
        context: &ChangeContext,
    ) -> Result<Record, DatabaseError> {
        let mut fields = Vec::new();
        let mut before = Map::new();
        for (field, (stored, value)) in
            resource.fields.iter().zip(record.values.iter().zip(&values))
        {
            if stored != value {
                fields.push(field.name);
                before.insert(field.name.to_owned(), json!(stored));
            }
        }
        if fields.is_empty() {
            return Ok(record);
        }
        record.values = values;
        (record.version, record.updated_at) = self.next_version(context)?;
        let old = self.stored_text(resource, record.id)?;
        let new = search_text(resource, &record.values);
        self.store(resource, &record, &fields, &new)?;
        let entry = Entry { action: "updated", fields, before: Some(json!(before).to_string()) };
        self.log(resource, &record, &entry, context)?;
        if old != new {
            self.change_search(resource, record.id, Some(old), Some(new));
        }
        if *resource == EMPLOYEE && entry.fields.contains(&"customer_id") {
            self.move_devices(&record)?;
        }
        Ok(record)
    }

    /// Stores the named fields of a changed record, and what changes with them.
    fn store(
        &self,
        resource: &Resource,
        record: &Record,
        fields: &[&str],
        search: &str,
    ) -> rusqlite::Result<()> {
        let mut sql = format!("UPDATE {} SET ", resource.plural);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(fields.len() + 4);
        for (field, value) in resource.fields.iter().zip(&record.values) {
            if fields.contains(&field.name) {
                sql.push_str(&format!("{} = ?, ", field.name));
                bound.push(value);
            }
        }
        sql.push_str("updated_at = ?, search = ?, version = ? WHERE id = ?");
        bound.extend([&record.updated_at as &dyn ToSql, &search, &record.version.0, &record.id.0]);
        self.connection().prepare_cached(&sql)?.execute(bound.as_slice()).map(drop)
    }

    /// Deletes a record that no other record refers to.
    pub(super) fn delete(
        &self,
        resource: &'static Resource,
        mut record: Record,
        context: &ChangeContext,
    ) -> Result<(), ChangeError> {
        let id = record.id;
        let before = String::from_utf8(record.json(resource)).map_err(damaged_text)?;
        let text = self.stored_text(resource, id)?;
        let sql = format!("DELETE FROM {} WHERE id = ?", resource.plural);
        match self.connection().prepare_cached(&sql)?.execute([id.0]) {
            Ok(_) => {}
            Err(rusqlite::Error::SqliteFailure(cause, message))
                if cause.extended_code == ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
            {
                let details = message.unwrap_or_else(|| cause.to_string());
                let counts = self.dependents(resource, id)?;
                return Err(Rejection::HasDependents { resource, details, counts }.into());
            }
            Err(error) => return Err(error.into()),
        }
        (record.version, record.updated_at) = self.next_version(context)?;
        let entry = Entry { action: "deleted", fields: Vec::new(), before: Some(before) };
        self.log(resource, &record, &entry, context)?;
        self.change_search(resource, id, Some(text), None);
        Ok(())
    }

    /// Counts the records that refer to a record, by their resource.
    fn dependents(
        &self,
        target: &Resource,
        RecordId(id): RecordId,
    ) -> rusqlite::Result<Vec<(&'static Resource, i64)>> {
        let mut counts = Vec::new();
        for resource in ALL {
            for field in resource.fields.iter().filter(|field| field.references == Some(target)) {
                let sql =
                    format!("SELECT count(*) FROM {} WHERE {} = ?", resource.plural, field.name);
                let count = self.connection().query_row(&sql, [id], |row| row.get(0))?;
                if count > 0 {
                    counts.push((resource, count));
                }
            }
        }
        Ok(counts)
    }

    fn stored_text(&self, resource: &Resource, id: RecordId) -> rusqlite::Result<String> {
        let sql = format!("SELECT search FROM {} WHERE id = ?", resource.plural);
        self.connection().prepare_cached(&sql)?.query_row([id.0], |row| row.get(0))
    }
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
    /// Stores the answer to a request under its key, in place of one that is over.
    pub fn store_answer(
        &self,
        IdempotencyKey { key, request }: &IdempotencyKey,
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
