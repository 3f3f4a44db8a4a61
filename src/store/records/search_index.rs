//! The search tables: what each record's entry is, and that it follows the record.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::RangeInclusive;

use rusqlite::{Connection, params};

use super::frequent_words::{self, FrequentWords};
use super::search_terms;
use super::statements::Statements;
use super::{Reading, Writing};
use crate::model::{ALL, Resource};

/// A search text that is to be added to the search table or removed from it.
#[derive(Debug)]
pub(super) struct SearchChange {
    pub kind: ChangeKind,
    pub resource: &'static Resource,
    pub id: i64,
    pub text: IndexedText,
}

/// Whether an entry is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Add,
    Remove,
}

/// What the terms of a record follow from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexedText {
    /// The record's `search`.
    pub search: String,
    /// The record's `last_word`.
    pub last_word: i64,
}

impl Reading<'_> {
    /// What the entry of a record in the search table follows from.
    pub(super) fn indexed_text(&self, resource: &Resource, id: i64) -> rusqlite::Result<IndexedText> {
        let read = |row: &rusqlite::Row<'_>| Ok(IndexedText { search: row.get(0)?, last_word: row.get(1)? });
        self.connection().prepare_cached(&Statements::of(resource).search)?.query_row([id], read)
    }
}

impl Writing<'_> {
    /// The text of a record as the transaction indexes it.
    pub(super) fn text_to_index(&self, search: String) -> rusqlite::Result<IndexedText> {
        let last_word = match self.last_word.get() {
            Some(last_word) => last_word,
            None => frequent_words::last_word(self.connection())?,
        };
        self.last_word.set(Some(last_word));
        Ok(IndexedText { search, last_word })
    }

    /// Notes a change to the search table of `resource`. [`Writing::finish_search`] makes it.
    pub(super) fn change_search(&self, kind: ChangeKind, resource: &Resource, id: i64, text: IndexedText) {
        let resource = *resource.by_resource(&ALL);
        self.search.borrow_mut().push(SearchChange { kind, resource, id, text });
    }

    /// The number of pending changes to the search tables, for [`Writing::forget_search`].
    pub(in crate::store) fn pending_search(&self) -> usize {
        self.search.borrow().len()
    }

    /// Drops the pending changes beyond the first `pending`: the mutation that they belong to was rolled back.
    pub(in crate::store) fn forget_search(&self, pending: usize) {
        self.search.borrow_mut().truncate(pending);
    }

    /// Brings the search tables up to date, for all mutations of the transaction together and in the order of ids. FTS5 writes what
    /// it has gathered at every savepoint and for every id that is not higher than the one before, and merges it later.
    pub(in crate::store) fn finish_search(&self) -> rusqlite::Result<()> {
        let mut changes = self.search.take();
        // Stable: a record's own changes stay in their order.
        changes.sort_by_key(|change| change.id);
        for resource in ALL {
            let own: Vec<&SearchChange> = changes.iter().filter(|change| change.resource == resource).collect();
            if !own.is_empty() {
                apply(self.connection(), resource, &own)?;
            }
        }
        Ok(())
    }
}

/// Makes the changes of one resource. New records may teach frequent words, for the transactions after this one.
fn apply(connection: &Connection, resource: &Resource, changes: &[&SearchChange]) -> rusqlite::Result<()> {
    let mut words = FrequentWords::new(connection, resource, changes.len() as u64)?;
    let statements = Statements::of(resource);
    for SearchChange { kind, id, text, .. } in changes {
        let sql = match kind {
            ChangeKind::Add => &statements.index,
            ChangeKind::Remove => &statements.unindex,
        };
        connection.prepare_cached(sql)?.execute(params![id, terms(text, &mut words)?])?;
    }
    let mut added = changes.iter().filter(|change| change.kind == ChangeKind::Add).map(|change| change.id);
    let Some(first) = added.next() else { return Ok(()) };
    let last = added.next_back().unwrap_or(first);
    if frequent_words::is_due(first, last) { frequent_words::learn(connection, resource, last) } else { Ok(()) }
}

