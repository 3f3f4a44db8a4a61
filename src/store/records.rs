//! The five operations on records. SQL is put together from declared names only; values are always bound.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::Deref;

use rusqlite::types::{ToSql, ToSqlOutput, Type, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::error::DatabaseError;
use super::statements::Statements;
use crate::model::{Column, Field, KeysetPosition, Kind, ListQuery, Predicate, Resource, Value};

/// A connection that reads.
#[derive(Debug)]
pub struct Reading<'a>(&'a Connection);

/// A connection inside a write transaction. It can read too.
#[derive(Debug)]
pub struct Writing<'a> {
    reading: Reading<'a>,
    /// What is still to be done to the search tables.
    search: RefCell<Vec<SearchChange>>,
}

/// A record's search text that is to be entered into the search table, or to be taken out again.
#[derive(Debug)]
struct SearchChange {
    sql: &'static str,
    id: i64,
    text: String,
}

impl<'a> Deref for Writing<'a> {
    type Target = Reading<'a>;

    fn deref(&self) -> &Reading<'a> {
        &self.reading
    }
}

/// A record as it is stored: the values of the resource's fields in their order, and around them what is read-only.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub id: i64,
    pub values: Vec<Value>,
    pub created_at: String,
    pub updated_at: String,
}

/// One page: its records as a JSON array, already written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub json: Vec<u8>,
    /// The last record's position, while more follow.
    pub next: Option<KeysetPosition>,
    pub total: Option<i64>,
}

/// An answer that is remembered under an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// SHA-256 of the request that it answered.
    pub request: [u8; 32],
    pub status: u16,
    pub location: Option<String>,
    pub body: Vec<u8>,
}

/// How long an answer is remembered, in seconds (contract section 8).
const REMEMBERED_FOR: i64 = 24 * 60 * 60;

/// Old answers removed with each new one: more than one, so that they die out.
const FORGOTTEN_AT_ONCE: i64 = 8;

impl<'a> Reading<'a> {
    pub(super) fn new(connection: &'a Connection) -> Reading<'a> {
        Reading(connection)
    }

    pub(super) fn connection(&self) -> &'a Connection {
        self.0
    }

    /// The record as JSON, already written.
    pub fn json(&self, resource: &Resource, id: i64) -> Result<Option<Vec<u8>>, DatabaseError> {
        let mut statement = self.0.prepare_cached(&Statements::of(resource).one)?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let mut json = Vec::with_capacity(512);
        write_row(&mut json, resource, row)?;
        Ok(Some(checked(json)?))
    }

    /// The record.
    pub fn record(&self, resource: &Resource, id: i64) -> Result<Option<Record>, DatabaseError> {
        let mut statement = self.0.prepare_cached(&Statements::of(resource).one)?;
        Ok(statement.query_row([id], |row| read_record(resource, row)).optional()?)
    }

    /// Whether the resource has a record `id`.
    pub fn exists(&self, resource: &Resource, id: i64) -> Result<bool, DatabaseError> {
        Ok(self.0.prepare_cached(&Statements::of(resource).exists)?.exists([id])?)
    }

    /// One page of a list. All of it, the count too, is of one moment.
    pub fn page(&self, list: &ListQuery) -> Result<Page, DatabaseError> {
        let segments = segments(list);
        // One statement is of one moment by itself.
        let needs_moment = list.total || segments.len() > 1;
        let moment = if needs_moment { Some(self.0.unchecked_transaction()?) } else { None };
        let search = self.search(list)?;
        let mut page = PageWriter::new(list);
        for segment in segments {
            if page.is_full() {
                break;
            }
            let (sql, values) = select(list, &search, &segment, page.missing());
            let mut statement = self.0.prepare_cached(&sql)?;
            let mut rows = statement.query(rusqlite::params_from_iter(values.iter()))?;
            while let Some(row) = rows.next()? {
                page.take(row)?;
            }
        }
        let total = if list.total { Some(self.count(list, &search)?) } else { None };
        moment.map_or(Ok(()), Transaction::finish)?;
        Ok(page.finish(total)?)
    }

