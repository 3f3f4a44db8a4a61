//! Search. Each record has one case-folded text of all its searched fields, and the search table
//! has a term for every three neighbouring characters of it. A word of `q` is looked up by some of
//! its terms; whether a record has the word is decided on its text. So a word under three
//! characters, which has no term, is found in the same way, by a scan.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use super::write::Writing;
use crate::model::{ALL, RecordId, Resource, Value};
use crate::store::error::DatabaseError;

/// Unicode's full case folding: SQLite's own folds letter by letter, so that `strasse` would miss
/// `Straße`.
pub fn fold(text: &str) -> String {
    unicase::UniCase::unicode(text).to_folded_case()
}

/// The folded text of all searched fields, one a line: a word of `q` has no white space and so
/// stays within one.
pub(super) fn search_text(resource: &Resource, values: &[Value]) -> String {
    let mut text = String::new();
    let mut add = |value: &str| {
        text.push_str(&fold(value));
        text.push('\n');
    };
    for (field, value) in resource.fields.iter().zip(values) {
        match value {
            Value::Text(value) if field.is_searched() => add(value),
            Value::Custom(custom) => custom.values().for_each(|value| add(value)),
            _ => (),
        }
    }
    text
}

/// The most terms that are looked up for all words of a search together. A few narrow the rows down
/// as well as thousands.
const MAX_TERMS: usize = 32;

/// The query for the search table that finds all records that may have the folded `words`; `None`
/// where no word has a term.
pub(super) fn match_expression(words: &[String]) -> Option<String> {
    let most = (MAX_TERMS / words.len().max(1)).max(1);
    let terms: Vec<String> = words.iter().flat_map(|word| some_terms(word, most)).collect();
    (!terms.is_empty()).then(|| terms.join(" AND "))
}

/// At most `most` different terms of a word, spread over it, each as a string of FTS5.
fn some_terms(word: &str, most: usize) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    let terms: BTreeSet<String> = characters.windows(3).map(|term| term.iter().collect()).collect();
    let step = terms.len().div_ceil(most).max(1);
    let quoted = |term: &String| format!("\"{}\"", term.replace('"', "\"\""));
    terms.iter().step_by(step).map(quoted).collect()
}

/// The most bytes of changes that an import leaves pending: about `hashsize` in schema.sql.
const MAX_PENDING: usize = 16 << 20;

#[derive(Clone, Debug)]
pub(super) struct SearchChange {
    table: &'static str,
    id: RecordId,
    old: Option<String>,
    new: Option<String>,
    /// The bytes that this change and all pending ones before it take.
    total: usize,
}

fn total(pending: &[SearchChange]) -> usize {
    pending.last().map_or(0, |change| change.total)
}

impl Writing<'_> {
    pub(super) fn change_search(
        &self,
        resource: &Resource,
        id: RecordId,
        old: Option<String>,
        new: Option<String>,
    ) {
        let bytes = old.as_ref().map_or(0, String::len) + new.as_ref().map_or(0, String::len);
        let mut pending = self.search.borrow_mut();
        // Short texts take less than their changes.
        let total = total(&pending) + bytes + size_of::<SearchChange>();
        pending.push(SearchChange { table: resource.plural, id, old, new, total });
    }

    /// How many changes of the search tables are pending, for [`Writing::forget_search`].
    pub(in crate::store) fn pending_search(&self) -> usize {
        self.search.borrow().len()
    }

    /// Drops the pending changes after the first `count`: their mutation was rolled back.
    pub(in crate::store) fn forget_search(&self, count: usize) {
        self.search.borrow_mut().truncate(count);
    }

    /// Brings the search tables up to date if much is pending. An import has more pending changes
    /// than memory holds.
    pub fn flush_if_large(&self) -> Result<(), DatabaseError> {
        let is_large = total(&self.search.borrow()) >= MAX_PENDING;
        if is_large { self.flush() } else { Ok(()) }
    }

    /// Brings the search tables up to date. Must be called before the transaction commits.
    pub fn flush(&self) -> Result<(), DatabaseError> {
        let mut changes = self.search.take();
        // A row that comes before the last one begins a segment. The sort keeps the order of the
        // changes of one record.
        changes.sort_by_key(|change| (change.table, change.id));
        for SearchChange { table, id: RecordId(id), old, new, .. } in changes {
            if let Some(old) = old {
                let sql = format!(
                    "INSERT INTO {table}_search ({table}_search, rowid, search)
                     VALUES ('delete', ?, ?)"
                );
                self.connection().prepare_cached(&sql)?.execute(params![id, old])?;
            }
            if let Some(new) = new {
                let sql = format!("INSERT INTO {table}_search (rowid, search) VALUES (?, ?)");
                self.connection().prepare_cached(&sql)?.execute(params![id, new])?;
            }
        }
        Ok(())
    }
}

/// Merges at most `pages` pages of segments of each search table. Returns whether there was anything
/// to merge.
pub(crate) fn merge_step(connection: &Connection, pages: u32) -> rusqlite::Result<bool> {
    let mut has_merged = false;
    for Resource { plural: table, .. } in ALL {
        let before = connection.total_changes();
        let merge =
            format!("INSERT INTO {table}_search ({table}_search, rank) VALUES ('merge', ?)");
        connection.prepare_cached(&merge)?.execute([pages])?;
        // The statement itself counts as one change (FTS5, "The 'merge' Command").
        has_merged |= connection.total_changes() - before >= 2;
    }
    Ok(has_merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_looks_up_a_bounded_number_of_terms() {
        let word: String = (0..200).filter_map(|n| char::from_u32(0x4e00 + n)).collect();
        for words in [1, 5, 20] {
            let expression = match_expression(&vec![word.clone(); words]).unwrap();
            let count = expression.matches('"').count() / 2;
            assert!((MAX_TERMS / 2..=MAX_TERMS).contains(&count), "{count} terms of {words} words");
        }
        assert_eq!(match_expression(&["ab".to_owned()]), None);
        let words = ["a\"b".to_owned(), "cd".to_owned()];
        assert_eq!(match_expression(&words).as_deref(), Some("\"a\"\"b\""));
    }
}
