//! The journal: one entry for each change, which commits with it (contract section 12).
//!
//! The numbers of entries are also the versions of records (contract section 13). They are counted in memory during a transaction
//! and written to the file once, at its end.

use std::time::Duration;

use rusqlite::{Connection, params};
use uuid::Uuid;

use super::encoding::{write_names, write_object_of};
use super::{Record, Writing};
use crate::clock::{self, Moment};
use crate::model::{Field, Resource, Value};

/// The most entries that a tenant's file keeps.
const MAX_ENTRIES: i64 = 1_000_000;

/// Entries that a transaction removes at most beyond the number that it added, so that their number falls.
const REMOVED_BEYOND_ADDED: i64 = 8;

/// Entries that one statement removes at most.
const REMOVED_AT_ONCE: i64 = 1_000;

/// How far the numbers of an import are beyond the last one when it begins: more than others use until it ends.
const AHEAD_OF_OTHERS: i64 = 1 << 32;

/// Who makes a change, and when. The journal's entry names both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// RFC 3339, UTC, whole seconds.
    pub at: String,
    /// The same moment in seconds since the Unix epoch.
    pub seconds: i64,
    /// The moment that decides what is too old, see [`Moment::steady_seconds`].
    pub steady_seconds: i64,
    /// The API key, as it is now.
    pub key: KeyLabel,
    /// The id of the request.
    pub request_id: Uuid,
}

/// How the journal names an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLabel {
    /// The key's id.
    pub id: i64,
    /// The key's name.
    pub name: String,
    /// The key's first 8 characters.
    pub prefix: String,
}

impl Origin {
    /// The origin of a change by the request `request_id` with this key, at `now`.
    pub fn new(now: Moment, key: KeyLabel, request_id: Uuid) -> Origin {
        let (seconds, steady_seconds) = (now.unix_seconds(), now.steady_seconds);
        Origin { at: now.rfc3339(), seconds, steady_seconds, key, request_id }
    }
}

/// What a change did to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Created,
    Updated,
    Deleted,
}

impl Action {
    const fn name(self) -> &'static str {
        match self {
            Action::Created => "created",
            Action::Updated => "updated",
            Action::Deleted => "deleted",
        }
    }
}

/// One entry, without its origin.
struct Entry<'a> {
    seq: i64,
    resource: &'a Resource,
    id: i64,
    action: Action,
    /// A JSON array.
    fields: &'a [u8],
    /// A JSON object.
    former: Option<Vec<u8>>,
}

/// The journal as a transaction has it so far. It is copied before each mutation, and put back when the mutation is rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct JournalState {
    last_seq: i64,
    entries: i64,
    added: i64,
    /// The latest time of a change of the transaction that decides what is too old, in Unix seconds.
    latest: i64,
}