    /// Looks at a few records to learn which of the words' trigrams nearly all have.
    fn search(&self, list: &ListQuery) -> rusqlite::Result<Search> {
        let mut search = Search::of(list);
        if search.trigrams.len() > FEWEST_TRIGRAMS {
            let mut statement = self.0.prepare_cached(&Statements::of(list.resource).samples)?;
            let samples: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            search.leave_out_common(&samples);
        }
        Ok(search)
    }

    fn count(&self, list: &ListQuery, search: &Search) -> rusqlite::Result<i64> {
        let mut query = Query::new(list, search);
        query.filter(list);
        let sql = format!("SELECT count(*) FROM {}{}", query.from, query.conditions());
        self.0.prepare_cached(&sql)?.query_row(rusqlite::params_from_iter(query.values.iter()), |row| row.get(0))
    }

    /// The answer remembered under `key`, unless it is over 24 hours old at `now` (Unix seconds).
    pub fn remembered(&self, key: &[u8; 16], now: i64) -> Result<Option<Remembered>, DatabaseError> {
        let sql = "SELECT request, status, location, body FROM idempotency WHERE key = ? AND created_at > ?";
        let mut statement = self.0.prepare_cached(sql)?;
        let found = statement
            .query_row(params![key, now - REMEMBERED_FOR], |row| {
                Ok(Remembered { request: row.get(0)?, status: row.get(1)?, location: row.get(2)?, body: row.get(3)? })
            })
            .optional()?;
        Ok(found)
    }
}

