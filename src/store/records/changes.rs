//! Pages of the journal (contract section 12).
//!
//! A page is read along an index from where the last one ended, for each resource on its own, so its cost depends neither on the
//! length of the journal nor on entries of other resources.
//!
//! Entries beyond the journal's last number belong to an import that has not ended. No page has them.

use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Reading;
use super::encoding::{checked, damaged_text, write_row, write_text};
use super::statements::Statements;
use crate::clock;
use crate::model::{Resource, Value};
use crate::store::error::DatabaseError;

/// Which entries a page has.
#[derive(Clone, Debug)]
pub struct ChangesQuery {
    /// The resources whose entries the reader may see.
    pub readable: Vec<&'static Resource>,
    /// One of them alone.
    pub resource: Option<&'static Resource>,
    /// With a resource: the entries of this record alone.
    pub record: Option<i64>,
    /// Where the page begins.
    pub start: Start,
    /// The most entries of the page.
    pub limit: usize,
    /// Entries from before this time are not shown, RFC 3339.
    pub oldest: String,
}

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the oldest entry.
    Oldest,
    /// Behind the newest entry: the page is empty.
    Now,
    /// Behind a position.
    After(JournalPosition),
}

/// A position in the journal of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPosition {
    /// What a restore renews.
    pub lineage: [u8; 16],
    /// The number of the last entry before the position.
    pub seq: i64,
}

/// The outcome of asking for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// The page.
    Page(ChangesPage),
    /// Entries behind the position are gone, or the position is of another lineage.
    Gone,
}

/// One page of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangesPage {
    /// The entries as a JSON array.
    pub json: Vec<u8>,
    /// Where the next page begins.
    pub next: JournalPosition,
    /// Whether further entries are there already.
    pub more: bool,
}

/// The columns of an entry, in the order of [`write_entry`].
const COLUMNS: &str = "seq, at, resource, record_id, action, fields, former, by_key, by_name, by_prefix, request_id";

impl ChangesQuery {
    /// The resources that the page is about.
    fn resources(&self) -> Vec<&'static Resource> {
        let wanted = |resource: &&'static Resource| self.resource.is_none_or(|only| only == *resource);
        self.readable.iter().copied().filter(wanted).collect()
    }
}

impl Reading<'_> {
    /// One page of the journal, all of one moment.
    pub fn changes(&self, query: &ChangesQuery) -> Result<Changes, DatabaseError> {
        let moment = self.connection().unchecked_transaction()?;
        let changes = read_page(self, query)?;
        moment.finish()?;
        Ok(changes)
    }

    /// The last `count` entries, the newest last, as a JSON array.
    pub fn last_changes(
        &self,
        resource: Option<&'static Resource>,
        record: Option<i64>,
        count: usize,
        now: i64,
    ) -> Result<Vec<u8>, DatabaseError> {
        let connection = self.connection();
        let (keep, last_seq): (i64, i64) =
            connection
                .query_row("SELECT keep_seconds, last_seq FROM journal", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let oldest = clock::rfc3339(now.saturating_sub(keep));
        let (condition, mut values) = filter(resource, record);
        let sql = format!(
            "SELECT {COLUMNS} FROM (SELECT * FROM changes WHERE {condition}seq <= ? ORDER BY seq DESC LIMIT ?)
              WHERE at >= ? ORDER BY seq"
        );
        values.extend([Value::Integer(last_seq), Value::Integer(bounded(count)), Value::Text(oldest)]);
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(values.iter()))?;
        let mut entries = Entries::new(self);
        while let Some(row) = rows.next()? {
            entries.take(row)?;
        }
        Ok(entries.finish()?)
    }
}

