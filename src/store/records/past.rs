//! The records as they were at a moment (contract section 4, `at`).
//!
//! The entries of the change log after the moment have the former values of the records that have
//! changed since. [`Reading::look_back`] writes these records, as they were, into a temporary table,
//! and makes a temporary view of it and of the records that have not changed. The view has the name
//! of the table. SQLite looks for a name among temporary ones first, so every statement for the
//! present reads the past.
//!
//! The temporary objects end with the transaction of the read. No other read sees them, because each
//! read of the past has a connection of its own ([`Tenant::read_past`]).
//!
//! [`Tenant::read_past`]: crate::store::Tenant::read_past

use rusqlite::params;
use rusqlite::types::ToSql;
use serde_json::json;

use super::list::Page;
use super::read::{Reading, columns, damaged_text, search_text};
use super::versions::former_values;
use crate::clock::Timestamp;
use crate::model::{
    CREATED_AT, Field, Inclusion, Json, JsonObject, Kind, ListQuery, PastMoment, RecordId,
    Resource, UPDATED_AT, Value, Version,
};
use crate::store::error::{Result, StoreCode, StoreError};

/// The most records that may have changed since the moment of a list.
pub const MAX_CHANGED_SINCE: i64 = 20_000;

/// Which of the records that have changed are shown as they were. The others are hidden.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) enum Shown<'a> {
    All,
    Ids(&'a [i64]),
    /// Those with another place in the list. The others are shown as they are.
    Displaced {
        is_searched: bool,
    },
}

/// A record as it was. The version and the time of its last change are unknown if 1.0.0 wrote the
/// entry of the next change.
struct Former {
    values: Vec<Value>,
    created_at: Option<Timestamp>,
    updated_at: Option<Timestamp>,
    version: Option<i64>,
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
    ///
    /// Of the records that have changed since, few have another place in the list now: those that
    /// were created or deleted, or whose change is in a field by which the list is sorted or
    /// filtered. With these as they were, the page has the right records. Then the records of the
    /// page are shown as they were.
    pub fn past_page(&self, list: &ListQuery, last: Version) -> Result<Page> {
        let changed = self.find_changed(list, last)?;
        if changed > MAX_CHANGED_SINCE {
            let message = format!("{changed} records have changed since that moment");
            return Err(StoreError::new(StoreCode::TooManyChanges(changed), message));
        }
        let resource = list.resource;
        self.look_back(resource, last, Shown::Displaced { is_searched: !list.words.is_empty() })?;
        let plain = ListQuery { include: Vec::new(), ..list.clone() };
        let found = self.page(&plain)?;
        let ids = members(&found.json, "id");
        if ids.is_empty() {
            return Ok(found);
        }
        let table = resource.plural;
        let hide = format!("DROP VIEW temp.{table}; DROP TABLE temp.past_{table}");
        self.connection().execute_batch(&hide)?;
        self.look_back(resource, last, Shown::Ids(&ids))?;
        let plain = ListQuery { limit: ids.len(), total: false, ..plain };
        let mut page = self.page(&plain)?;
        if !list.include.is_empty() {
            self.look_back_at_included(&list.include, last, &page.json)?;
            page = self.page(&ListQuery { include: list.include.clone(), ..plain })?;
        }
        // The page may end earlier than before: its records may be larger.
        Ok(Page { total: found.total, next: page.next.or(found.next), ..page })
    }

    /// Lists the records that have changed after `last`, and whether they have another place in the
    /// list since. Returns their number.
    fn find_changed(&self, list: &ListQuery, last: Version) -> Result<i64> {
        let mut fields: Vec<&Field> = list.filters.iter().map(|(field, ..)| *field).collect();
        fields.push(list.sort);
        let resource = list.resource;
        if !list.words.is_empty() {
            fields.extend(resource.fields.iter().filter(|field| field.is_searched()));
        }
        if !list.words.is_empty() || !list.custom.is_empty() {
            fields.extend(resource.field("custom"));
        }
        let mut displaces = "action <> 'updated'".to_owned();
        for field in fields {
            displaces += &match *field == UPDATED_AT {
                true => " OR TRUE".to_owned(),
                false => format!(" OR instr(fields, '\"{}\"')", field.name),
            };
        }
        let connection = self.connection();
        let sql = format!(
            "CREATE TEMP TABLE changed_{0} AS
             SELECT record_id AS id, max({displaces}) AS is_displaced
             FROM changes INDEXED BY changes_by_resource
             WHERE resource = '{0}' AND seq > {1} GROUP BY record_id",
            resource.plural, last.0
        );
        connection.execute_batch(&sql)?;
        let count = format!("SELECT count(*) FROM temp.changed_{}", resource.plural);
        Ok(connection.query_row(&count, [], |row| row.get(0))?)
    }

