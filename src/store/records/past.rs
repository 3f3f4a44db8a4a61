//! The records as they were at a moment (contract section 4, `at`).
//!
//! The entries of the change log after the moment have the former values of the records that have
//! changed since. [`Reading::look_back`] lists these records in a temporary table, and makes a
//! temporary view that has the name of the resource's table. SQLite looks for a name among
//! temporary ones first, so every statement for the present reads the past. A value of the view is
//! looked up in the change log when a statement needs it. So a page needs the values by which it is
//! filtered and sorted of many records, and all values of its own records alone.
//!
//! The temporary objects end with the transaction of the read. No other read sees them, because
//! each read of the past has a connection of its own ([`Tenant::read_past`]).
//!
//! [`Tenant::read_past`]: crate::store::Tenant::read_past

use std::ops::RangeInclusive;

use rusqlite::params;
use serde_json::json;

use super::change_log::AUTHOR;
use super::list::Page;
use super::read::{Reading, columns, damaged_text};
use crate::clock::Timestamp;
use crate::model::{
    Custom, Field, Inclusion, Json, JsonObject, Kind, ListQuery, PastMoment, RecordId, Resource,
    UPDATED_AT, Value, Version,
};
use crate::store::error::{Result, StoreCode, StoreError};

/// The most records that may have changed since the moment of a list.
pub const MAX_CHANGED_SINCE: i64 = 20_000;