impl Writing<'_> {
    /// The state before a mutation, for [`Writing::restore_journal`].
    pub(in crate::store) fn journal(&self) -> Option<JournalState> {
        self.journal.get()
    }

    /// Takes the state from before a mutation that was rolled back.
    pub(in crate::store) fn restore_journal(&self, state: Option<JournalState>) {
        self.journal.set(state);
    }

    /// The number of the next entry. The entry must be written in the same transaction.
    pub(super) fn next_seq(&self) -> rusqlite::Result<i64> {
        let mut state = match self.journal.get() {
            Some(state) => state,
            None => self.read_journal()?,
        };
        state.last_seq += 1;
        state.entries += 1;
        state.added += 1;
        self.journal.set(Some(state));
        Ok(state.last_seq)
    }

    fn read_journal(&self) -> rusqlite::Result<JournalState> {
        let mut statement = self.connection().prepare_cached("SELECT last_seq, entries FROM journal")?;
        statement.query_row([], |row| {
            Ok(JournalState { last_seq: row.get(0)?, entries: row.get(1)?, added: 0, latest: i64::MIN })
        })
    }

    /// Writes the entry of a new record: its fields are those that are not null.
    pub(super) fn journal_created(
        &self,
        resource: &Resource,
        record: &Record,
        origin: &Origin,
    ) -> rusqlite::Result<()> {
        let fields = names_of_filled(resource, record);
        let (seq, id) = (record.version, record.id);
        self.write_entry(&Entry { seq, resource, id, action: Action::Created, fields: &fields, former: None }, origin)
    }

    /// Writes the entry of a changed record. `former` has the fields whose values differ, with the values before.
    pub(super) fn journal_updated(
        &self,
        resource: &Resource,
        record: &Record,
        former: &[(&'static Field, Value)],
        origin: &Origin,
    ) -> rusqlite::Result<()> {
        let fields = write_names(former.iter().map(|(field, _)| field.name));
        let (seq, id, former) = (record.version, record.id, Some(write_object_of(former)));
        self.write_entry(&Entry { seq, resource, id, action: Action::Updated, fields: &fields, former }, origin)
    }

    /// Writes the entry of a deleted record.
    pub(super) fn journal_deleted(
        &self,
        resource: &Resource,
        record: &Record,
        origin: &Origin,
    ) -> rusqlite::Result<()> {
        let (seq, id, former) = (self.next_seq()?, record.id, Some(record.json(resource)));
        self.write_entry(&Entry { seq, resource, id, action: Action::Deleted, fields: b"[]", former }, origin)
    }

    fn write_entry(&self, entry: &Entry<'_>, origin: &Origin) -> rusqlite::Result<()> {
        let Entry { seq, resource, id, action, fields, former } = entry;
        let (fields, former) = (str::from_utf8(fields)?, former.as_deref().map(str::from_utf8).transpose()?);
        let KeyLabel { id: key, name, prefix } = &origin.key;
        let request = origin.request_id.as_bytes();
        let values =
            params![seq, origin.at, resource.plural, id, action.name(), fields, former, key, name, prefix, request];
        self.connection()
            .prepare_cached(
                "INSERT INTO changes
                   (seq, at, resource, record_id, action, fields, former, by_key, by_name, by_prefix, request_id)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(values)?;
        if let Some(state) = self.journal.get() {
            self.journal.set(Some(JournalState { latest: state.latest.max(origin.steady_seconds), ..state }));
        }
        Ok(())
    }

    /// Writes the entry of a new record by the command `import`.
    pub(super) fn journal_imported(&self, resource: &Resource, record: &Record) -> rusqlite::Result<()> {
        let fields = names_of_filled(resource, record);
        let mut insert = self.connection().prepare_cached(
            "INSERT INTO changes (seq, at, resource, record_id, action, fields, by_name) VALUES (?, ?, ?, ?, ?, ?, 'import')",
        )?;
        let (action, fields) = (Action::Created.name(), str::from_utf8(&fields)?);
        let values = params![record.version, record.created_at, resource.plural, record.id, action, fields];
        insert.execute(values).map(drop)
    }

    /// The first of a block of numbers for the entries of an import. They are beyond all that others use while it runs: they go on
    /// from the last number.
    pub(super) fn hidden_seq(&self) -> rusqlite::Result<i64> {
        Ok(self.read_journal()?.last_seq.saturating_add(AHEAD_OF_OTHERS))
    }

    /// Shows the `count` entries of an import from the number `first` on. Returns whether that is possible: no other entry has such a
    /// number.
    pub(super) fn show_entries(&self, first: i64, count: i64) -> rusqlite::Result<bool> {
        let sql = "UPDATE journal SET last_seq = ?1 + ?2 - 1, entries = entries + ?2 WHERE last_seq < ?1";
        Ok(self.connection().execute(sql, [first, count])? == 1)
    }

    /// Removes at most `count` entries of `resource` that no reader sees.
    pub(super) fn remove_hidden_entries(&self, resource: &Resource, count: usize) -> rusqlite::Result<()> {
        let sql = "DELETE FROM changes WHERE seq IN (
                     SELECT seq FROM changes WHERE resource = ? AND seq > (SELECT last_seq FROM journal) ORDER BY seq LIMIT ?)";
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.connection().prepare_cached(sql)?.execute(params![resource.plural, count]).map(drop)
    }

    /// Removes at most `count` entries that are too many. Returns how many.
    pub(in crate::store) fn remove_surplus(&self, count: usize) -> rusqlite::Result<usize> {
        let state = self.read_journal()?;
        let surplus = (state.entries - MAX_ENTRIES).clamp(0, i64::try_from(count).unwrap_or(i64::MAX));
        let removed = self.remove_first(surplus, surplus, "", state.last_seq)?;
        self.connection().execute("UPDATE journal SET entries = entries - ?", [removed])?;
        Ok(usize::try_from(removed).unwrap_or(0))
    }

    /// Writes the state of the journal to the file, and removes entries that are older than `keep` or too many. Without `keep`
    /// none is too old. Call it once, at the end of the transaction.
    pub(in crate::store) fn finish_journal(&self, keep: Option<Duration>) -> rusqlite::Result<()> {
        let Some(state) = self.journal.take() else { return Ok(()) };
        let keep = keep.map(seconds);
        let oldest = keep.map(|keep| clock::rfc3339(state.latest.saturating_sub(keep))).unwrap_or_default();
        let removed = self.remove_entries(state, &oldest)?;
        self.connection()
            .prepare_cached("UPDATE journal SET last_seq = ?, entries = ?, keep_seconds = coalesce(?, keep_seconds)")?
            .execute(params![state.last_seq, state.entries - removed, keep])?;
        Ok(())
    }

    /// Removes entries from before `oldest`, and entries beyond the limit, in small steps. Returns how many.
    fn remove_entries(&self, state: JournalState, oldest: &str) -> rusqlite::Result<i64> {
        let surplus = state.entries - MAX_ENTRIES;
        let allowed = state.added + REMOVED_BEYOND_ADDED;
        let mut removed = 0;
        while removed < allowed {
            let step = (allowed - removed).min(REMOVED_AT_ONCE);
            let count = self.remove_first(step, surplus - removed, oldest, state.last_seq)?;
            removed += count;
            if count < step {
                break;
            }
        }
        Ok(removed)
    }

    /// Removes at most `count` of the first entries: `surplus` of them, and those that follow from before `oldest`. Those beyond the
    /// number `last_seq` are hidden.
    fn remove_first(&self, count: i64, surplus: i64, oldest: &str, last_seq: i64) -> rusqlite::Result<i64> {
        let sql = "SELECT seq, at, resource FROM changes WHERE seq <= ? ORDER BY seq LIMIT ?";
        let mut first = self.connection().prepare_cached(sql)?;
        let mut rows = first.query([last_seq, count])?;
        let (mut removed, mut last) = (0, None);
        let mut marks: Vec<(String, i64)> = Vec::new();
        while let Some(row) = rows.next()? {
            if removed >= surplus && row.get_ref(1)?.as_str()? >= oldest {
                break;
            }
            let (seq, resource): (i64, &str) = (row.get(0)?, row.get_ref(2)?.as_str()?);
            match marks.iter_mut().find(|(known, _)| known == resource) {
                Some((_, mark)) => *mark = seq,
                None => marks.push((resource.to_owned(), seq)),
            }
            (removed, last) = (removed + 1, Some(seq));
        }
        drop(rows);
        if let Some(last) = last {
            self.connection().prepare_cached("DELETE FROM changes WHERE seq <= ?")?.execute([last])?;
        }
        for mark in marks {
            self.connection()
                .prepare_cached("REPLACE INTO removed_changes (resource, seq) VALUES (?, ?)")?
                .execute(mark)?;
        }
        Ok(removed)
    }
}

/// The names of the fields of a new record that are not null, as a JSON array.
fn names_of_filled(resource: &Resource, record: &Record) -> Vec<u8> {
    let filled = resource.fields.iter().zip(&record.values).filter(|(_, value)| **value != Value::Null);
    write_names(filled.map(|(field, _)| field.name))
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// Begins a new lineage of the journal in the main database, with numbers that neither this file nor the attached database `other`
/// has used. Another copy of the same backup goes on elsewhere, at random. Entries that were hidden when the backup was made are
/// removed, since the new numbers may be above theirs; their import, if it still runs, fails.
///
/// # Errors
///
/// Those of SQLite.
pub(in crate::store) fn renew_journal(connection: &Connection, other: Option<&str>) -> rusqlite::Result<()> {
    let used = other.map_or_else(
        || "last_seq".to_owned(),
        |other| format!("max(last_seq, (SELECT last_seq FROM {other}.journal))"),
    );
    connection.execute_batch(&format!(
        "DELETE FROM main.changes WHERE seq > (SELECT last_seq FROM main.journal);
         UPDATE main.pending_imports SET first_seq = 0;
         UPDATE main.journal SET lineage = randomblob(16), last_seq = {used} + 1 + abs(random() % 1099511627776);
         UPDATE main.journal SET base = last_seq;"
    ))
}
