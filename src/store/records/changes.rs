//! Pages of the change log (contract section 12).
//!
//! A page is read along an index from where the last one ended, for each resource on its own, so
//! its cost depends neither on the length of the change log nor on entries of other resources.

use rusqlite::{Connection, OptionalExtension as _, params, params_from_iter};

use super::Reading;
use super::entries::{COLUMNS, Entries};
use crate::clock::Timestamp;
use crate::model::{RecordId, Resource, Value, Version};
use crate::store::error::DatabaseError;

/// Which entries a page has.
#[derive(Clone, Debug)]
pub struct ChangesQuery {
    /// The resources whose entries the reader may see.
    pub readable: Vec<&'static Resource>,
    /// One of them alone.
    pub resource: Option<&'static Resource>,
    /// With a resource: the entries of this record alone.
    pub record: Option<RecordId>,
    pub start: Start,
    /// The most entries of the page.
    pub limit: usize,
    /// Entries from before this time are not shown.
    pub oldest: Timestamp,
}

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the oldest entry.
    Oldest,
    /// Behind the newest entry: the page is empty.
    Now,
    After(Position),
}

/// A position in the change log of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// What a restore renews.
    pub lineage: [u8; 16],
    /// The number of the last entry before the position.
    pub seq: Version,
}

/// The outcome of asking for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    Page(ChangesPage),
    /// Entries behind the position are gone, or the position is of another lineage.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangesPage {
    /// The entries as a JSON array.
    pub json: Vec<u8>,
    /// Where the next page begins.
    pub next: Position,
    /// Whether further entries are there already.
    pub more: bool,
}

impl ChangesQuery {
    /// The resources that the page is about.
    fn resources(&self) -> Vec<&'static Resource> {
        let is_wanted =
            |resource: &&'static Resource| self.resource.is_none_or(|only| only == *resource);
        self.readable.iter().copied().filter(is_wanted).collect()
    }
}

impl Reading<'_> {
    /// One page of the change log, all of one moment.
    pub fn changes(&self, query: &ChangesQuery) -> Result<Changes, DatabaseError> {
        let snapshot = self.connection.unchecked_transaction()?;
        let changes = read_page(self, query)?;
        snapshot.finish()?;
        Ok(changes)
    }

    /// The last `count` entries that are kept, the newest last, as a JSON array.
    pub fn last_changes(
        &self,
        resource: Option<&'static Resource>,
        record: Option<RecordId>,
        count: usize,
        now: Timestamp,
    ) -> Result<Vec<u8>, DatabaseError> {
        let sql = "SELECT keep_seconds FROM changes_state";
        let keep: i64 = self.connection.query_row(sql, [], |row| row.get(0))?;
        let oldest = Timestamp::from_unix(now.unix().saturating_sub(keep));
        let (condition, mut values) = filter(resource, record);
        let sql = format!(
            "SELECT {COLUMNS} FROM
               (SELECT * FROM changes WHERE {condition}at >= ? ORDER BY seq DESC LIMIT ?)
             ORDER BY seq"
        );
        values.extend([Value::Text(oldest.to_string()), bounded(count)]);
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(values.iter()))?;
        let mut entries = Entries::new(self);
        while let Some(row) = rows.next()? {
            entries.take(row)?;
        }
        Ok(entries.finish())
    }
}

fn bounded(count: usize) -> Value {
    Value::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}

/// The beginning of a condition for the entries of one resource, of one record, or of all, with its
/// values.
fn filter(resource: Option<&Resource>, record: Option<RecordId>) -> (&'static str, Vec<Value>) {
    let Some(resource) = resource else { return ("", Vec::new()) };
    let name = Value::Text(resource.plural.to_owned());
    match record {
        None => ("resource = ? AND ", vec![name]),
        Some(RecordId(id)) => {
            ("resource = ? AND record_id = ? AND ", vec![name, Value::Integer(id)])
        }
    }
}