fn terms(text: &IndexedText, words: &mut FrequentWords<'_>) -> rusqlite::Result<String> {
    search_terms::of_text(&text.search, |word| words.id(word, text.last_word))
}

/// Calls `each` with the records of `resource` that have the `ids`, hidden ones too, and their terms.
fn each_entry(
    connection: &Connection,
    resource: &Resource,
    ids: RangeInclusive<i64>,
    mut each: impl FnMut(i64, String) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut words = FrequentWords::new(connection, resource, ids.end().abs_diff(*ids.start()))?;
    let mut statement = connection.prepare_cached(&Statements::of(resource).texts)?;
    let mut rows = statement.query([ids.start(), ids.end()])?;
    while let Some(row) = rows.next()? {
        let text = IndexedText { search: row.get(1)?, last_word: row.get(2)? };
        each(row.get(0)?, terms(&text, &mut words)?)?;
    }
    Ok(())
}

/// The ids of all records.
const ALL_IDS: RangeInclusive<i64> = 0..=i64::MAX;

/// Fills the empty search tables of a file in which no word is frequent and every record has the `last_word` 0. The caller's
/// transaction makes it one change.
///
/// # Errors
///
/// Those of SQLite.
pub fn build_search(connection: &Connection) -> rusqlite::Result<()> {
    frequent_words::learn_from_all(connection)?;
    ALL.into_iter().try_for_each(|resource| index(connection, resource, ALL_IDS))
}

/// Adds the records that have the `ids` to the search table, for a program that has added the rows alone.
///
/// # Errors
///
/// Those of SQLite.
pub fn index(connection: &Connection, resource: &Resource, ids: RangeInclusive<i64>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&Statements::of(resource).index)?;
    each_entry(connection, resource, ids, |id, terms| statement.execute(params![id, terms]).map(drop))
}

/// Compares the search tables with the records. Returns the plural names of the resources whose search table differs. All of it is of
/// one moment.
///
/// # Errors
///
/// Those of SQLite.
pub(in crate::store) fn damaged_search(connection: &Connection) -> rusqlite::Result<Vec<&'static str>> {
    let moment = connection.unchecked_transaction()?;
    let mut damaged = Vec::new();
    for resource in ALL {
        let mut expected = Entries::default();
        each_entry(&moment, resource, ALL_IDS, |id, terms| {
            expected.add_all(id, &terms);
            Ok(())
        })?;
        if expected != stored_entries(&moment, resource)? {
            damaged.push(resource.plural);
        }
    }
    moment.rollback()?;
    Ok(damaged)
}

/// What the search table holds.
fn stored_entries(connection: &Connection, resource: &Resource) -> rusqlite::Result<Entries> {
    let table = resource.plural;
    connection.execute_batch(&format!(
        "CREATE VIRTUAL TABLE temp.stored_terms USING fts5vocab (main, '{table}_search', instance)"
    ))?;
    let mut stored = Entries::default();
    let mut statement = connection.prepare("SELECT doc, term FROM temp.stored_terms")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        stored.add(row.get(0)?, row.get_ref(1)?.as_str()?);
    }
    drop(rows);
    drop(statement);
    connection.execute_batch("DROP TABLE temp.stored_terms")?;
    Ok(stored)
}

/// A set of records' terms: the number, and a sum that does not depend on the order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entries {
    count: u64,
    sum: u64,
}

impl Entries {
    fn add_all(&mut self, id: i64, terms: &str) {
        let mut terms: Vec<&str> = terms.split(' ').filter(|term| !term.is_empty()).collect();
        terms.sort_unstable();
        terms.dedup();
        terms.into_iter().for_each(|term| self.add(id, term));
    }

    fn add(&mut self, id: i64, term: &str) {
        let mut hasher = DefaultHasher::new();
        (id, term).hash(&mut hasher);
        self.count += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}