impl<'a> Writing<'a> {
    pub(super) fn new(connection: &'a Connection) -> Writing<'a> {
        Writing { reading: Reading::new(connection), search: RefCell::default() }
    }

    /// How much there is to be done to the search tables, for [`Writing::forget_search`].
    pub(super) fn pending_search(&self) -> usize {
        self.search.borrow().len()
    }

    /// Forgets what came to that since there was `pending` of it: the changes that it belongs to were undone.
    pub(super) fn forget_search(&self, pending: usize) {
        self.search.borrow_mut().truncate(pending);
    }

    /// Brings the search tables up to date, for all changes of the transaction together: FTS5 would write what it gathered at
    /// every savepoint and for every id that is not higher than the one before, and have that much more to merge later.
    pub(super) fn finish_search(&self) -> rusqlite::Result<()> {
        let mut changes = self.search.take();
        // Stable: a record's own changes stay in their order.
        changes.sort_by_key(|change| change.id);
        for SearchChange { sql, id, text } in changes {
            self.connection().prepare_cached(sql)?.execute(params![id, text])?;
        }
        Ok(())
    }

    /// Adds a record with the next id. `now` is RFC 3339. It is found by search from `finish_search` on.
    pub fn insert(&self, resource: &Resource, values: Vec<Value>, now: &str) -> Result<Record, DatabaseError> {
        let search = search_text(resource, &values);
        let record = self.add(resource, None, values, &search, now)?;
        self.index(resource, record.id, search);
        Ok(record)
    }

    /// Adds a record with the id that it must have, or the next, and leaves the search table to the caller.
    pub(super) fn insert_as(
        &self,
        resource: &Resource,
        id: Option<i64>,
        values: Vec<Value>,
        now: &str,
    ) -> rusqlite::Result<Record> {
        let search = search_text(resource, &values);
        self.add(resource, id, values, &search, now)
    }

    fn add(
        &self,
        resource: &Resource,
        id: Option<i64>,
        values: Vec<Value>,
        search: &str,
        now: &str,
    ) -> rusqlite::Result<Record> {
        let mut bound: Vec<&dyn ToSql> = vec![&id];
        bound.extend(values.iter().map(|value| value as &dyn ToSql));
        bound.extend([&now as &dyn ToSql, &now, &search]);
        self.connection().prepare_cached(&Statements::of(resource).insert)?.execute(bound.as_slice())?;
        let id = self.connection().last_insert_rowid();
        Ok(Record { id, values, created_at: now.to_owned(), updated_at: now.to_owned() })
    }

    /// Sets the named fields and `updated_at`; the others stay. `None` where there is no such record.
    pub fn update(
        &self,
        resource: &Resource,
        id: i64,
        changes: &[(&'static Field, Value)],
        now: &str,
    ) -> Result<Option<Record>, DatabaseError> {
        let Some(mut record) = self.record(resource, id)? else { return Ok(None) };
        let mut sql = format!("UPDATE {} SET ", resource.plural);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(changes.len() + 3);
        for (field, value) in changes {
            write!(sql, "{} = ?, ", field.name).map_err(|_| rusqlite::Error::InvalidQuery)?;
            bound.push(value);
            let places = resource.fields.iter().zip(&mut record.values);
            for (_, place) in places.filter(|(declared, _)| declared.name == field.name) {
                *place = value.clone();
            }
        }
        now.clone_into(&mut record.updated_at);
        let (old, search) = (self.search_text_of(resource, id)?, search_text(resource, &record.values));
        sql.push_str("updated_at = ?, search = ? WHERE id = ?");
        bound.extend([&now as &dyn ToSql, &search, &id]);
        self.connection().prepare_cached(&sql)?.execute(bound.as_slice())?;
        if search != old {
            self.unindex(resource, id, old);
            self.index(resource, id, search);
        }
        Ok(Some(record))
    }

    /// Removes a record.
    pub fn delete(&self, resource: &Resource, id: i64) -> Result<Deleted, DatabaseError> {
        let Some(search) = self.search_text_of(resource, id).optional()? else { return Ok(Deleted::NotThere) };
        let sql = format!("DELETE FROM {} WHERE id = ?", resource.plural);
        match self.connection().prepare_cached(&sql)?.execute([id]) {
            Ok(_) => {
                self.unindex(resource, id, search);
                Ok(Deleted::Gone)
            }
            Err(error) => match &error {
                rusqlite::Error::SqliteFailure(cause, message)
                    if cause.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
                {
                    Ok(Deleted::Refused(message.clone().unwrap_or_else(|| cause.to_string())))
                }
                _ => Err(error.into()),
            },
        }
    }

    /// The search text that stands in the file, which another version of the program may have folded otherwise.
    fn search_text_of(&self, resource: &Resource, id: i64) -> rusqlite::Result<String> {
        self.connection().prepare_cached(&Statements::of(resource).search)?.query_row([id], |row| row.get(0))
    }

    fn index(&self, resource: &Resource, id: i64, text: String) {
        self.search.borrow_mut().push(SearchChange { sql: &Statements::of(resource).index, id, text });
    }

    fn unindex(&self, resource: &Resource, id: i64, text: String) {
        self.search.borrow_mut().push(SearchChange { sql: &Statements::of(resource).unindex, id, text });
    }

    /// Remembers an answer under an idempotency key, from `now` (Unix seconds) on, in place of one that is too old.
    pub fn remember(&self, key: &[u8; 16], answer: &Remembered, now: i64) -> Result<(), DatabaseError> {
        let connection = self.connection();
        connection
            .prepare_cached(
                "DELETE FROM idempotency WHERE id IN
                   (SELECT id FROM idempotency WHERE created_at <= ? ORDER BY created_at LIMIT ?)",
            )?
            .execute([now - REMEMBERED_FOR, FORGOTTEN_AT_ONCE])?;
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO idempotency (key, request, status, location, body, created_at)
                 VALUES (?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![key, answer.request, answer.status, answer.location, answer.body, now])?;
        Ok(())
    }
}

/// What became of a record that was to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    Gone,
    NotThere,
    /// Other records refer to it. The database's own message.
    Refused(String),
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Integer(number) => ToSqlOutput::from(*number),
            Value::Boolean(truth) => ToSqlOutput::from(*truth),
            Value::Text(text) => ToSqlOutput::from(text.as_str()),
        })
    }
}

