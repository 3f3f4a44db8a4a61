//! Imports that have not ended. Their records are hidden: to every reader they do not exist.
//!
//! An import reserves a block of ids before it inserts the first record. The last transaction of the import removes the block from
//! `pending_imports`, and all its records appear at once. The table is nearly always empty.
//!
//! Their entries in the journal are hidden in the same way: they have numbers beyond the last one.

use rusqlite::{OptionalExtension as _, params};

use super::search_index::{ChangeKind, IndexedText};
use super::{Reading, Writing};
use crate::model::Resource;

/// The ids of the records of an import. They are neither used before nor after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdBlock {
    /// The lowest id.
    pub first: i64,
    /// The highest id.
    pub last: i64,
}

/// What an import has reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The ids of its records.
    pub ids: IdBlock,
    /// The number of its first entry in the journal. The others follow without gaps.
    pub first_seq: i64,
}

impl Reading<'_> {
    /// The ids of the hidden records of `resource`; `None` if no import is pending. Other statements see the same only in the same
    /// transaction.
    pub(in crate::store) fn hidden_ids(&self, resource: &Resource) -> rusqlite::Result<Option<IdBlock>> {
        let sql = "SELECT first_id, last_id FROM pending_imports WHERE resource = ?";
        let mut statement = self.connection().prepare_cached(sql)?;
        let block = statement.query_row([resource.plural], |row| Ok(IdBlock { first: row.get(0)?, last: row.get(1)? }));
        let block = block.optional()?;
        if block.is_some() {
            self.found_hidden.set(true);
        }
        Ok(block)
    }

    /// The number of hidden records of `resource`.
    pub(in crate::store) fn number_hidden(&self, resource: &Resource) -> rusqlite::Result<i64> {
        let sql = "SELECT stored FROM pending_imports WHERE resource = ?";
        let stored = self.connection().query_row(sql, [resource.plural], |row| row.get(0)).optional()?;
        Ok(stored.unwrap_or(0))
    }

    /// The highest id that a record ever had, or that is reserved; 0 before the first.
    pub(in crate::store) fn highest_id(&self, resource: &Resource) -> rusqlite::Result<i64> {
        let sql = "SELECT seq FROM sqlite_sequence WHERE name = ?";
        let highest = self.connection().query_row(sql, [resource.plural], |row| row.get(0)).optional()?;
        Ok(highest.unwrap_or(0))
    }
}

impl Writing<'_> {
    /// Hides a block of ids, which no other record will get, and reserves numbers for their entries.
    pub(in crate::store) fn reserve(&self, resource: &Resource, ids: IdBlock) -> rusqlite::Result<Reservation> {
        self.set_highest_id(resource, ids.last)?;
        let first_seq = self.hidden_seq()?;
        let sql = "INSERT INTO pending_imports (resource, first_id, last_id, stored, first_seq) VALUES (?, ?, ?, 0, ?)";
        self.connection().execute(sql, params![resource.plural, ids.first, ids.last, first_seq])?;
        Ok(Reservation { ids, first_seq })
    }

    fn set_highest_id(&self, resource: &Resource, id: i64) -> rusqlite::Result<()> {
        let connection = self.connection();
        connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", [resource.plural])?;
        let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)";
        connection.execute(sql, params![resource.plural, id]).map(drop)
    }

    /// Adds to the number of hidden records. Returns whether the reservation is as the caller knows it, with `stored` records: a
    /// restore of the tenant may have replaced the file's content.
    pub(in crate::store) fn count_hidden(
        &self,
        resource: &Resource,
        Reservation { ids, first_seq }: Reservation,
        stored: i64,
        added: i64,
    ) -> rusqlite::Result<bool> {
        let sql = "UPDATE pending_imports SET stored = stored + ?
                   WHERE resource = ? AND first_id = ? AND last_id = ? AND first_seq = ? AND stored = ?";
        let mut statement = self.connection().prepare_cached(sql)?;
        Ok(statement.execute(params![added, resource.plural, ids.first, ids.last, first_seq, stored])? == 1)
    }

    /// Makes all hidden records of `resource` visible, and their entries. Returns whether the reservation is as the caller knows it.
    pub(in crate::store) fn show_hidden(
        &self,
        resource: &Resource,
        Reservation { ids, first_seq }: Reservation,
        stored: i64,
    ) -> rusqlite::Result<bool> {
        let sql = "DELETE FROM pending_imports
                   WHERE resource = ? AND first_id = ? AND last_id = ? AND first_seq = ? AND stored = ?";
        let removed =
            self.connection().execute(sql, params![resource.plural, ids.first, ids.last, first_seq, stored])?;
        Ok(removed == 1 && self.show_entries(first_seq, stored)?)
    }

    /// Removes at most `count` hidden records of `resource` with their entries, and with the last one the block. Returns how many were removed, `None`
    /// if there is no block.
    pub(in crate::store) fn remove_hidden(&self, resource: &Resource, count: usize) -> rusqlite::Result<Option<usize>> {
        let Some(block) = self.hidden_ids(resource)? else { return Ok(None) };
        let table = resource.plural;
        let found = self.hidden_records(resource, block, count)?;
        let removed = found.len();
        if let Some((last, _)) = found.last() {
            let sql = format!("DELETE FROM {table} WHERE id BETWEEN ? AND ?");
            self.connection().prepare_cached(&sql)?.execute([block.first, *last])?;
        }
        for (id, text) in found {
            self.change_search(ChangeKind::Remove, resource, id, text);
        }
        self.finish_search()?;
        self.remove_hidden_entries(resource, count)?;
        if removed < count {
            self.remove_block(resource, block)?;
        } else {
            let sql = "UPDATE pending_imports SET stored = max(stored - ?, 0) WHERE resource = ?";
            self.connection().execute(sql, params![i64::try_from(removed).unwrap_or(i64::MAX), table])?;
        }
        Ok(Some(removed))
    }

    /// The ids and texts of the first hidden records, in the order of ids.
    fn hidden_records(
        &self,
        resource: &Resource,
        block: IdBlock,
        count: usize,
    ) -> rusqlite::Result<Vec<(i64, IndexedText)>> {
        let sql = format!(
            "SELECT id, search, last_word FROM {} WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
            resource.plural
        );
        let mut statement = self.connection().prepare_cached(&sql)?;
        let limit = i64::try_from(count).unwrap_or(i64::MAX);
        let rows = statement.query_map([block.first, block.last, limit], |row| {
            Ok((row.get(0)?, IndexedText { search: row.get(1)?, last_word: row.get(2)? }))
        })?;
        rows.collect()
    }

    /// Ids of the block are not used again. But where the block began with the first id of all and nothing came after it, the
    /// resource has never held a record that anybody saw, and `--keep-ids` may be tried again.
    fn remove_block(&self, resource: &Resource, block: IdBlock) -> rusqlite::Result<()> {
        self.connection().execute("DELETE FROM pending_imports WHERE resource = ?", [resource.plural])?;
        if block.first == 1 && self.highest_id(resource)? == block.last {
            self.set_highest_id(resource, 0)?;
        }
        Ok(())
    }
}
