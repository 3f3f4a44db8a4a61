//! The change log: one entry for each change, which commits with it (contract section 12). The
//! numbers of entries are also the versions of records (contract section 13).

use std::time::Duration;

use rusqlite::{Connection, params};
use uuid::Uuid;

use super::encoding::{write_names, write_object_of};
use super::{Record, Writing};
use crate::clock::Timestamp;
use crate::model::{Field, KeyId, RecordId, Resource, Value, Version};

/// The most entries that a tenant's file keeps.
const MAX_ENTRIES: i64 = 1_000_000;

/// Who makes a change, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeContext {
    pub at: Timestamp,
    pub actor: Actor,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A request with this key.
    Key { key: KeyLabel, request_id: Uuid },
    /// A command of the operator, by its name.
    Command(&'static str),
}

/// How the change log names an API key: as it is at the time of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLabel {
    pub id: KeyId,
    pub name: String,
    /// The first 8 characters.
    pub prefix: String,
}

/// One entry, without who made it.
struct Entry<'a> {
    seq: Version,
    resource: &'a Resource,
    id: RecordId,
    action: &'static str,
    /// A JSON array.
    fields: &'a [u8],
    /// A JSON object.
    before: Option<Vec<u8>>,
}

impl Writing<'_> {
    /// The number of the next entry. The entry must be written in the same transaction.
    pub(super) fn next_version(&self) -> rusqlite::Result<Version> {
        let sql = "UPDATE changes_state SET last_seq = last_seq + 1, entries = entries + 1
                   RETURNING last_seq";
        self.connection().prepare_cached(sql)?.query_row([], |row| row.get(0))
    }

    /// The fields of the entry are those that are not null.
    pub(super) fn log_created(
        &self,
        resource: &Resource,
        record: &Record,
        context: &ChangeContext,
    ) -> rusqlite::Result<()> {
        let values = resource.fields.iter().zip(&record.values);
        let filled = values.filter(|(_, value)| **value != Value::Null);
        let fields = write_names(filled.map(|(field, _)| field.name));
        let (seq, id) = (record.version, record.id);
        let entry = Entry { seq, resource, id, action: "created", fields: &fields, before: None };
        self.write_entry(&entry, context)
    }

    /// `before` has the fields whose values differ, with the values before.
    pub(super) fn log_updated(
        &self,
        resource: &Resource,
        record: &Record,
        before: &[(&'static Field, Value)],
        context: &ChangeContext,
    ) -> rusqlite::Result<()> {
        let fields = write_names(before.iter().map(|(field, _)| field.name));
        let (seq, id, before) = (record.version, record.id, Some(write_object_of(before)));
        let entry = Entry { seq, resource, id, action: "updated", fields: &fields, before };
        self.write_entry(&entry, context)
    }

    pub(super) fn log_deleted(
        &self,
        resource: &Resource,
        record: &Record,
        context: &ChangeContext,
    ) -> rusqlite::Result<()> {
        let (seq, id, before) = (self.next_version()?, record.id, Some(record.json(resource)));
        let entry = Entry { seq, resource, id, action: "deleted", fields: b"[]", before };
        self.write_entry(&entry, context)
    }

    fn write_entry(&self, entry: &Entry<'_>, context: &ChangeContext) -> rusqlite::Result<()> {
        let Entry { seq, resource, id, action, fields, before } = entry;
        let fields = str::from_utf8(fields)?;
        let before = before.as_deref().map(str::from_utf8).transpose()?;
        let (key, name, prefix, request) = match &context.actor {
            Actor::Key { key: KeyLabel { id, name, prefix }, request_id } => {
                (Some(id), name.as_str(), Some(prefix), Some(request_id.as_bytes()))
            }
            Actor::Command(name) => (None, *name, None, None),
        };
        self.connection()
            .prepare_cached(
                "INSERT INTO changes (seq, at, resource, record_id, action, fields, before,
                                      by_key, by_name, by_prefix, request_id)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                seq,
                context.at,
                resource.plural,
                id,
                action,
                fields,
                before,
                key,
                name,
                prefix,
                request
            ])
            .map(drop)
    }
}

/// Removes the entries that are too many or from before `now` less `keep`, at most `count` of them.
/// Without `keep` none is too old. Returns how many were removed. Runs inside a transaction.
pub(crate) fn remove_old_entries(
    connection: &Connection,
    now: Timestamp,
    keep: Option<Duration>,
    count: i64,
) -> rusqlite::Result<i64> {
    let entries: i64 = connection
        .prepare_cached("SELECT entries FROM changes_state")?
        .query_row([], |row| row.get(0))?;
    let surplus = entries - MAX_ENTRIES;
    let oldest = keep.map(|keep| now.before(keep).to_string()).unwrap_or_default();
    let Some((removed, last)) = old_entries(connection, surplus, &oldest, count)? else {
        return Ok(0);
    };
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO changes_removed (resource, seq)
             SELECT resource, max(seq) FROM changes WHERE seq <= ? GROUP BY resource",
        )?
        .execute([last])?;
    connection.prepare_cached("DELETE FROM changes WHERE seq <= ?")?.execute([last])?;
    let sql = "UPDATE changes_state SET entries = entries - ?";
    connection.prepare_cached(sql)?.execute([removed])?;
    Ok(removed)
}

/// The number of entries to remove, and the last of them: the first `surplus` ones, and those that
/// follow from before `oldest`, at most `count` in all.
fn old_entries(
    connection: &Connection,
    surplus: i64,
    oldest: &str,
    count: i64,
) -> rusqlite::Result<Option<(i64, Version)>> {
    let sql = "SELECT seq, at FROM changes ORDER BY seq LIMIT ?";
    let mut first = connection.prepare_cached(sql)?;
    let mut rows = first.query([count])?;
    let mut found = None;
    let mut removed = 0;
    while let Some(row) = rows.next()? {
        if removed >= surplus && row.get_ref(1)?.as_str()? >= oldest {
            break;
        }
        removed += 1;
        found = Some((removed, row.get(0)?));
    }
    Ok(found)
}

/// Begins a new lineage of the change log in the main database, with numbers that neither it nor
/// the attached database `other` has used. Another restore of the same backup goes on elsewhere,
/// at random.
pub(crate) fn renew_lineage(connection: &Connection, other: Option<&str>) -> rusqlite::Result<()> {
    let used = other.map_or_else(
        || "last_seq".to_owned(),
        |other| format!("max(last_seq, (SELECT last_seq FROM {other}.changes_state))"),
    );
    connection.execute_batch(&format!(
        "UPDATE main.changes_state SET
           lineage = randomblob(16), last_seq = {used} + 1 + abs(random() % 1099511627776)"
    ))
}