pub(super) fn read_record(resource: &Resource, row: &Row<'_>) -> rusqlite::Result<Record> {
    let last = resource.fields.len();
    let values = resource.fields.iter().enumerate().map(|(at, field)| read_value(row.get_ref(at + 1)?, field.kind));
    Ok(Record {
        id: row.get(0)?,
        values: values.collect::<rusqlite::Result<_>>()?,
        created_at: row.get(last + 1)?,
        updated_at: row.get(last + 2)?,
    })
}

fn read_value(stored: ValueRef<'_>, kind: Kind) -> rusqlite::Result<Value> {
    Ok(match stored {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) if kind == Kind::Boolean => Value::Boolean(number != 0),
        ValueRef::Integer(number) => Value::Integer(number),
        other => Value::Text(other.as_str()?.to_owned()),
    })
}

/// Writes a record's JSON from its row, without values in between.
fn write_row(json: &mut Vec<u8>, resource: &Resource, row: &Row<'_>) -> rusqlite::Result<()> {
    let start = json.len();
    for (at, (name, is_boolean)) in Statements::of(resource).places.iter().enumerate() {
        json.extend_from_slice(name.as_bytes());
        write_stored(json, row.get_ref(at)?, *is_boolean)?;
    }
    // In place of the first name's comma.
    if let Some(first) = json.get_mut(start) {
        *first = b'{';
    }
    json.push(b'}');
    Ok(())
}

fn write_name(json: &mut Vec<u8>, name: &str) {
    json.extend_from_slice(b",\"");
    json.extend_from_slice(name.as_bytes());
    json.extend_from_slice(b"\":");
}

fn write_stored(json: &mut Vec<u8>, stored: ValueRef<'_>, boolean: bool) -> rusqlite::Result<()> {
    match stored {
        ValueRef::Null => json.extend_from_slice(b"null"),
        ValueRef::Integer(number) if boolean => write_boolean(json, number != 0),
        ValueRef::Integer(number) => write_integer(json, number),
        ValueRef::Text(text) if !needs_escapes(text) => write_quoted(json, text),
        other => write_text(json, other.as_str()?),
    }
    Ok(())
}

fn write_boolean(json: &mut Vec<u8>, truth: bool) {
    json.extend_from_slice(if truth { b"true" } else { b"false" });
}

/// Writing to memory does not fail, so there is no error to pass on.
fn write_integer(json: &mut Vec<u8>, number: i64) {
    let _ = serde_json::to_writer(json, &number);
}

fn write_text(json: &mut Vec<u8>, text: &str) {
    if needs_escapes(text.as_bytes()) {
        let _ = serde_json::to_writer(json, text);
    } else {
        write_quoted(json, text.as_bytes());
    }
}

/// It looks at every byte, so that the compiler can take many at once.
fn needs_escapes(text: &[u8]) -> bool {
    text.iter().fold(false, |found, byte| found | (*byte < b' ') | (*byte == b'"') | (*byte == b'\\'))
}

fn write_quoted(json: &mut Vec<u8>, text: &[u8]) {
    json.reserve(text.len() + 2);
    json.push(b'"');
    json.extend_from_slice(text);
    json.push(b'"');
}

/// Text is copied as it stands in the file: whether it is UTF-8 is asked once for a whole answer, not for each value.
fn checked(json: Vec<u8>) -> rusqlite::Result<Vec<u8>> {
    match std::str::from_utf8(&json) {
        Ok(_) => Ok(json),
        Err(error) => Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.into())),
    }
}