fn read_page(reading: &Reading<'_>, query: &ChangesQuery) -> rusqlite::Result<Changes> {
    let connection = reading.connection;
    let sql = "SELECT lineage, last_seq FROM changes_state";
    let (lineage, last): ([u8; 16], Version) =
        connection.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let resources = query.resources();
    let after = match query.start {
        Start::Oldest | Start::Now => Version(0),
        Start::After(Position { lineage: of, seq }) => {
            let is_known = of == lineage && seq <= last;
            if !is_known || has_missed(connection, &resources, seq, query.oldest)? {
                return Ok(Changes::Gone);
            }
            seq
        }
    };
    let (entries, last, more) = match query.start {
        Start::Now => (Entries::new(reading), None, false),
        Start::Oldest | Start::After(_) => read_entries(reading, query, &resources, after)?,
    };
    let seq = match (last, query.start) {
        (Some(seq), _) => seq,
        (None, Start::After(_)) => after,
        (None, _) => last_readable(connection, query)?,
    };
    let next = Position { lineage, seq };
    Ok(Changes::Page(ChangesPage { json: entries.finish(), next, more }))
}

/// Whether an entry behind `seq` was removed or is too old to be shown. Entries are in the order of
/// their times, so the first one tells.
fn has_missed(
    connection: &Connection,
    resources: &[&'static Resource],
    seq: Version,
    oldest: Timestamp,
) -> rusqlite::Result<bool> {
    if removed_until(connection, resources)? > seq {
        return Ok(true);
    }
    let sql = "SELECT at FROM changes WHERE resource = ? AND seq > ? ORDER BY seq LIMIT 1";
    let mut first = connection.prepare_cached(sql)?;
    for resource in resources {
        let at = first.query_row(params![resource.plural, seq], |row| row.get::<_, Timestamp>(0));
        if at.optional()?.is_some_and(|at| at < oldest) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The number of the last entry that the reader may see or might have seen. It tells nothing of
/// other resources.
fn last_readable(connection: &Connection, query: &ChangesQuery) -> rusqlite::Result<Version> {
    let mut last = removed_until(connection, &query.readable)?;
    let sql = "SELECT max(seq) FROM changes WHERE resource = ?";
    let mut newest = connection.prepare_cached(sql)?;
    for resource in &query.readable {
        let seq: Option<Version> = newest.query_row([resource.plural], |row| row.get(0))?;
        last = last.max(seq.unwrap_or(Version(0)));
    }
    Ok(last)
}

/// The number of the last removed entry of these resources; 0 if none was removed.
fn removed_until(
    connection: &Connection,
    resources: &[&'static Resource],
) -> rusqlite::Result<Version> {
    let sql = "SELECT seq FROM changes_removed WHERE resource = ?";
    let mut removed = connection.prepare_cached(sql)?;
    let mut last = Version(0);
    for resource in resources {
        let seq: Option<Version> =
            removed.query_row([resource.plural], |row| row.get(0)).optional()?;
        last = last.max(seq.unwrap_or(Version(0)));
    }
    Ok(last)
}

/// The entries of a page, the number of the last, and whether more follow.
fn read_entries<'a>(
    reading: &'a Reading<'a>,
    query: &ChangesQuery,
    resources: &[&'static Resource],
    after: Version,
) -> rusqlite::Result<(Entries<'a>, Option<Version>, bool)> {
    let mut entries = Entries::new(reading);
    if resources.is_empty() {
        return Ok((entries, None, false));
    }
    let (sql, values) = select(query, resources, after);
    let mut statement = reading.connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values.iter()))?;
    let (mut count, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        if count == query.limit {
            return Ok((entries, last, true));
        }
        entries.take(row)?;
        (count, last) = (count + 1, Some(row.get(0)?));
    }
    Ok((entries, last, false))
}

/// The statement for a page of entries behind a number, and one entry beyond the page. Each
/// resource is read along its own index.
pub(super) fn select(
    query: &ChangesQuery,
    resources: &[&'static Resource],
    after: Version,
) -> (String, Vec<Value>) {
    let limit = bounded(query.limit.saturating_add(1));
    let (mut parts, mut values) = (Vec::new(), Vec::new());
    for resource in resources {
        let (condition, bound) = filter(Some(resource), query.record);
        parts.push(format!(
            "SELECT * FROM (SELECT seq FROM changes
             WHERE {condition}seq > ? AND at >= ? ORDER BY seq LIMIT ?)"
        ));
        values.extend(bound);
        let oldest = Value::Text(query.oldest.to_string());
        values.extend([Value::Integer(after.0), oldest, limit.clone()]);
    }
    values.push(limit);
    let seqs = parts.join(" UNION ALL ");
    let sql = format!("SELECT {COLUMNS} FROM changes WHERE seq IN ({seqs}) ORDER BY seq LIMIT ?");
    (sql, values)
}