fn bounded(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The beginning of a condition for the entries of one resource, of one record, or of all, with its values.
fn filter(resource: Option<&Resource>, record: Option<i64>) -> (&'static str, Vec<Value>) {
    let Some(resource) = resource else { return ("", Vec::new()) };
    let name = Value::Text(resource.plural.to_owned());
    match record {
        None => ("resource = ? AND ", vec![name]),
        Some(id) => ("resource = ? AND record_id = ? AND ", vec![name, Value::Integer(id)]),
    }
}

fn read_page(reading: &Reading<'_>, query: &ChangesQuery) -> rusqlite::Result<Changes> {
    let connection = reading.connection();
    let (lineage, last_seq): ([u8; 16], i64) = connection
        .prepare_cached("SELECT lineage, last_seq FROM journal")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let resources = query.resources();
    let after = match query.start {
        Start::Now => {
            let next = JournalPosition { lineage, seq: last_readable(connection, query, last_seq)? };
            return Ok(Changes::Page(ChangesPage { json: b"[]".to_vec(), next, more: false }));
        }
        Start::Oldest => before_oldest(connection, &query.oldest, last_seq)?,
        Start::After(position) => {
            let is_valid = position.lineage == lineage && position.seq <= last_seq;
            if !is_valid || has_removed(connection, &resources, position.seq)? {
                return Ok(Changes::Gone);
            }
            position.seq
        }
    };
    let page = read_entries(reading, query, &resources, (after, last_seq))?;
    if page.has_expired && matches!(query.start, Start::After(_)) {
        return Ok(Changes::Gone);
    }
    let seq = match (page.last, query.start) {
        (Some(seq), _) => seq,
        (None, Start::After(_)) => after,
        (None, _) => last_readable(connection, query, last_seq)?,
    };
    let (json, more) = (page.entries.finish()?, page.more);
    Ok(Changes::Page(ChangesPage { json, next: JournalPosition { lineage, seq }, more }))
}

/// The number of the last entry that the reader may see or might have seen. It tells nothing of other resources.
fn last_readable(connection: &Connection, query: &ChangesQuery, last_seq: i64) -> rusqlite::Result<i64> {
    let mut last = removed_until(connection, &query.readable)?;
    let mut newest = connection.prepare_cached("SELECT max(seq) FROM changes WHERE resource = ? AND seq <= ?")?;
    for resource in &query.readable {
        let seq: Option<i64> = newest.query_row(params![resource.plural, last_seq], |row| row.get(0))?;
        last = last.max(seq.unwrap_or(0));
    }
    Ok(last)
}

/// The number of the last removed entry of these resources; 0 if none was removed.
fn removed_until(connection: &Connection, resources: &[&'static Resource]) -> rusqlite::Result<i64> {
    let mut removed = connection.prepare_cached("SELECT seq FROM removed_changes WHERE resource = ?")?;
    let mut last = 0;
    for resource in resources {
        let seq: Option<i64> = removed.query_row([resource.plural], |row| row.get(0)).optional()?;
        last = last.max(seq.unwrap_or(0));
    }
    Ok(last)
}

/// Whether an entry behind `seq` was removed.
fn has_removed(connection: &Connection, resources: &[&'static Resource], seq: i64) -> rusqlite::Result<bool> {
    Ok(removed_until(connection, resources)? > seq)
}

/// A number before the first entry that is as new as `oldest`. Entries are in the order of their times, but for the moments that
/// requests wait for the writer, so the first one is found by bisection: the entries before it may be very many.
fn before_oldest(connection: &Connection, oldest: &str, last_seq: i64) -> rusqlite::Result<i64> {
    let mut first =
        connection.prepare_cached("SELECT seq, at FROM changes WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT 1")?;
    let mut expired_after = |seq: i64| -> rusqlite::Result<Option<i64>> {
        let found =
            first.query_row([seq, last_seq], |row| Ok((row.get::<_, i64>(0)?, row.get_ref(1)?.as_str()? < oldest)));
        Ok(found.optional()?.filter(|(_, is_expired)| *is_expired).map(|(seq, _)| seq))
    };
    if expired_after(0)?.is_none() {
        return Ok(0);
    }
    let (mut expired, mut end) = (0, last_seq);
    while expired < end {
        let middle = expired + (end - expired) / 2;
        match expired_after(middle)? {
            Some(seq) => expired = seq,
            None => end = middle,
        }
    }
    Ok(expired)
}

/// The entries of a page.
struct PageEntries<'a> {
    entries: Entries<'a>,
    last: Option<i64>,
    more: bool,
    /// An entry was left out because of its age.
    has_expired: bool,
}

fn read_entries<'a>(
    reading: &'a Reading<'a>,
    query: &ChangesQuery,
    resources: &[&'static Resource],
    between: (i64, i64),
) -> rusqlite::Result<PageEntries<'a>> {
    let mut page = PageEntries { entries: Entries::new(reading), last: None, more: false, has_expired: false };
    if resources.is_empty() {
        return Ok(page);
    }
    let (sql, values) = select(resources, query.record, between, query.limit);
    let mut statement = reading.connection().prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values.iter()))?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        if count == query.limit {
            page.more = true;
            break;
        }
        count += 1;
        page.last = Some(row.get(0)?);
        if row.get_ref(1)?.as_str()? < query.oldest.as_str() {
            page.has_expired = true;
        } else {
            page.entries.take(row)?;
        }
    }
    Ok(page)
}

