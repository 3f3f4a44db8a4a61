//! Changes of records inside a write transaction.

use std::cell::Cell;
use std::ops::Deref;

use rusqlite::types::ToSql;
use rusqlite::{Connection, ffi};
use serde_json::{Map, json};

use super::change::{ChangeError, Rejection};
use super::change_log::{ChangeContext, Entry};
use super::read::{Reading, Record, Statements, damaged_text};
use super::search::search_text;
use crate::clock::Timestamp;
use crate::model::{ALL, EMPLOYEE, RecordId, Resource, Value};
use crate::store::error::DatabaseError;

/// A connection inside a write transaction. It can read, too.
#[derive(Debug)]
pub struct Writing<'a> {
    reading: Reading<'a>,
    /// The records that the running request has changed.
    pub(super) changed: Cell<usize>,
}

impl<'a> Deref for Writing<'a> {
    type Target = Reading<'a>;

    fn deref(&self) -> &Reading<'a> {
        &self.reading
    }
}

impl<'a> Writing<'a> {
    pub(in crate::store) fn new(connection: &'a Connection) -> Writing<'a> {
        Writing { reading: Reading::new(connection), changed: Cell::default() }
    }

    /// Counts the records of another request.
    pub(in crate::store) fn begin_request(&self) {
        self.changed.set(0);
    }

    /// How many records the request has changed, those of a cascade included.
    pub(in crate::store) fn changed(&self) -> usize {
        self.changed.get()
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
        let (version, at) = self.next_version(context)?;
        let created_at = created_at.unwrap_or(at);
        let search = search_text(resource, &values);
        let wanted = id.map(|id| id.0);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(values.len() + 5);
        bound.push(&wanted);
        bound.extend(values.iter().map(|value| value as &dyn ToSql));
        bound.extend([&created_at as &dyn ToSql, &at, &search, &version.0]);
        let sql = &Statements::of(resource).insert;
        self.connection().prepare_cached(sql)?.execute(bound.as_slice())?;
        let id = RecordId(self.connection().last_insert_rowid());
        let record = Record { id, values, created_at, updated_at: at, version };
        let mut fields = Vec::new();
        for (field, value) in resource.fields.iter().zip(&record.values) {
            if !value.is_absent() {
                fields.push(field.name);
            }
        }
        let entry = Entry { action: "created", fields, before: None };
        self.log(resource, &record, &entry, context)?;
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
        let before = (json!(before).to_string(), record.version, record.updated_at);
        record.values = values;
        (record.version, record.updated_at) = self.next_version(context)?;
        self.store(resource, &record, &fields)?;
        let entry = Entry { action: "updated", fields, before: Some(before) };
        self.log(resource, &record, &entry, context)?;
        if *resource == EMPLOYEE && entry.fields.contains(&"customer_id") {
            self.move_devices(&record)?;
        }
        Ok(record)
    }

    /// Stores the named fields of a changed record, and what changes with them.
    fn store(&self, resource: &Resource, record: &Record, fields: &[&str]) -> rusqlite::Result<()> {
        let mut sql = format!("UPDATE {} SET ", resource.plural);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(fields.len() + 4);
        for (field, value) in resource.fields.iter().zip(&record.values) {
            if fields.contains(&field.name) {
                sql.push_str(&format!("{} = ?, ", field.name));
                bound.push(value);
            }
        }
        let search = search_text(resource, &record.values);
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
        let values = String::from_utf8(record.json(resource)).map_err(damaged_text)?;
        let before = (values, record.version, record.updated_at);
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
}