impl Record {
    /// The bare JSON object of an answer: every field, nulls included, `id` first.
    pub fn json(&self, resource: &Resource) -> Vec<u8> {
        let mut json = Vec::with_capacity(512);
        json.extend_from_slice(b"{\"id\":");
        write_integer(&mut json, self.id);
        for (field, value) in resource.fields.iter().zip(&self.values) {
            write_name(&mut json, field.name);
            match value {
                Value::Null => json.extend_from_slice(b"null"),
                Value::Boolean(truth) => write_boolean(&mut json, *truth),
                Value::Integer(number) => write_integer(&mut json, *number),
                Value::Text(text) => write_text(&mut json, text),
            }
        }
        write_name(&mut json, "created_at");
        write_text(&mut json, &self.created_at);
        write_name(&mut json, "updated_at");
        write_text(&mut json, &self.updated_at);
        json.push(b'}');
        json
    }
}

/// Unicode's full case folding: SQLite's own folds letter by letter, so that `strasse` would miss `Straße`.
pub fn fold(text: &str) -> String {
    unicase::UniCase::unicode(text).to_folded_case()
}

/// The folded text of all searched fields, one a line: a word of `q` has no white space and so stays within one.
fn search_text(resource: &Resource, values: &[Value]) -> String {
    let mut text = String::new();
    for (_, value) in resource.fields.iter().zip(values).filter(|(field, _)| field.is_searched()) {
        if let Value::Text(value) = value {
            text.push_str(&fold(value));
            text.push('\n');
        }
    }
    text
}

/// One stretch of a list in its order. Nulls and ties need stretches of their own, so that each is read along an index.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// From the beginning to the end.
    All,
    /// The rest of those with the position's sort value, behind its id.
    Ties(KeysetPosition),
    /// Values behind the position's. Nulls are none of them.
    Beyond(Value),
    NotNull,
    Null,
}

fn segments(list: &ListQuery) -> Vec<Segment> {
    let Some(position) = &list.after else { return vec![Segment::All] };
    let ties = Segment::Ties(position.clone());
    if list.sort == Column::Id {
        return vec![Segment::Beyond(Value::Integer(position.id))];
    }
    match (&position.value, list.descending) {
        (Value::Null, false) => vec![ties, Segment::NotNull],
        (Value::Null, true) => vec![ties],
        (value, false) => vec![ties, Segment::Beyond(value.clone())],
        (value, true) if list.sort.is_nullable() => vec![ties, Segment::Beyond(value.clone()), Segment::Null],
        (value, true) => vec![ties, Segment::Beyond(value.clone())],
    }
}

/// A query in the making.
struct Query {
    from: String,
    conditions: Vec<Cow<'static, str>>,
    values: Vec<Value>,
}

/// Words of fewer characters have no trigram and are looked for in every record.
const TRIGRAM: usize = 3;

/// As many trigrams are always asked for, so that rows are narrowed down even where all are common.
const FEWEST_TRIGRAMS: usize = 2;

/// The most trigrams that are looked for in the samples and asked of the search table. A long word has thousands of them,
/// and a few narrow the rows down as well.
const MAX_TRIGRAMS: usize = 64;

/// FTS5 ends a string at this character. No text field holds it, so a word that has it is in no record.
const NUL: char = '\0';

/// The words of `q`, and by which trigrams the search table narrows the rows down to those that may have them.
struct Search {
    /// Folded.
    words: Vec<String>,
    trigrams: Vec<String>,
}

impl Search {
    fn of(list: &ListQuery) -> Search {
        let words: Vec<String> = list.words.iter().map(|word| fold(word)).collect();
        let for_fts5 = words.iter().filter(|word| !word.contains(NUL));
        let mut trigrams: Vec<String> = for_fts5.flat_map(|word| trigrams(word)).collect();
        trigrams.sort_unstable();
        trigrams.dedup();
        let step = trigrams.len().div_ceil(MAX_TRIGRAMS).max(1);
        Search { words, trigrams: trigrams.into_iter().step_by(step).collect() }
    }

