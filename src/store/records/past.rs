//! The records as they were at a moment (contract section 4, `at`).
//!
//! The entries of the change log after the moment have the former values of the records that have
//! changed since. [`Reading::record`] takes these entries back. In the statements of lists, a
//! subquery stands for the table ([`Reading::source`]).

use std::ops::RangeInclusive;

use rusqlite::{OptionalExtension as _, params};

use super::change_log::AUTHOR;
use super::read::{Reading, Record, damaged_text};
use crate::clock::Timestamp;
use crate::model::{
    Custom, Field, ID, Json, JsonObject, Kind, PastMoment, RecordId, Resource, UPDATED_AT, Value,
    Version,
};
use crate::store::error::{Result, StoreCode, StoreError};

/// The most records that may have changed since the moment of a list.
pub const MAX_CHANGED_SINCE: i64 = 20_000;

/// An entry of the change log on one record.
pub(super) struct RecordEntry {
    at: Timestamp,
    /// The former values of the fields that it changed. `None` if it created the record.
    pub(super) before: Option<Vec<(&'static Field, Value)>>,
    /// If it deleted the record.
    pub(super) created_at: Option<Timestamp>,
    before_version: Option<i64>,
    before_updated_at: Option<Timestamp>,
    /// For people: `key 3 "office"`, `the command import`.
    pub(super) author: String,
    pub(super) is_selected: bool,
}

/// A version of a record.
#[derive(Clone, Debug)]
pub struct RecordVersion {
    /// `None` if the record was deleted.
    pub values: Option<Vec<Value>>,
    /// When the version began. If that is unknown, a later moment at which it was there.
    pub since: Timestamp,
    /// Who made the version, for people: `key 3 "office"`. `None` if the entry is removed.
    pub author: Option<String>,
}

impl Reading<'_> {
    /// The last entry that belongs to the moment, by the rule in change_log.rs. The tenant was
    /// created at `created_at`.
    pub fn last_entry(&self, moment: PastMoment, created_at: Timestamp) -> Result<Version> {
        // 1.0.0 removed entries without their time.
        let removed = "SELECT max(coalesce(at, (SELECT at FROM changes ORDER BY seq LIMIT 1))),
                              max(seq) FROM changes_removed";
        let (begin, gone): (Option<Timestamp>, Option<i64>) =
            self.connection().query_row(removed, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let begin = begin.map_or(created_at, |begin| begin.max(created_at));
        let last = match moment.last {
            Some(Version(last)) => last,
            None => self.find_last_entry(moment.at)?,
        };
        if moment.at < begin || gone.is_some_and(|gone| gone > last) {
            let message = "the records of that moment are not known; the first one that can be \
                           read is";
            return Err(StoreError::new(StoreCode::Gone(begin), format!("{message} {begin}")));
        }
        Ok(Version(last))
    }

    /// Since the clock was set back, the entries are dated in their order. So a binary search finds a
    /// number after which all entries are later.
    fn find_last_entry(&self, at: Timestamp) -> Result<i64> {
        let connection = self.connection();
        let sql = "SELECT set_back - 1, last_seq FROM changes_state";
        let (mut low, mut high): (i64, i64) =
            connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let sql = "SELECT at > ?2 FROM changes WHERE seq > ?1 ORDER BY seq LIMIT 1";
        let mut is_later = connection.prepare_cached(sql)?;
        while low + 1 < high {
            let middle = low.midpoint(high);
            let later = is_later.query_row(params![middle, at], |row| row.get(0)).optional()?;
            match later.unwrap_or(true) {
                true => high = middle,
                false => low = middle,
            }
        }
        // Without an earlier entry, all records without a later one are as they were.
        let sql = "SELECT coalesce(
            (SELECT seq FROM changes WHERE at <= ? AND seq <= ? ORDER BY seq DESC LIMIT 1),
            (SELECT min(seq) - 1 FROM changes), last_seq) FROM changes_state";
        Ok(connection.query_row(sql, params![at, high], |row| row.get(0))?)
    }

