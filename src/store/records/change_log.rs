//! The change log: one entry for each change, which commits with it (contract section 12). The
//! numbers of entries are also the versions of records (contract section 13).

use std::time::Duration;

use rusqlite::{Connection, params};
use serde_json::{Map, json};
use uuid::Uuid;

use super::encoding::damaged_text;
use super::{Record, Writing};
use crate::clock::Timestamp;
use crate::model::{Field, KeyId, Resource, Value, Version};

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

/// What a change did to a record.
pub(super) enum Action<'a> {
    Created,
    /// The fields whose values differ, with the values before.
    Updated(&'a [(&'static Field, Value)]),
    Deleted,
}

impl Writing<'_> {
    /// The number of the next entry. The entry must be written in the same transaction.
    pub(super) fn next_version(&self) -> rusqlite::Result<Version> {
        let sql = "UPDATE changes_state SET last_seq = last_seq + 1, entries = entries + 1
                   RETURNING last_seq";
        self.connection().prepare_cached(sql)?.query_row([], |row| row.get(0))
    }

    /// Adds the entry of a change. Its number is the version of `record`.
    pub(super) fn log(
        &self,
        resource: &Resource,
        record: &Record,
        action: &Action<'_>,
        context: &ChangeContext,
    ) -> rusqlite::Result<()> {
        let (action, fields, before) = match action {
            Action::Created => {
                let values = resource.fields.iter().zip(&record.values);
                let filled = values.filter(|(_, value)| **value != Value::Null);
                ("created", filled.map(|(field, _)| field.name).collect(), None)
            }
            Action::Updated(before) => {
                let members = before.iter().map(|(field, value)| (field.name.into(), json!(value)));
                let object: Map<_, _> = members.collect();
                let names = before.iter().map(|(field, _)| field.name).collect();
                ("updated", names, Some(json!(object).to_string()))
            }
            Action::Deleted => {
                let before = String::from_utf8(record.json(resource)).map_err(damaged_text)?;
                ("deleted", Vec::<&str>::new(), Some(before))
            }
        };
        let (key, name, prefix, request) = match &context.actor {
            Actor::Key { key: KeyLabel { id, name, prefix }, request_id } => {
                (Some(id), name.as_str(), Some(prefix), Some(request_id.as_bytes()))
            }
            Actor::Command(name) => (None, *name, None, None),
        };
        let Record { version, id, .. } = record;
        let fields = json!(fields).to_string();
        let table = resource.plural;
        self.connection()
            .prepare_cached(
                "INSERT INTO changes (seq, at, resource, record_id, action, fields, before,
                                      by_key, by_name, by_prefix, request_id)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                version, context.at, table, id, action, fields, before, key, name, prefix, request
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
    let sql = "SELECT max(seq) FROM
                 (SELECT seq, at, row_number() OVER (ORDER BY seq) AS place
                  FROM changes ORDER BY seq LIMIT ?)
               WHERE place <= ? OR at < ?";
    let mut last = connection.prepare_cached(sql)?;
    let last = last.query_row(params![count, surplus, oldest], |row| row.get(0))?;
    let Some(last): Option<Version> = last else { return Ok(0) };
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO changes_removed (resource, seq)
             SELECT resource, max(seq) FROM changes WHERE seq <= ? GROUP BY resource",
        )?
        .execute([last])?;
    let sql = "DELETE FROM changes WHERE seq <= ?";
    let removed = i64::try_from(connection.prepare_cached(sql)?.execute([last])?).unwrap_or(count);
    let sql = "UPDATE changes_state SET entries = entries - ?";
    connection.prepare_cached(sql)?.execute([removed])?;
    Ok(removed)
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