    /// Drops trigrams that half of the samples have: they narrow little down, and going through their long lists is what
    /// a search for a serial number would spend its time with.
    fn leave_out_common(&mut self, samples: &[String]) {
        let having = |trigram: &String| samples.iter().filter(|text| text.contains(trigram.as_str())).count();
        self.trigrams.sort_by_cached_key(having);
        let rare = self.trigrams.partition_point(|trigram| having(trigram) * 2 < samples.len());
        self.trigrams.truncate(rare.max(FEWEST_TRIGRAMS));
    }

    /// In the full-text query language. `None` where every word is too short.
    fn expression(&self) -> Option<String> {
        let quoted = |trigram: &String| format!("\"{}\"", trigram.replace('"', "\"\""));
        let all: Vec<String> = self.trigrams.iter().map(quoted).collect();
        (!all.is_empty()).then(|| all.join(" AND "))
    }
}

impl Query {
    /// Where words are long enough, the search table comes first: its rows are in the order of ids.
    fn new(list: &ListQuery, search: &Search) -> Query {
        let table = list.resource.plural;
        let mut query = Query { from: format!("{table} AS r"), conditions: Vec::new(), values: Vec::new() };
        if let Some(expression) = search.expression() {
            query.from = format!("{table}_search AS s CROSS JOIN {table} AS r ON r.id = s.rowid");
            query.add(format!("s.{table}_search MATCH ?"), Value::Text(expression));
        }
        for word in &search.words {
            query.add("instr(r.search, ?) > 0", Value::Text(word.clone()));
        }
        query
    }

    /// The id as the table that is read first knows it, so that a page begins where it should there too.
    fn id(&self) -> &'static str {
        if self.from.contains("_search") { "s.rowid" } else { "r.id" }
    }

    fn add(&mut self, condition: impl Into<Cow<'static, str>>, value: Value) {
        self.conditions.push(condition.into());
        self.values.push(value);
    }

    fn filter(&mut self, list: &ListQuery) {
        for (column, test) in &list.filters {
            let name = column.name();
            match test {
                Predicate::Equals(Value::Null) => self.conditions.push(format!("r.{name} IS NULL").into()),
                Predicate::Equals(value) => self.add(format!("r.{name} = ?"), value.clone()),
                Predicate::AtLeast(value) => self.add(format!("r.{name} >= ?"), Value::Text(value.clone())),
                Predicate::AtMost(value) => self.add(format!("r.{name} <= ?"), Value::Text(value.clone())),
            }
        }
    }

    fn begin(&mut self, list: &ListQuery, segment: &Segment) {
        let (column, id, beyond) = (list.sort.name(), self.id(), if list.descending { "<" } else { ">" });
        match segment {
            Segment::All => (),
            Segment::Beyond(value) if list.sort == Column::Id => {
                self.add(format!("{id} {beyond} ?"), value.clone());
            }
            Segment::Ties(position) => {
                self.add(format!("r.{column} IS ?"), position.value.clone());
                self.add(format!("{id} {beyond} ?"), Value::Integer(position.id));
            }
            Segment::Beyond(value) => self.add(format!("r.{column} {beyond} ?"), value.clone()),
            Segment::NotNull => self.conditions.push(format!("r.{column} IS NOT NULL").into()),
            Segment::Null => self.conditions.push(format!("r.{column} IS NULL").into()),
        }
    }

    fn conditions(&self) -> String {
        if self.conditions.is_empty() { String::new() } else { format!(" WHERE {}", self.conditions.join(" AND ")) }
    }

    fn order(&self, list: &ListQuery, segment: &Segment) -> String {
        let (id, direction) = (self.id(), if list.descending { "DESC" } else { "ASC" });
        match segment {
            Segment::Ties(_) | Segment::Null => format!("{id} {direction}"),
            _ if list.sort == Column::Id => format!("{id} {direction}"),
            _ => format!("r.{} {direction}, {id} {direction}", list.sort.name()),
        }
    }
}