    /// Checks that a list of the past would not look at too many changes.
    pub(super) fn check_changed(&self, resource: &Resource, Version(last): Version) -> Result<()> {
        let count = |what: &str, limit: i64| -> Result<i64> {
            let sql = format!(
                "SELECT count({what}) FROM (SELECT record_id FROM changes
                 INDEXED BY changes_by_resource WHERE resource = ? AND seq > ? LIMIT {limit})"
            );
            let values = params![resource.plural, last];
            Ok(self.connection().query_row(&sql, values, |row| row.get(0))?)
        };
        // As a rule, there are few entries, and they need not be told apart by their records.
        if count("*", MAX_CHANGED_SINCE + 1)? > MAX_CHANGED_SINCE {
            let changed = count("DISTINCT record_id", -1)?;
            if changed > MAX_CHANGED_SINCE {
                let message = format!("{changed} records have changed since that moment");
                return Err(StoreError::new(StoreCode::TooManyChanges(changed), message));
            }
        }
        Ok(())
    }

    /// The record as it was after the entry `last`. `record` is the record as it is.
    pub(super) fn former_record(
        &self,
        resource: &Resource,
        id: RecordId,
        mut record: Option<Record>,
        last: Version,
    ) -> Result<Option<Record>> {
        if record.as_ref().is_none_or(|record| record.version > last) {
            let later = last.0.saturating_add(1)..=i64::MAX;
            self.entries(resource, id, later, "FALSE", &mut |entry| {
                record = entry.take_back(resource, id, record.take());
                true
            })?;
        }
        Ok(record)
    }

    /// The table of a resource, or a subquery for its past with `id`, the field `index` and these
    /// other `columns`.
    ///
    /// Most records have the place in the index that they have now, and SQLite finds them along the
    /// index of the table. Only the others are *displaced*: they were created or deleted since, or
    /// their field `index` has changed. The second part of the subquery finds each of them by its
    /// first entry that displaced it. The other columns are looked up in the change log if a
    /// statement needs them.
    pub(super) fn source(&self, resource: &Resource, index: &Field, columns: &[&str]) -> String {
        let table = resource.plural;
        let Some(Version(last)) = self.last() else { return table.to_owned() };
        let (entries, displacing, displaces) = if *index == ID {
            ("changes_of_deletions", "action = 'deleted'", "action <> 'updated'".to_owned())
        } else if *index == UPDATED_AT {
            ("changes_by_resource", "before IS NOT NULL", "TRUE".to_owned())
        } else {
            let changes = format!("(action <> 'updated' OR instr(fields, '\"{}\"'))", index.name);
            ("changes_by_resource", "before IS NOT NULL", changes)
        };
        let is_displaced = |id: &str, until: &str| {
            format!(
                "EXISTS (SELECT 1 FROM changes INDEXED BY changes_by_record
                 WHERE resource = '{table}' AND record_id = {id} AND seq > {last} {until}
                   AND {displaces})"
            )
        };
        let (mut kept, mut displaced) = ("r.id".to_owned(), "e.record_id".to_owned());
        if *index != ID {
            // Both parts have the type of the column, or SQLite would not use its index.
            let kind = match index.kind {
                Kind::Integer | Kind::Boolean => "INTEGER",
                _ => "TEXT",
            };
            kept += &format!(", r.{}", index.name);
            let value = logged_value(index.name);
            // The entries of 1.0.0 have no version.
            let former =
                format!("iif(before_version IS NULL, {}, {value})", cleaned(index, &value));
            displaced += &format!(", CAST({former} AS {kind}) AS {}", index.name);
        }
        for name in columns {
            let former = |id: &str| former(resource, name, id, last);
            kept += &format!(", iif(r.version <= {last}, r.{name}, {}) AS {name}", former("r.id"));
            displaced += &format!(", {} AS {name}", former("e.record_id"));
        }
        format!(
            "(SELECT {kept} FROM {table} AS r
              WHERE r.version <= {last} OR NOT {}
              UNION ALL
              SELECT {displaced} FROM changes AS e INDEXED BY {entries}
                LEFT JOIN {table} AS r ON r.id = e.record_id
              WHERE resource = '{table}' AND seq > {last} AND {displacing} AND {displaces}
                AND (before_version <= {last} OR NOT {}))",
            is_displaced("r.id", ""),
            is_displaced("e.record_id", "AND seq < e.seq")
        )
    }

    /// Calls `take` with the versions of a record, newest first, until it returns false. Entries of
    /// the change log that are removed end the versions early.
    pub fn versions(
        &self,
        resource: &Resource,
        id: RecordId,
        take: &mut dyn FnMut(&RecordVersion) -> bool,
    ) -> Result<()> {
        let sql = "SELECT max(at) FROM changes_removed WHERE resource = ?";
        let removed: Option<Timestamp> = self
            .connection()
            .prepare_cached(sql)?
            .query_row([resource.plural], |row| row.get(0))?;
        let mut record = self.record(resource, id)?;
        let mut oldest = record.as_ref().and_then(|record| record.updated_at);
        let mut is_done = false;
        self.entries(resource, id, 0..=i64::MAX, "FALSE", &mut |entry| {
            let values = record.as_ref().map(|record| record.values.clone());
            let (since, author) = (entry.at, Some(entry.author.clone()));
            is_done = !take(&RecordVersion { values, since, author });
            record = entry.take_back(resource, id, record.take());
            // 1.0.0 did not write when the former version began.
            let begin = |record: &Record| record.updated_at.or(removed).unwrap_or(since);
            oldest = record.as_ref().map(begin);
            !is_done
        })?;
        if let (false, Some(since)) = (is_done, oldest) {
            let values = record.map(|record| record.values);
            take(&RecordVersion { values, since, author: None });
        }
        Ok(())
    }

    /// Calls `take` with the entries of a record that have these numbers, newest first, until it
    /// returns false. `is_selected` is a condition in SQL.
    pub(super) fn entries(
        &self,
        resource: &Resource,
        id: RecordId,
        numbers: RangeInclusive<i64>,
        is_selected: &str,
        take: &mut dyn FnMut(RecordEntry) -> bool,
    ) -> Result<()> {
        let sql = format!(
            "SELECT at, before, before_version, before_updated_at, {AUTHOR}, {is_selected}
             FROM changes INDEXED BY changes_by_record
             WHERE resource = ? AND record_id = ? AND seq BETWEEN ? AND ? ORDER BY seq DESC"
        );
        let mut statement = self.connection().prepare_cached(&sql)?;
        let mut rows =
            statement.query(params![resource.plural, id.0, numbers.start(), numbers.end()])?;
        while let Some(row) = rows.next()? {
            let (mut before, mut created_at) = (None, None);
            if let Some(json) = row.get_ref(1)?.as_str_or_null()? {
                let json: JsonObject = serde_json::from_str(json).map_err(damaged_text)?;
                before = Some(former_values(resource, &json));
                created_at = json.get("created_at").and_then(|at| at.as_str()?.parse().ok());
            }
            let entry = RecordEntry {
                at: row.get(0)?,
                before,
                created_at,
                before_version: row.get(2)?,
                before_updated_at: row.get(3)?,
                author: row.get(4)?,
                is_selected: row.get(5)?,
            };
            if !take(entry) {
                break;
            }
        }
        Ok(())
    }

    /// The ids of the records that had each value of a field before a change, by the value.
    pub fn former_keys(
        &self,
        resource: &Resource,
        field: &Field,
        take: &mut dyn FnMut(String, RecordId),
    ) -> Result<()> {
        let sql = "SELECT record_id, json_extract(before, '$.' || ?2)
                   FROM changes INDEXED BY changes_by_resource
                   WHERE resource = ?1 AND json_type(before, '$.' || ?2) = 'text'";
        let mut statement = self.connection().prepare(sql)?;
        let mut rows = statement.query(params![resource.plural, field.name])?;
        while let Some(row) = rows.next()? {
            take(row.get(1)?, RecordId(row.get(0)?));
        }
        Ok(())
    }
}