/// An entry of the change log on one record.
pub(super) struct RecordEntry {
    pub(super) seq: i64,
    pub(super) at: Timestamp,
    pub(super) is_deletion: bool,
    /// The former values of the fields that it changed. `None` if it created the record.
    pub(super) before: Option<Vec<(&'static Field, Value)>>,
    pub(super) before_updated_at: Option<Timestamp>,
    /// For people: `key 3 "office"`, `the command import`.
    pub(super) author: String,
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
        // Without an earlier entry, all records without a later one are as they were.
        let last = "SELECT coalesce(
            (SELECT seq FROM changes WHERE at <= ? ORDER BY seq DESC LIMIT 1),
            (SELECT min(seq) - 1 FROM changes), last_seq) FROM changes_state";
        let last = match moment.last {
            Some(Version(last)) => last,
            None => self.connection().query_row(last, [moment.at], |row| row.get(0))?,
        };
        if moment.at < begin || gone.is_some_and(|gone| gone > last) {
            let message = "the records of that moment are not known; the first one that can be \
                           read is";
            return Err(StoreError::new(StoreCode::Gone(begin), format!("{message} {begin}")));
        }
        Ok(Version(last))
    }

    /// A page of a list as it was after the entry `last`.
    pub fn past_page(&self, list: &ListQuery, last: Version) -> Result<Page> {
        let resource = list.resource;
        let mut fields: Vec<&Field> = list.filters.iter().map(|(field, ..)| *field).collect();
        fields.push(list.sort);
        if !list.words.is_empty() {
            fields.extend(resource.fields.iter().filter(|field| field.is_searched()));
        }
        if !list.words.is_empty() || !list.custom.is_empty() {
            fields.extend(resource.field("custom"));
        }
        self.check_changed(resource, last)?;
        self.look_back(resource, last, None, &fields)?;
        if !list.include.is_empty() {
            let plain = ListQuery { include: Vec::new(), total: false, ..list.clone() };
            self.look_back_at_included(&list.include, last, &self.page(&plain)?.json)?;
        }
        self.page(list)
    }

    fn check_changed(&self, resource: &Resource, Version(last): Version) -> Result<()> {
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

    /// A record as it was after the entry `last`.
    pub fn past_json(
        &self,
        resource: &Resource,
        id: RecordId,
        include: &[&Inclusion],
        last: Version,
    ) -> Result<Option<Vec<u8>>> {
        self.look_back(resource, last, Some(&[id.0]), &[])?;
        if !include.is_empty()
            && let Some((json, _)) = self.json(resource, id, &[])?
        {
            self.look_back_at_included(include, last, &[b"[", &*json, b"]"].concat())?;
        }
        Ok(self.json(resource, id, include)?.map(|(json, _)| json))
    }

    /// Shows the records to which the records in a JSON array refer, as they were.
    fn look_back_at_included(
        &self,
        include: &[&Inclusion],
        last: Version,
        json: &[u8],
    ) -> Result<()> {
        for Inclusion { resource, reference } in include {
            self.look_back(resource, last, Some(&members(json, reference.name)), &[])?;
        }
        Ok(())
    }

    /// Shows the records of a resource, or those with these ids, as they were after the entry
    /// `last`, until the transaction ends. Lists are sorted and filtered by `fields`.
    ///
    /// Most records have the place in a list that they have now, and SQLite finds them along the
    /// index of the table. Only the others are *displaced*: those that were created or deleted
    /// since, or whose change is in one of the `fields`.
    pub(in crate::store) fn look_back(
        &self,
        resource: &Resource,
        Version(last): Version,
        ids: Option<&[i64]>,
        fields: &[&Field],
    ) -> Result<()> {
        let table = resource.plural;
        let ids = ids.map(|ids| format!("IN (SELECT value FROM json_each('{}'))", json!(ids)));
        let (index, changed_ids, shown_ids) = match ids {
            None => ("changes_by_resource", String::new(), String::new()),
            Some(ids) => {
                ("changes_by_record", format!("AND record_id {ids}"), format!("AND r.id {ids}"))
            }
        };
        let mut displaces = "action <> 'updated'".to_owned();
        for field in fields {
            displaces += &match **field == UPDATED_AT {
                true => " OR TRUE".to_owned(),
                false => format!(" OR instr(fields, '\"{}\"')", field.name),
            };
        }
        let (mut kept, mut displaced) = (String::new(), String::new());
        for name in columns(resource).skip(1) {
            let former = former(resource, name);
            let is_of_index = fields.iter().any(|field| field.name == name);
            kept += &if is_of_index { format!("r.{name}, ") } else { format!("{former}, ") };
            displaced += &format!("{former}, ");
        }
        let search = former_search(resource);
        let columns = columns(resource).collect::<Vec<_>>().join(", ");
        self.connection().execute_batch(&format!(
            "CREATE TEMP TABLE changed_{table} (
               id INTEGER PRIMARY KEY, first INTEGER, action TEXT, before TEXT, updated_at TEXT,
               version INTEGER, fields TEXT, is_displaced INTEGER);
             INSERT INTO temp.changed_{table}
               SELECT record_id, min(seq), action, before, before_updated_at, before_version,
                 group_concat(iif(action = 'deleted', '*', fields)),
                 count(*) FILTER (WHERE {displaces}) > 0
               FROM main.changes INDEXED BY {index}
               WHERE resource = '{table}' AND seq > {last} {changed_ids} GROUP BY record_id;
             CREATE TEMP VIEW {table} ({columns}, search, version) AS
               SELECT r.id, {kept} r.search, CAST(iif(c.id IS NULL, r.version, c.version) AS INTEGER)
               FROM main.{table} AS r LEFT JOIN temp.changed_{table} AS c ON c.id = r.id
               WHERE (r.version <= {last} OR NOT c.is_displaced) {shown_ids}
               UNION ALL
               SELECT c.id, {displaced} {search}, c.version
               FROM temp.changed_{table} AS c LEFT JOIN main.{table} AS r ON r.id = c.id
               WHERE c.is_displaced AND c.action <> 'created'"
        ))?;
        Ok(())
    }

    /// Calls `take` with the versions of a record, newest first, until it returns false. Entries of
    /// the change log that are removed end the versions early.
    pub fn versions(
        &self,
        resource: &Resource,
        id: RecordId,
        take: &mut dyn FnMut(&RecordVersion) -> bool,
    ) -> Result<()> {
        let present = self.record(resource, id)?;
        let sql = "SELECT max(at) FROM changes_removed WHERE resource = ?";
        let removed: Option<Timestamp> = self
            .connection()
            .prepare_cached(sql)?
            .query_row([resource.plural], |row| row.get(0))?;
        let mut oldest = present.as_ref().and_then(|record| record.updated_at);
        let mut values = present.map(|record| record.values);
        let mut is_done = false;
        self.entries(resource, id, 0..=i64::MAX, &mut |entry| {
            let RecordEntry { at: since, author, before, before_updated_at, .. } = entry;
            let version = RecordVersion { values: values.take(), since, author: Some(author) };
            is_done = !take(&version);
            oldest = None;
            if let Some(before) = before {
                let defaults = || resource.fields.iter().map(Field::default_value).collect();
                let mut former = version.values.unwrap_or_else(defaults);
                for (field, value) in before {
                    if let Some(former) = resource.value_mut(&mut former, field.name) {
                        *former = value;
                    }
                }
                values = Some(former);
                // 1.0.0 did not write when the former version began.
                oldest = before_updated_at.or(removed).or(Some(since));
            }
            !is_done
        })?;
        if let (false, Some(since)) = (is_done, oldest) {
            take(&RecordVersion { values, since, author: None });
        }
        Ok(())
    }

    /// Calls `take` with the entries of a record that have these numbers, newest first, until it
    /// returns false.
    pub(super) fn entries(
        &self,
        resource: &Resource,
        id: RecordId,
        numbers: RangeInclusive<i64>,
        take: &mut dyn FnMut(RecordEntry) -> bool,
    ) -> Result<()> {
        let sql = format!(
            "SELECT seq, at, action = 'deleted', before, before_updated_at, {AUTHOR}
             FROM changes INDEXED BY changes_by_record
             WHERE resource = ? AND record_id = ? AND seq BETWEEN ? AND ? ORDER BY seq DESC"
        );
        let mut statement = self.connection().prepare_cached(&sql)?;
        let mut rows =
            statement.query(params![resource.plural, id.0, numbers.start(), numbers.end()])?;
        while let Some(row) = rows.next()? {
            let before = match row.get_ref(3)?.as_str_or_null()? {
                None => None,
                Some(before) => {
                    let before: JsonObject = serde_json::from_str(before).map_err(damaged_text)?;
                    Some(former_values(resource, &before))
                }
            };
            let entry = RecordEntry {
                seq: row.get(0)?,
                at: row.get(1)?,
                is_deletion: row.get(2)?,
                before,
                before_updated_at: row.get(4)?,
                author: row.get(5)?,
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

/// The former value of a column: of the first entry since that has one, or the present value. `r`
/// is the record, and `c` lists its entries. Both parts of the view have the types of the table, or
/// SQLite would not read the view along indexes.
fn former(resource: &Resource, column: &str) -> String {
    if *column == *UPDATED_AT.name {
        return format!("CAST(iif(c.id IS NULL, r.{column}, c.{column}) AS TEXT)");
    }
    let table = resource.plural;
    let former = format!(
        "iif(json_type(c.before, '$.{column}') IS NOT NULL, c.before ->> '$.{column}',
           (SELECT before ->> '$.{column}' FROM main.changes INDEXED BY changes_by_record
            WHERE resource = '{table}' AND record_id = c.id AND seq > c.first
              AND json_type(before, '$.{column}') IS NOT NULL ORDER BY seq LIMIT 1))"
    );
    // The log keeps the white space that the upgrade has trimmed.
    let (former, kind) = match resource.field(column) {
        Some(field) if field.kind == Kind::Custom => {
            let members = "json_group_object(key, trimmed(value))";
            (format!("(SELECT {members} FROM json_each({former}))"), "TEXT")
        }
        Some(field) if field.has_one_line() => (format!("nullif(trimmed({former}), '')"), "TEXT"),
        Some(Field { kind: Kind::Integer | Kind::Boolean, .. }) => (former, "INTEGER"),
        _ => (former, "TEXT"),
    };
    let has_changed = format!("instr(c.fields, '\"{column}\"') OR instr(c.fields, '*')");
    format!("CAST(iif({has_changed}, {former}, r.{column}) AS {kind})")
}

fn former_search(resource: &Resource) -> String {
    let mut texts = Vec::new();
    for field in resource.fields {
        let former = former(resource, field.name);
        if field.kind == Kind::Custom {
            texts.push(format!("(SELECT group_concat(value, char(10)) FROM json_each({former}))"));
        } else if field.is_searched() {
            texts.push(former);
        }
    }
    format!("CAST(search_text({}) AS TEXT)", texts.join(", "))
}

/// The ids in a member of the records in a JSON array.
fn members(json: &[u8], name: &str) -> Vec<i64> {
    let records: Vec<JsonObject> = serde_json::from_slice(json).unwrap_or_default();
    records.iter().filter_map(|record| record.get(name)?.as_i64()).collect()
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