/// The statement for a segment, of at most `count` rows, with its values.
fn select(list: &ListQuery, search: &Search, segment: &Segment, count: usize) -> (String, Vec<Value>) {
    let mut query = Query::new(list, search);
    query.filter(list);
    query.begin(list, segment);
    let columns = &Statements::of(list.resource).of_r;
    let order = query.order(list, segment);
    let sql = format!("SELECT {columns} FROM {}{} ORDER BY {order} LIMIT ?", query.from, query.conditions());
    query.values.push(Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)));
    (sql, query.values)
}

/// The statements of a whole page, for the test that each is read along an index.
#[cfg(test)]
pub(super) fn statements(list: &ListQuery) -> Vec<(String, Vec<Value>)> {
    let search = Search::of(list);
    segments(list).iter().map(|segment| select(list, &search, segment, 51)).collect()
}

/// Every three neighbouring characters of a folded word.
fn trigrams(word: &str) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    characters.windows(TRIGRAM).map(|three| three.iter().collect()).collect()
}

/// Writes the rows of a page as they come, and looks one row further to know whether more follow.
struct PageWriter<'a> {
    list: &'a ListQuery,
    json: Vec<u8>,
    taken: usize,
    last: Option<KeysetPosition>,
    more: bool,
}

impl<'a> PageWriter<'a> {
    fn new(list: &'a ListQuery) -> PageWriter<'a> {
        let mut json = Vec::with_capacity(512 * list.limit.min(64));
        json.push(b'[');
        PageWriter { list, json, taken: 0, last: None, more: false }
    }

    /// Rows to ask for: those that the page lacks, and one.
    fn missing(&self) -> usize {
        (self.list.limit + 1).saturating_sub(self.taken)
    }

    fn is_full(&self) -> bool {
        self.more
    }

    fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        if self.taken == self.list.limit {
            self.more = true;
            return Ok(());
        }
        if self.taken > 0 {
            self.json.push(b',');
        }
        write_row(&mut self.json, self.list.resource, row)?;
        self.taken += 1;
        if self.taken == self.list.limit {
            let sort = self.list.sort;
            let value = match row.get_ref(sort.name())? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(number) if sort.is_boolean() => Value::Boolean(number != 0),
                ValueRef::Integer(number) => Value::Integer(number),
                other => Value::Text(other.as_str()?.to_owned()),
            };
            self.last = Some(KeysetPosition { value, id: row.get("id")? });
        }
        Ok(())
    }

    fn finish(mut self, total: Option<i64>) -> rusqlite::Result<Page> {
        self.json.push(b']');
        Ok(Page { json: checked(self.json)?, next: self.last.filter(|_| self.more), total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CUSTOMER;

    fn search(q: &str) -> Search {
        Search::of(&ListQuery {
            resource: &CUSTOMER,
            sort: Column::Id,
            descending: false,
            filters: Vec::new(),
            words: q.split_whitespace().map(str::to_owned).collect(),
            limit: 50,
            after: None,
            total: false,
        })
    }

    /// A word of `count` letters in which no trigram comes twice.
    fn word(count: u32) -> String {
        (0..count).filter_map(|n| char::from_u32(0x4e00 + n)).collect()
    }

    #[test]
    fn a_long_search_looks_at_a_bounded_number_of_trigrams() {
        for letters in [67, 200, 8_000] {
            let word = word(letters);
            let search = search(&word);
            let count = search.trigrams.len();
            assert!((MAX_TRIGRAMS / 2..=MAX_TRIGRAMS).contains(&count), "{count} trigrams of {letters} letters");
            assert!(search.trigrams.iter().all(|trigram| word.contains(trigram.as_str())));
        }
        assert_eq!(search(&word(66)).trigrams.len(), 64);
        assert_eq!(search("alpha be").trigrams, ["alp", "lph", "pha"]);
    }

    #[test]
    fn a_word_with_nul_does_not_reach_the_search_table() {
        assert_eq!(search("a\0b").expression(), None);
        assert_eq!(search("abcdef\0").expression(), None);
        assert_eq!(search("a\0bcde needle").trigrams, ["dle", "edl", "eed", "nee"]);
    }
}
