//! Whole tables: for exports, imports and checks.

use std::collections::HashMap;

use rusqlite::Connection;

use super::encoding::read_record;
use super::statements::Statements;
use super::{Reading, Record};
use crate::model::{ALL, Column, RecordId, Resource, Value};
use crate::store::error::DatabaseError;

/// The result of a search by the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    None,
    One(RecordId),
    Several,
}

impl Reading<'_> {
    /// Calls `take` with each record, in the order of ids. Returns the number of records.
    pub fn each<E: From<DatabaseError>>(
        &self,
        resource: &Resource,
        mut take: impl FnMut(&Record) -> Result<(), E>,
    ) -> Result<u64, E> {
        let sql = &Statements::of(resource).all;
        let mut statement = self.connection.prepare_cached(sql).map_err(DatabaseError)?;
        let mut rows = statement.query([]).map_err(DatabaseError)?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(DatabaseError)? {
            take(&read_record(resource, row).map_err(DatabaseError)?)?;
            count += 1;
        }
        Ok(count)
    }

    /// The number of records.
    pub fn count(&self, resource: &Resource) -> Result<u64, DatabaseError> {
        Ok(count(self.connection, resource)?.unsigned_abs())
    }

    /// Whether the resource has, or ever had, a record.
    pub fn has_ever_held(&self, resource: &Resource) -> Result<bool, DatabaseError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ? AND seq > 0)";
        Ok(self.connection.query_row(sql, [resource.plural], |row| row.get(0))?)
    }

    /// Searches the record whose `column` equals `value`, as filters compare.
    pub fn find_by(
        &self,
        resource: &Resource,
        column: Column,
        value: &Value,
    ) -> Result<Match, DatabaseError> {
        let (table, name) = (resource.plural, column.name());
        let sql = format!("SELECT id FROM {table} WHERE {name} = ? LIMIT 2");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([value])?;
        let Some(first) = rows.next()? else { return Ok(Match::None) };
        let id = first.get(0)?;
        Ok(if rows.next()?.is_some() { Match::Several } else { Match::One(id) })
    }
}

/// The number of records of a resource.
pub(crate) fn count(connection: &Connection, resource: &Resource) -> rusqlite::Result<i64> {
    let sql = format!("SELECT count(*) FROM {}", resource.plural);
    connection.query_row(&sql, [], |row| row.get(0))
}

/// What does not fit in a tenant's file that SQLite finds intact: the change log's counters, and
/// the search tables.
pub(crate) fn problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    // One state of the file, also beside a server.
    let snapshot = connection.unchecked_transaction()?;
    let mut problems = change_log_problems(connection)?;
    for resource in ALL {
        if !search_fits(connection, resource)? {
            let table = resource.plural;
            problems.push(format!("the search table of {table} does not fit the records"));
        }
    }
    snapshot.finish()?;
    Ok(problems)
}

fn change_log_problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let versions = ALL.map(|resource| format!("SELECT max(version) FROM {}", resource.plural));
    let sql = format!(
        "SELECT entries, (SELECT count(*) FROM changes), last_seq,
                (SELECT max(seq) FROM
                   (SELECT max(seq) AS seq FROM changes UNION ALL {}))
         FROM changes_state",
        versions.join(" UNION ALL ")
    );
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let (counted, entries, last, highest): (i64, i64, i64, Option<i64>) =
        connection.query_row(&sql, [], read)?;
    let mut problems = Vec::new();
    if counted != entries {
        problems.push(format!("the change log has {entries} entries but counts {counted}"));
    }
    if let Some(highest) = highest.filter(|highest| *highest > last) {
        problems.push(format!("the change log's last number is {last}, but {highest} is used"));
    }
    Ok(problems)
}

/// Compares how many records have each term with what the search table says.
fn search_fits(connection: &Connection, resource: &Resource) -> rusqlite::Result<bool> {
    let table = resource.plural;
    let mut expected: HashMap<[char; 3], i64> = HashMap::new();
    let mut texts = connection.prepare(&format!("SELECT search FROM {table}"))?;
    let mut rows = texts.query([])?;
    while let Some(row) = rows.next()? {
        let characters: Vec<char> = row.get_ref(0)?.as_str()?.chars().collect();
        let terms = characters.windows(3).filter_map(|term| term.first_chunk::<3>().copied());
        let mut terms: Vec<[char; 3]> = terms.collect();
        terms.sort_unstable();
        terms.dedup();
        terms.into_iter().for_each(|term| *expected.entry(term).or_default() += 1);
    }
    connection.execute_batch(&format!(
        "DROP TABLE IF EXISTS temp.vocabulary;
         CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', '{table}_search', 'row')"
    ))?;
    let mut terms = connection.prepare("SELECT term, doc FROM temp.vocabulary")?;
    let mut rows = terms.query([])?;
    while let Some(row) = rows.next()? {
        let characters: Vec<char> = row.get_ref(0)?.as_str()?.chars().collect();
        let known = characters.first_chunk::<3>().and_then(|term| expected.remove(term));
        if known != Some(row.get(1)?) {
            return Ok(false);
        }
    }
    Ok(expected.is_empty())
}
