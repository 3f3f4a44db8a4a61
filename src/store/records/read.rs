//! Reads records: one at a time, by a field, or all. Also the statements of a resource, records
//! from rows, and records as JSON.

use std::borrow::Cow;
use std::sync::LazyLock;

use rusqlite::types::{ToSql, ToSqlOutput, Type, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::clock::Timestamp;
use crate::json_writer::JsonWriter;
use crate::model::validation::custom_to_text;
use crate::model::{ALL, Field, ID, Inclusion, Kind, RecordId, Resource, Value, Version};
use crate::store::database::{self, SearchText};
use crate::store::error::{Rejection, Result, StoreError};

/// A page ends after the record with which its JSON text has this many bytes (contract sections 4
/// and 12). Otherwise 200 large records with the records that they include would have 50 MiB.
pub(super) const MAX_PAGE: usize = 4 << 20;

/// A connection that reads records as they are, or as they were.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    connection: &'a Connection,
    /// If set, records are read as they were after this entry of the change log.
    last: Option<Version>,
}

/// Ends the transaction of a read, also after a panic. `rusqlite::Transaction` prepares its
/// statements anew each time.
struct EndOfSnapshot<'a>(&'a Connection);

impl Drop for EndOfSnapshot<'_> {
    fn drop(&mut self) {
        // If `BEGIN` failed, there is nothing to end.
        if !self.0.is_autocommit() {
            let _ = database::execute(self.0, "ROLLBACK");
        }
    }
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub id: RecordId,
    /// The values of the resource's fields, in their order.
    pub values: Vec<Value>,
    pub created_at: Timestamp,
    /// Unknown in the past, if 1.0.0 wrote the entry of the next change. The version is 0 then.
    pub updated_at: Option<Timestamp>,
    pub version: Version,
}

impl<'a> Reading<'a> {
    pub(in crate::store) fn new(connection: &'a Connection) -> Reading<'a> {
        Reading { connection, last: None }
    }

    /// Reads records as they were after the entry `last`.
    pub(in crate::store) fn after(self, last: Version) -> Reading<'a> {
        Reading { last: Some(last), ..self }
    }

    pub(super) fn last(&self) -> Option<Version> {
        self.last
    }

    pub(in crate::store) fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// Runs `work` in a transaction, so that all its reads see one moment of the file.
    pub(in crate::store) fn in_snapshot<T, E: From<StoreError>>(
        connection: &Connection,
        work: impl FnOnce(&Reading<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _end = EndOfSnapshot(connection);
        database::execute(connection, "BEGIN").map_err(StoreError::from)?;
        work(&Reading::new(connection))
    }

    /// The record as a JSON object with the included records. Also its version, but not in the past.
    pub fn json(
        &self,
        resource: &Resource,
        id: RecordId,
        include: &[&Inclusion],
    ) -> Result<Option<(Vec<u8>, Option<Version>)>> {
        let mut json = JsonWriter::with_capacity(512);
        if self.last.is_some() {
            let Some(record) = self.record(resource, id)? else { return Ok(None) };
            self.write_former(&mut json, resource, include, &record)?;
            return Ok(Some((json.take(), None)));
        }
        let one = Cow::Borrowed(Statements::of(resource).one.as_str());
        let sql = if include.is_empty() { one } else { including(include, &one).into() };
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([id.0])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let version = write_row(&mut json, resource, include, row, 0)?;
        Ok(Some((json.take(), Some(version))))
    }

    /// Writes a record of the past with the included records.
    pub(super) fn write_former(
        &self,
        json: &mut JsonWriter,
        resource: &Resource,
        include: &[&Inclusion],
        record: &Record,
    ) -> Result<()> {
        record.write_members(json, resource);
        for one in include {
            json.name(one.name());
            let referred = match resource.value(&record.values, one.reference.name) {
                Some(Value::Integer(id)) => self.record(one.resource, RecordId(*id))?,
                _ => None,
            };
            match referred {
                Some(referred) => self.write_former(json, one.resource, &[], &referred)?,
                None => json.value(&()),
            }
        }
        match record.version {
            Version(0) => json.member("etag", &()),
            version => write_etag(json, version),
        }
        json.end_object();
        Ok(())
    }

    pub fn record(&self, resource: &Resource, id: RecordId) -> Result<Option<Record>> {
        let mut statement = self.connection.prepare_cached(&Statements::of(resource).one)?;
        let record = statement.query_row([id.0], |row| read_record(resource, row)).optional()?;
        match self.last {
            Some(last) => self.former_record(resource, id, record, last),
            None => Ok(record),
        }
    }

    pub fn exists(&self, resource: &Resource, id: RecordId) -> Result<bool> {
        let sql = format!("SELECT 1 FROM {} WHERE id = ?", resource.plural);
        Ok(self.connection.prepare_cached(&sql)?.exists([id.0])?)
    }

    /// Calls `take` with each record, in the order of ids. Returns the number of records.
    pub fn each<E: From<StoreError>>(
        &self,
        resource: &Resource,
        mut take: impl FnMut(&Record) -> Result<(), E>,
    ) -> Result<u64, E> {
        let columns = self.last.map_or(Statements::of(resource).columns.as_str(), |_| "r.id");
        let source = self.source(resource, &ID, &[]);
        let sql = format!("SELECT {columns} FROM {source} AS r ORDER BY r.id");
        let mut statement = self.connection.prepare(&sql).map_err(StoreError::from)?;
        let mut rows = statement.query([]).map_err(StoreError::from)?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(StoreError::from)? {
            let record = match self.last {
                None => Some(read_record(resource, row).map_err(StoreError::from)?),
                Some(_) => {
                    self.record(resource, RecordId(row.get(0).map_err(StoreError::from)?))?
                }
            };
            let Some(record) = record else { continue };
            take(&record)?;
            count += 1;
        }
        Ok(count)
    }

    /// The names of custom fields in use, in alphabetical order.
    pub fn custom_names(&self, resource: &Resource) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT DISTINCT key FROM {} AS r, json_each(r.custom) WHERE r.custom <> '{{}}'
             ORDER BY key",
            self.source(resource, &ID, &["custom"])
        );
        let mut statement = self.connection.prepare(&sql)?;
        let names = statement.query_map([], |row| row.get(0))?;
        Ok(names.collect::<rusqlite::Result<_>>()?)
    }

    /// The number of records.
    pub fn count(&self, resource: &Resource) -> Result<i64> {
        let sql = format!("SELECT count(*) FROM {}", self.source(resource, &ID, &[]));
        Ok(self.connection.query_row(&sql, [], |row| row.get(0))?)
    }

    /// Whether the resource has, or ever had, a record.
    pub fn has_ever_held(&self, resource: &Resource) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ? AND seq > 0)";
        Ok(self.connection.query_row(sql, [resource.plural], |row| row.get(0))?)
    }

    /// The one record that has `value` in `field`.
    pub fn find_one(
        &self,
        resource: &'static Resource,
        field: &'static Field,
        value: &Value,
    ) -> Result<Option<Record>> {
        let ids = self.find_all(resource, &[(field, value)])?;
        match ids.as_slice() {
            [] => Ok(None),
            [id] => Ok(self.record(resource, *id)?),
            _ => Err(Rejection::AmbiguousRecord(resource, field, ids).into()),
        }
    }

    /// Checks that the record exists to which `field` refers with `value`.
    pub fn check_reference(&self, field: &'static Field, value: &Value) -> Result<()> {
        if let (Some(target), Value::Integer(id)) = (field.references, value)
            && !self.exists(target, RecordId(*id))?
        {
            return Err(Rejection::MissingReference(field, target, *id).into());
        }
        Ok(())
    }
}