impl RecordEntry {
    /// The record before the entry. `record` is the record after it.
    fn take_back(
        self,
        resource: &Resource,
        id: RecordId,
        record: Option<Record>,
    ) -> Option<Record> {
        let before = self.before?;
        let mut record = record.unwrap_or_else(|| Record {
            id,
            values: resource.fields.iter().map(Field::default_value).collect(),
            created_at: self.created_at.unwrap_or(self.at),
            updated_at: None,
            version: Version(0),
        });
        for (field, value) in before {
            if let Some(former) = resource.value_mut(&mut record.values, field.name) {
                *former = value;
            }
        }
        record.updated_at = self.before_updated_at;
        record.version = Version(self.before_version.unwrap_or_default());
        Some(record)
    }
}

/// The value of a column before an entry that changed it.
fn logged_value(column: &str) -> String {
    match column == UPDATED_AT.name {
        true => "before_updated_at".to_owned(),
        false => format!("before ->> '$.{column}'"),
    }
}

/// A former value without the white space that the upgrade has trimmed. The log keeps it.
fn cleaned(field: &Field, value: &str) -> String {
    match field.kind {
        Kind::Custom => {
            format!("(SELECT json_group_object(key, trimmed(value)) FROM json_each({value}))")
        }
        _ if field.has_one_line() => format!("nullif(trimmed({value}), '')"),
        _ => value.to_owned(),
    }
}