    /// A record as it was after the entry `last`.
    pub fn past_json(
        &self,
        resource: &Resource,
        id: RecordId,
        include: &[&Inclusion],
        last: Version,
    ) -> Result<Option<Vec<u8>>> {
        self.look_back(resource, last, Shown::Ids(&[id.0]))?;
        if let Some((json, _)) = self.json(resource, id, &[])?
            && !include.is_empty()
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
            self.look_back(resource, last, Shown::Ids(&members(json, reference.name)))?;
        }
        Ok(())
    }

    /// Shows the changed records of a resource as they were after the entry `last`, until the
    /// transaction ends.
    pub(in crate::store) fn look_back(
        &self,
        resource: &Resource,
        last: Version,
        shown: Shown<'_>,
    ) -> Result<()> {
        let (connection, table, last_seq) = (self.connection(), resource.plural, last.0);
        let (ids, is_kept) = match shown {
            Shown::All => (
                format!(
                    "SELECT DISTINCT record_id FROM changes INDEXED BY changes_by_resource
                     WHERE resource = '{table}' AND seq > {last_seq}"
                ),
                "FALSE".to_owned(),
            ),
            Shown::Ids(ids) => (
                format!("SELECT DISTINCT value FROM json_each('{}')", json!(ids)),
                "FALSE".to_owned(),
            ),
            Shown::Displaced { .. } => {
                let ids = format!("SELECT id FROM temp.changed_{table} WHERE is_displaced");
                (ids.clone(), format!("id NOT IN ({ids})"))
            }
        };
        let columns = columns(resource).chain(["search", "version"]).collect::<Vec<_>>().join(", ");
        // SQLite reads the view along indexes only if both parts have the same types.
        let types = resource.fields.iter().map(|field| match field.kind {
            Kind::Integer | Kind::Boolean => format!("{} INTEGER, ", field.name),
            _ => format!("{} TEXT, ", field.name),
        });
        connection.execute_batch(&format!(
            "CREATE TEMP TABLE past_{table} (id INTEGER PRIMARY KEY, {} created_at TEXT,
               updated_at TEXT, search TEXT, version INTEGER)",
            types.collect::<String>()
        ))?;
        let places = "?, ".repeat(resource.fields.len());
        let mut insert = connection.prepare(&format!(
            "INSERT INTO temp.past_{table} ({columns}) VALUES (?, {places}?, ?, ?, ?)"
        ))?;
        let mut statement = connection.prepare(&ids)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = RecordId(row.get(0)?);
            let Some(former) = self.former(resource, id, last)? else { continue };
            let Former { values, created_at, updated_at, version } = former;
            let search = match shown {
                Shown::Ids(_) | Shown::Displaced { is_searched: true } => {
                    search_text(resource, &values)
                }
                Shown::All | Shown::Displaced { is_searched: false } => String::new(),
            };
            let mut bound: Vec<&dyn ToSql> = vec![&id.0];
            bound.extend(values.iter().map(|value| value as &dyn ToSql));
            bound.extend([&created_at as &dyn ToSql, &updated_at, &search, &version]);
            insert.execute(bound.as_slice())?;
        }
        connection.execute_batch(&format!(
            "CREATE TEMP VIEW {table} AS
             SELECT {columns} FROM main.{table} WHERE version <= {last_seq} OR {is_kept} UNION ALL
             SELECT {columns} FROM temp.past_{table}"
        ))?;
        Ok(())
    }

    /// A record that has an entry after `last`, as it was. `None` if it was created later, or has no
    /// such entry.
    fn former(&self, resource: &Resource, id: RecordId, last: Version) -> Result<Option<Former>> {
        let present = self.record(resource, id)?;
        let mut created_at = present.as_ref().map(|record| record.created_at);
        let mut values = present.map(|record| record.values);
        let sql = "SELECT before, before_version, before_updated_at
                   FROM changes INDEXED BY changes_by_record
                   WHERE resource = ? AND record_id = ? AND seq > ? ORDER BY seq DESC";
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut rows = statement.query(params![resource.plural, id.0, last.0])?;
        let (mut version, mut updated_at, mut is_changed) = (None, None, false);
        while let Some(row) = rows.next()? {
            is_changed = true;
            let Some(before) = row.get_ref(0)?.as_str_or_null()? else {
                // The entry created the record.
                values = None;
                continue;
            };
            let before: JsonObject = serde_json::from_str(before).map_err(damaged_text)?;
            if let Some(text) = before.get(CREATED_AT.name).and_then(Json::as_str) {
                created_at = text.parse().ok();
            }
            values = Some(former_values(resource, values, &before));
            (version, updated_at) = (row.get(1)?, row.get(2)?);
        }
        let values = values.filter(|_| is_changed);
        Ok(values.map(|values| Former { values, created_at, updated_at, version }))
    }
}

/// The ids in a member of the records in a JSON array.
fn members(json: &[u8], name: &str) -> Vec<i64> {
    let records: Vec<JsonObject> = serde_json::from_slice(json).unwrap_or_default();
    records.iter().filter_map(|record| record.get(name)?.as_i64()).collect()
}