/// The statements and member names of one resource, built once from declared names.
#[derive(Debug)]
pub(super) struct Statements {
    /// One record by its id: `id`, the fields, the timestamps, which is the order of every answer,
    /// and the version.
    pub(super) one: String,
    /// A new record: its id or null for the next, its fields, both timestamps, search, version.
    pub(super) insert: String,
    /// The columns of `one`, qualified with the table alias `r`.
    pub(super) columns: String,
    /// The members of a record in JSON: the name and kind of each column.
    members: Vec<(&'static str, Kind)>,
}

static OF_EACH: LazyLock<[Statements; ALL.len()]> = LazyLock::new(|| ALL.map(Statements::new));

impl Statements {
    pub(super) fn of(resource: &Resource) -> &'static Statements {
        resource.by_resource(&OF_EACH)
    }

    fn new(resource: &Resource) -> Statements {
        let table = resource.plural;
        let fields: Vec<&str> = resource.fields.iter().map(|field| field.name).collect();
        let kind = |name: &str| resource.field(name).map_or(Kind::Timestamp, |field| field.kind);
        let record = qualified(resource, "r");
        Statements {
            one: format!("SELECT {record} FROM {table} AS r WHERE r.id = ?"),
            insert: format!(
                "INSERT INTO {table} (id, {}, created_at, updated_at, search, version)
                 VALUES (?, {}?, ?, ?, ?)",
                fields.join(", "),
                "?, ".repeat(fields.len())
            ),
            members: columns(resource).map(|name| (name, kind(name))).collect(),
            columns: record,
        }
    }
}

pub(super) fn columns(resource: &Resource) -> impl Iterator<Item = &'static str> {
    let fields = resource.fields.iter().map(|field| field.name);
    ["id"].into_iter().chain(fields).chain(["created_at", "updated_at"])
}

fn qualified(resource: &Resource, alias: &str) -> String {
    let columns = columns(resource).chain(["version"]);
    columns.map(|name| format!("{alias}.{name}")).collect::<Vec<_>>().join(", ")
}