/// The statement for a page of entries behind one number and up to another, and one entry beyond the page. Each resource is read along
/// its own index.
fn select(
    resources: &[&'static Resource],
    record: Option<i64>,
    (after, last_seq): (i64, i64),
    limit: usize,
) -> (String, Vec<Value>) {
    let limit = bounded(limit.saturating_add(1));
    let (mut parts, mut values) = (Vec::new(), Vec::new());
    for resource in resources {
        let (condition, bound) = filter(Some(resource), record);
        parts.push(format!(
            "SELECT * FROM (SELECT seq FROM changes WHERE {condition}seq > ? AND seq <= ? ORDER BY seq LIMIT ?)"
        ));
        values.extend(bound);
        values.extend([Value::Integer(after), Value::Integer(last_seq), Value::Integer(limit)]);
    }
    values.push(Value::Integer(limit));
    let seqs = parts.join(" UNION ALL ");
    (format!("SELECT {COLUMNS} FROM changes WHERE seq IN ({seqs}) ORDER BY seq LIMIT ?"), values)
}

/// The statement for a page, for tests of how it is read.
#[cfg(test)]
pub(in crate::store) fn page_statement(resources: &[&'static Resource], record: Option<i64>) -> (String, Vec<Value>) {
    select(resources, record, (7, 70), 50)
}

/// Writes entries as a JSON array.
struct Entries<'a> {
    reading: &'a Reading<'a>,
    json: Vec<u8>,
}

impl<'a> Entries<'a> {
    fn new(reading: &'a Reading<'a>) -> Entries<'a> {
        Entries { reading, json: vec![b'['] }
    }

    fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        if self.json.len() > 1 {
            self.json.push(b',');
        }
        let resource = row.get_ref(2)?.as_str()?;
        write_entry(&mut self.json, row)?;
        self.json.extend_from_slice(b",\"record\":");
        match Resource::find(resource) {
            Some(resource) => self.write_record(resource, row.get(3)?)?,
            None => self.json.extend_from_slice(b"null"),
        }
        self.json.push(b'}');
        Ok(())
    }

    /// Appends the record as it is now, `null` if there is none.
    fn write_record(&mut self, resource: &Resource, id: i64) -> rusqlite::Result<()> {
        let mut statement = self.reading.connection().prepare_cached(&Statements::of(resource).one)?;
        let mut rows = statement.query([id])?;
        match rows.next()? {
            Some(row) => write_row(&mut self.json, resource, row),
            None => self.json.extend_from_slice(b"null"),
        }
        Ok(())
    }

    fn finish(mut self) -> rusqlite::Result<Vec<u8>> {
        self.json.push(b']');
        checked(self.json)
    }
}

/// Appends the members of an entry up to `request_id`, without the closing brace.
fn write_entry(json: &mut Vec<u8>, row: &Row<'_>) -> rusqlite::Result<()> {
    json.push(b'{');
    write_integer(json, "seq", row.get(0)?);
    write_string(json, "at", row.get_ref(1)?.as_bytes()?);
    write_string(json, "resource", row.get_ref(2)?.as_bytes()?);
    write_integer(json, "id", row.get(3)?);
    write_string(json, "action", row.get_ref(4)?.as_bytes()?);
    write_stored_json(json, "fields", row.get_ref(5)?.as_bytes()?)?;
    write_stored_json(json, "before", row.get_ref(6)?.as_bytes_or_null()?.unwrap_or(b"null"))?;
    write_author(json, row)?;
    match row.get::<_, Option<[u8; 16]>>(10)? {
        Some(id) => write_string(json, "request_id", Uuid::from_bytes(id).to_string().as_bytes()),
        None => write_raw(json, "request_id", b"null"),
    }
    Ok(())
}

/// Appends the member `by`.
fn write_author(json: &mut Vec<u8>, row: &Row<'_>) -> rusqlite::Result<()> {
    let name = row.get_ref(8)?.as_bytes()?;
    write_raw(json, "by", b"{");
    match row.get::<_, Option<i64>>(7)? {
        None => {
            write_string(json, "kind", b"command");
            write_string(json, "name", name);
        }
        Some(id) => {
            write_string(json, "kind", b"key");
            write_integer(json, "id", id);
            write_string(json, "name", name);
            write_string(json, "prefix", row.get_ref(9)?.as_bytes()?);
        }
    }
    json.push(b'}');
    Ok(())
}

fn write_integer(json: &mut Vec<u8>, name: &str, number: i64) {
    write_raw(json, name, number.to_string().as_bytes());
}

fn write_string(json: &mut Vec<u8>, name: &str, text: &[u8]) {
    write_raw(json, name, b"");
    write_text(json, text);
}

/// Appends a member whose value is JSON in the file. In a damaged file it may be none.
fn write_stored_json(json: &mut Vec<u8>, name: &str, value: &[u8]) -> rusqlite::Result<()> {
    serde_json::from_slice::<&RawValue>(value).map_err(damaged_text)?;
    write_raw(json, name, value);
    Ok(())
}

/// Appends a member whose value is JSON already, or the name alone if there is no value.
fn write_raw(json: &mut Vec<u8>, name: &str, value: &[u8]) {
    if json.last() != Some(&b'{') {
        json.push(b',');
    }
    json.push(b'"');
    json.extend_from_slice(name.as_bytes());
    json.extend_from_slice(b"\":");
    json.extend_from_slice(value);
}