/// The former value of a column of the record `id`: from the first entry since that has one, or the
/// present value.
fn former(resource: &Resource, column: &str, id: &str, last: i64) -> String {
    if column == "search" {
        return former_search(resource, id, last);
    }
    let has_value = match column == UPDATED_AT.name {
        true => "TRUE".to_owned(),
        false => format!("(action = 'deleted' OR instr(fields, '\"{column}\"'))"),
    };
    let entries = format!(
        "FROM changes INDEXED BY changes_by_record WHERE resource = '{}' AND record_id = {id}
           AND seq > {last} AND {has_value} ORDER BY seq LIMIT 1",
        resource.plural
    );
    let value = logged_value(column);
    let former =
        format!("iif(EXISTS (SELECT 1 {entries}), (SELECT {value} {entries}), r.{column})");
    resource.field(column).map_or(former.clone(), |field| cleaned(field, &former))
}

fn former_search(resource: &Resource, id: &str, last: i64) -> String {
    let mut texts = Vec::new();
    for field in resource.fields {
        let former = || former(resource, field.name, id, last);
        if field.kind == Kind::Custom {
            texts.push(format!(
                "(SELECT group_concat(value, char(10)) FROM json_each({}))",
                former()
            ));
        } else if field.is_searched() {
            texts.push(former());
        }
    }
    format!("search_text({})", texts.join(", "))
}

fn former_values(resource: &Resource, before: &JsonObject) -> Vec<(&'static Field, Value)> {
    let mut values = Vec::new();
    for field in resource.fields {
        if let Some(former) = before.get(field.name) {
            values.push((field, field.trimmed(stored_value(former))));
        }
    }
    values
}

/// The value that the change log has written as JSON.
fn stored_value(json: &Json) -> Value {
    match json {
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => number.as_i64().map_or(Value::Null, Value::Integer),
        Json::String(text) => Value::of(text),
        Json::Object(members) => {
            let texts = members.iter().filter_map(|(name, text)| Some((name, text.as_str()?)));
            Value::Custom(
                texts.map(|(name, text)| (name.clone(), text.to_owned())).collect::<Custom>(),
            )
        }
        Json::Null | Json::Array(_) => Value::Null,
    }
}
