//! The operations on records. SQL consists of declared names only; values are always bound.
//!
//! | file | its concern |
//! |---|---|
//! | `list` | pages: SQL, keyset position, JSON |
//! | `search` | the search text of a record, and what is asked of the search tables |
//! | `search_index` | the entries of the search tables |
//! | `search_terms` | the terms of a text |
//! | `frequent_words` | the words that have terms of their own |
//! | `segments` | the segments of the search tables, and their merging |
//! | `encoding` | records from rows, and as JSON |
//! | `journal` | the entry and the version of each change |
//! | `changes` | pages of the journal |
//! | `pending_imports` | records that are hidden until their import ends |
//! | `stored_responses` | responses of idempotent requests |
//! | `statements` | SQL that depends on the resource alone |

mod changes;
mod encoding;
mod frequent_words;
mod journal;
mod list;
mod pending_imports;
mod search;
mod search_index;
mod search_terms;
mod segments;
mod statements;
mod stored_responses;

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::ops::Deref;

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension as _};

#[cfg(test)]
pub(super) use changes::page_statement;
pub use changes::{Changes, ChangesPage, ChangesQuery, JournalPosition, Start};
pub(super) use encoding::read_record;
pub(super) use journal::{JournalState, renew_journal};
pub use journal::{KeyLabel, Origin};
pub use list::Page;
#[cfg(test)]
pub(super) use list::statements;
pub use pending_imports::{IdBlock, Reservation};
pub use search::fold;
pub(super) use search_index::damaged_search;
pub use search_index::{build_search, index};
pub(super) use segments::{merge_segments, merge_segments_of, most_segments};
pub(super) use statements::{Statements, is_visible};
pub use stored_responses::StoredResponse;

use super::error::DatabaseError;
use crate::model::{Field, Resource, Value};
use encoding::{checked, write_row};
use search::search_text;
use search_index::{ChangeKind, IndexedText, SearchChange};

/// A connection that reads.
#[derive(Debug)]
pub struct Reading<'a> {
    connection: &'a Connection,
    /// Whether hidden records were found. See [`Reading::hidden_ids`].
    found_hidden: Cell<bool>,
}

/// A connection inside a write transaction. It can read too.
#[derive(Debug)]
pub struct Writing<'a> {
    reading: Reading<'a>,
    /// What is yet to be done to the search tables.
    search: RefCell<Vec<SearchChange>>,
    /// `None` until the transaction indexes a text.
    last_word: Cell<Option<i64>>,
    /// `None` until the transaction adds an entry.
    journal: Cell<Option<JournalState>>,
}

impl<'a> Deref for Writing<'a> {
    type Target = Reading<'a>;

    fn deref(&self) -> &Reading<'a> {
        &self.reading
    }
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// At least 1.
    pub id: i64,
    /// The values of the resource's fields, in their order.
    pub values: Vec<Value>,
    /// RFC 3339, UTC, whole seconds.
    pub created_at: String,
    /// RFC 3339, UTC, whole seconds.
    pub updated_at: String,
    /// The number of its last entry in the journal. No two states of a record have the same version.
    pub version: i64,
}

impl<'a> Reading<'a> {
    pub(super) fn new(connection: &'a Connection) -> Reading<'a> {
        Reading { connection, found_hidden: Cell::new(false) }
    }

    pub(super) fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// Whether a list passed over hidden records: an import runs, or was interrupted.
    pub(super) fn has_found_hidden(&self) -> bool {
        self.found_hidden.get()
    }

    /// The record as a JSON object, and its version; `None` if there is no such record.
    pub fn json(&self, resource: &Resource, id: i64) -> Result<Option<(Vec<u8>, i64)>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(&Statements::of(resource).one)?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let mut json = Vec::with_capacity(512);
        write_row(&mut json, resource, row);
        Ok(Some((checked(json)?, row.get(resource.fields.len() + 3)?)))
    }

    /// The record; `None` if there is no such record.
    pub fn record(&self, resource: &Resource, id: i64) -> Result<Option<Record>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(&Statements::of(resource).one)?;
        Ok(statement.query_row([id], |row| read_record(resource, row)).optional()?)
    }

    /// The record's version; `None` if there is no such record.
    pub fn version(&self, resource: &Resource, id: i64) -> Result<Option<i64>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(&Statements::of(resource).version)?;
        Ok(statement.query_row([id], |row| row.get(0)).optional()?)
    }

    /// Whether the resource has a record `id`.
    pub fn exists(&self, resource: &Resource, id: i64) -> Result<bool, DatabaseError> {
        Ok(self.connection.prepare_cached(&Statements::of(resource).exists)?.exists([id])?)
    }

    /// The record that `field` refers to with `value`, if there is no such record: its resource and id. `None` if the record exists,
    /// or if the field or its value refers to none.
    pub fn missing_reference(
        &self,
        field: &Field,
        value: &Value,
    ) -> Result<Option<(&'static Resource, i64)>, DatabaseError> {
        match (Resource::referenced(field), value) {
            (Some(target), Value::Integer(id)) if !self.exists(target, *id)? => Ok(Some((target, *id))),
            _ => Ok(None),
        }
    }
}