/// A statement for `rows`, a statement with the columns of [`Statements::one`], and the columns of
/// the records that they include. The alias of `rows` is `r`.
///
/// SQLite reads `rows` first, so a page is complete before anything is joined.
pub(super) fn including(include: &[&Inclusion], rows: &str) -> String {
    let columns: String =
        include.iter().map(|one| format!(", {}", qualified(one.resource, one.name()))).collect();
    let joins = include.iter().map(|one| {
        let (table, name) = (one.resource.plural, one.name());
        format!(" LEFT JOIN {table} AS {name} ON {name}.id = r.{}", one.reference.name)
    });
    format!("SELECT r.*{columns} FROM ({rows}) AS r{}", joins.collect::<String>())
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Integer(number) => ValueRef::Integer(*number),
            Value::Boolean(truth) => ValueRef::Integer((*truth).into()),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Custom(custom) => return Ok(ToSqlOutput::from(custom_to_text(custom))),
        }))
    }
}

/// Reads a row of [`Statements::one`].
pub(super) fn read_record(resource: &Resource, row: &Row<'_>) -> rusqlite::Result<Record> {
    let last = resource.fields.len();
    let fields = resource.fields.iter().enumerate();
    let values = fields.map(|(at, field)| read_value(row.get_ref(at + 1)?, field.kind));
    Ok(Record {
        id: RecordId(row.get(0)?),
        values: values.collect::<rusqlite::Result<_>>()?,
        created_at: row.get(last + 1)?,
        updated_at: row.get(last + 2)?,
        version: Version(row.get(last + 3)?),
    })
}

pub(super) fn read_value(stored: ValueRef<'_>, kind: Kind) -> rusqlite::Result<Value> {
    Ok(match stored {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) if kind == Kind::Boolean => Value::Boolean(number != 0),
        ValueRef::Integer(number) => Value::Integer(number),
        text if kind == Kind::Custom => {
            Value::Custom(serde_json::from_str(text.as_str()?).map_err(damaged_text)?)
        }
        other => Value::Text(other.as_str()?.to_owned()),
    })
}

impl Record {
    /// The JSON object of a response: every field, nulls included, `id` first, `etag` last.
    pub fn response(&self, resource: &Resource) -> Vec<u8> {
        let mut json = JsonWriter::with_capacity(512);
        self.write_members(&mut json, resource);
        write_etag(&mut json, self.version);
        json.end_object();
        json.take()
    }

    /// The JSON object of an export: a response without `etag`.
    pub fn json(&self, resource: &Resource) -> Vec<u8> {
        let mut json = JsonWriter::with_capacity(512);
        self.write_members(&mut json, resource);
        json.end_object();
        json.take()
    }

    fn write_members(&self, json: &mut JsonWriter, resource: &Resource) {
        json.begin_object();
        json.member("id", &self.id.0);
        for (field, value) in resource.fields.iter().zip(&self.values) {
            json.member(field.name, value);
        }
        json.member("created_at", &self.created_at);
        json.member("updated_at", &self.updated_at);
    }
}

/// Writes the JSON object of a record. The columns of [`Statements::one`] begin at `first`, and the
/// columns of the records in `include` follow. Returns the record's version.
pub(super) fn write_row(
    json: &mut JsonWriter,
    resource: &Resource,
    include: &[&Inclusion],
    row: &Row<'_>,
    first: usize,
) -> rusqlite::Result<Version> {
    let members = &Statements::of(resource).members;
    json.begin_object();
    for (column, (name, kind)) in (first..).zip(members) {
        json.name(name);
        write_value(json, row.get_ref(column)?, *kind)?;
    }
    let mut next = first + members.len();
    let version = Version(row.get(next)?);
    next += 1;
    for one in include {
        json.name(one.name());
        match row.get_ref(next)? {
            ValueRef::Null => json.value(&()),
            _ => _ = write_row(json, one.resource, &[], row, next)?,
        }
        next += Statements::of(one.resource).members.len() + 1;
    }
    write_etag(json, version);
    json.end_object();
    Ok(version)
}

fn write_etag(json: &mut JsonWriter, version: Version) {
    json.name("etag");
    json.raw(format!(r#""\"{}\"""#, version.0).as_bytes());
}

fn write_value(json: &mut JsonWriter, value: ValueRef<'_>, kind: Kind) -> rusqlite::Result<()> {
    match value {
        ValueRef::Null => json.value(&()),
        ValueRef::Integer(number) if kind == Kind::Boolean => json.value(&(number != 0)),
        ValueRef::Integer(number) => json.value(&number),
        ValueRef::Real(number) => json.value(&number),
        ValueRef::Text(text) if kind == Kind::Custom => json.raw(text),
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            json.text(std::str::from_utf8(text).map_err(damaged_text)?);
        }
    }
    Ok(())
}

/// The error for a text that the program cannot have stored: the file is damaged.
pub(super) fn damaged_text(
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.into())
}

pub(super) fn search_text(resource: &Resource, values: &[Value]) -> String {
    let mut search = SearchText::default();
    for (field, value) in resource.fields.iter().zip(values) {
        match value {
            Value::Text(value) if field.is_searched() => search.add(value),
            Value::Custom(custom) => custom.values().for_each(|value| search.add(value)),
            _ => (),
        }
    }
    search.0
}