impl<'a> Writing<'a> {
    pub(super) fn new(connection: &'a Connection) -> Writing<'a> {
        Writing {
            reading: Reading::new(connection),
            search: RefCell::default(),
            last_word: Cell::default(),
            journal: Cell::default(),
        }
    }

    /// Adds a record with the next id. It is found by search from `finish_search` on.
    pub fn insert(&self, resource: &Resource, values: Vec<Value>, origin: &Origin) -> Result<Record, DatabaseError> {
        let text = self.text_to_index(search_text(resource, &values))?;
        let record = self.add(resource, (None, self.next_seq()?), values, &text, &origin.at)?;
        self.journal_created(resource, &record, origin)?;
        self.change_search(ChangeKind::Add, resource, record.id, text);
        Ok(record)
    }

    /// Adds a record of an import with its id and the number of its entry, which nobody sees before the import's end. `now` is
    /// RFC 3339.
    pub(super) fn insert_hidden(
        &self,
        resource: &Resource,
        (id, seq): (i64, i64),
        values: Vec<Value>,
        now: &str,
    ) -> rusqlite::Result<()> {
        let text = self.text_to_index(search_text(resource, &values))?;
        let record = self.add(resource, (Some(id), seq), values, &text, now)?;
        self.journal_imported(resource, &record)?;
        self.change_search(ChangeKind::Add, resource, id, text);
        Ok(())
    }

    /// Adds a record with an id, or the next, and a version.
    fn add(
        &self,
        resource: &Resource,
        (id, version): (Option<i64>, i64),
        values: Vec<Value>,
        text: &IndexedText,
        now: &str,
    ) -> rusqlite::Result<Record> {
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(values.len() + 6);
        bound.push(&id);
        bound.extend(values.iter().map(|value| value as &dyn ToSql));
        bound.extend([&now as &dyn ToSql, &now, &text.search, &text.last_word, &version]);
        self.connection().prepare_cached(&Statements::of(resource).insert)?.execute(bound.as_slice())?;
        let id = self.connection().last_insert_rowid();
        Ok(Record { id, values, created_at: now.to_owned(), updated_at: now.to_owned(), version })
    }

    /// Sets the named fields and `updated_at`; the others stay. `None` where there is no such record.
    pub fn update(
        &self,
        resource: &Resource,
        id: i64,
        changes: &[(&'static Field, Value)],
        origin: &Origin,
    ) -> Result<Option<Record>, DatabaseError> {
        let Some(mut record) = self.record(resource, id)? else { return Ok(None) };
        let old = self.indexed_text(resource, id)?;
        let former = replace_values(resource, &mut record, changes);
        origin.at.clone_into(&mut record.updated_at);
        record.version = self.next_seq()?;
        let search = search_text(resource, &record.values);
        let text = if search == old.search { old.clone() } else { self.text_to_index(search)? };
        self.store(resource, &record, changes, &text)?;
        self.journal_updated(resource, &record, &former, origin)?;
        if text.search != old.search {
            self.change_search(ChangeKind::Remove, resource, id, old);
            self.change_search(ChangeKind::Add, resource, id, text);
        }
        Ok(Some(record))
    }

    /// Stores the named fields of a changed record, and what changes with them.
    fn store(
        &self,
        resource: &Resource,
        record: &Record,
        changes: &[(&'static Field, Value)],
        text: &IndexedText,
    ) -> Result<(), DatabaseError> {
        let mut sql = format!("UPDATE {} SET ", resource.plural);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(changes.len() + 5);
        for (field, value) in changes {
            write!(sql, "{} = ?, ", field.name).map_err(|_| rusqlite::Error::InvalidQuery)?;
            bound.push(value);
        }
        sql.push_str("updated_at = ?, search = ?, last_word = ?, version = ? WHERE id = ?");
        let IndexedText { search, last_word } = text;
        bound.extend([&record.updated_at as &dyn ToSql, search, last_word, &record.version, &record.id]);
        self.connection().prepare_cached(&sql)?.execute(bound.as_slice())?;
        Ok(())
    }

    /// Removes a record.
    pub fn delete(&self, resource: &Resource, id: i64, origin: &Origin) -> Result<DeleteOutcome, DatabaseError> {
        let Some(record) = self.record(resource, id)? else { return Ok(DeleteOutcome::NotFound) };
        let text = self.indexed_text(resource, id)?;
        match self.connection().prepare_cached(&Statements::of(resource).delete)?.execute([id]) {
            Ok(_) => {
                self.journal_deleted(resource, &record, origin)?;
                self.change_search(ChangeKind::Remove, resource, id, text);
                Ok(DeleteOutcome::Deleted)
            }
            Err(error) => match &error {
                rusqlite::Error::SqliteFailure(cause, message)
                    if cause.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
                {
                    Ok(DeleteOutcome::Referenced(message.clone().unwrap_or_else(|| cause.to_string())))
                }
                _ => Err(error.into()),
            },
        }
    }
}

/// Sets the named fields of `record`. Returns those whose values differ, with the values before.
fn replace_values(
    resource: &Resource,
    record: &mut Record,
    changes: &[(&'static Field, Value)],
) -> Vec<(&'static Field, Value)> {
    let mut former = Vec::new();
    for (declared, stored) in resource.fields.iter().zip(&mut record.values) {
        let changed = changes.iter().find(|(field, _)| field.name == declared.name);
        if let Some((field, value)) = changed.filter(|(_, value)| value != stored) {
            former.push((*field, std::mem::replace(stored, value.clone())));
        }
    }
    former
}

/// The outcome of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The record was deleted.
    Deleted,
    /// There is no such record.
    NotFound,
    /// Other records refer to it. The database's own message.
    Referenced(String),
}
