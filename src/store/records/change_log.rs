//! The change log: one entry for each change, which commits with it (contract section 12). The
//! number of an entry, `seq` in SQL, is also the version that the change gives to its record
//! (contract section 13).
//!
//! A cursor is a [`Position`]: the number of the last entry that the client has, and the lineage of
//! the change log. The lineage is 16 random bytes. Example without a lineage: a client has read up
//! to entry 120. The operator restores a backup that ends at entry 100, and others make 30 changes.
//! The client asks for entries after 120, gets 121 to 130, and never learns of the restore or of
//! the new entries 101 to 120. So a restore renews the lineage, and the client's cursor gets 410.
//!
//! A restore also raises the numbers at random by up to 2^40. Otherwise the restored file would use
//! the number 110 again. An `If-Match` with the lost version 110 of a record would then accept the
//! record's new version 110.
//!
//! The order of the entries is that of `seq` alone. `at` is the server's clock, which may have been
//! wrong. So an entry belongs to a moment if it, or an entry after it, has an `at` that is not
//! after the moment. Example: the clock shows 2099 for one change, and then 10:00 again. The entry
//! of 2099 belongs to 10:00, as the entry after it does.
//!
//! Old entries are removed. `changes_removed` keeps the number of the last removed entry of each
//! resource. Example: entries up to 50 are removed, and entry 50 was of a customer. A client with a
//! cursor at 45 has missed entry 50. The client gets 410 if its key may read customers.
//!
//! A page is read along an index from the position on, for each resource on its own. So its cost
//! depends neither on the length of the change log nor on entries of other resources.

use std::time::Duration;

use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, Row, params, params_from_iter};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::read::{MAX_PAGE, Reading, Record, damaged_text};
use crate::clock::Timestamp;
use crate::json_writer::JsonWriter;
use crate::model::{Json, KeyId, RecordId, Resource, Version};
use crate::store::error::Result;

/// How much later than the clock an entry may be dated, in seconds.
const MAX_AHEAD: i64 = 10 * 60;

/// Who makes a change, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeContext {
    /// The change is dated a little later if the change before it is.
    pub at: Timestamp,
    pub actor: Actor,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A request with this key.
    Key { key: KeyLabel, request_id: Uuid },
    /// A run of this command of the operator.
    Command { name: String, run: Uuid },
}

/// How events and the change log name an API key: as it is at the time of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLabel {
    pub id: KeyId,
    pub name: String,
    /// The first 8 characters.
    pub prefix: String,
}

/// The part of an entry that depends on the kind of change: the action and the fields that it sets.
/// If there was a record: its former values as JSON, its version and its `updated_at`.
pub(super) struct Entry {
    pub(super) action: &'static str,
    pub(super) fields: Vec<&'static str>,
    pub(super) before: Option<(String, Version, Option<Timestamp>)>,
}

/// Takes the number and the time of the next entry, and counts the entry. The caller must
/// [`append`] the entry in the same savepoint.
///
/// The time is that of `context`. But requests overtake each other, and NTP sets a clock back a
/// little. So if the last entry is dated up to [`MAX_AHEAD`] later, the next entry has its time.
pub(super) fn next_version(
    connection: &Connection,
    context: &ChangeContext,
) -> rusqlite::Result<(Version, Timestamp)> {
    let sql = "UPDATE changes_state SET last_seq = last_seq + 1
               RETURNING last_seq,
                 (SELECT at FROM changes ORDER BY seq DESC LIMIT 1)";
    let mut statement = connection.prepare_cached(sql)?;
    let (version, last): (i64, Option<Timestamp>) =
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let latest = Timestamp::from_unix(context.at.unix().saturating_add(MAX_AHEAD));
    let at = match last {
        Some(last) if last > latest => {
            connection.execute("UPDATE changes_state SET set_back = last_seq", [])?;
            context.at
        }
        Some(last) => last.max(context.at),
        None => context.at,
    };
    Ok((Version(version), at))
}

/// Adds the entry of a change. Its number is the version of `record`, and its time is
/// `updated_at`.
pub(super) fn append(
    connection: &Connection,
    context: &ChangeContext,
    resource: &Resource,
    record: &Record,
    Entry { action, fields, before }: &Entry,
) -> rusqlite::Result<()> {
    let (key, name, prefix, request) = match &context.actor {
        Actor::Key { key: KeyLabel { id, name, prefix }, request_id } => {
            (Some(id.0), name.as_str(), Some(prefix), Some(request_id.as_bytes()))
        }
        Actor::Command { name, run } => (None, name.as_str(), None, Some(run.as_bytes())),
    };
    let Record { version: Version(version), id: RecordId(id), updated_at: at, .. } = record;
    let fields = json!(fields).to_string();
    let (before, before_version, before_updated_at) = match before {
        Some((values, Version(version), updated_at)) => {
            (Some(values), Some(version), Some(updated_at))
        }
        None => (None, None, None),
    };
    connection
        .prepare_cached(
            "INSERT INTO changes (seq, at, resource, record_id, action, fields, before,
                                  before_version, before_updated_at,
                                  by_key, by_name, by_prefix, request_id)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            version,
            at,
            resource.plural,
            id,
            action,
            fields,
            before,
            before_version,
            before_updated_at,
            key,
            name,
            prefix,
            request
        ])
        .map(drop)
}

/// Removes the entries that are older than `keep`: the oldest first, and about `count` at most.
/// Returns how many were removed. Runs inside a transaction.
///
/// Entries that are dated after `now` do not count. They go with the entries behind them.
pub(crate) fn remove_old_entries(
    connection: &Connection,
    now: Timestamp,
    keep: Duration,
    count: u32,
) -> rusqlite::Result<usize> {
    let sql = "WITH front AS MATERIALIZED
                 (SELECT seq, at FROM changes WHERE at <= ?1 ORDER BY seq LIMIT ?2)
               SELECT seq, at FROM front WHERE seq < coalesce(
                 (SELECT min(seq) FROM front WHERE at >= ?3), (SELECT max(seq) + 1 FROM front))
               ORDER BY seq DESC LIMIT 1";
    let mut last = connection.prepare_cached(sql)?;
    let mut rows = last.query(params![now, count, now.before(keep)])?;
    let Some(row) = rows.next()? else { return Ok(0) };
    let (last, at): (i64, Timestamp) = (row.get(0)?, row.get(1)?);
    drop(rows);
    // The plus sign keeps SQLite from the index by resource, along which it would read all entries
    // that are kept, too.
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO changes_removed (resource, seq, at)
             SELECT resource, max(seq), min(at, ?2) FROM changes WHERE seq <= ?1
             GROUP BY +resource",
        )?
        .execute(params![last, at])?;
    connection.prepare_cached("DELETE FROM changes WHERE seq <= ?")?.execute([last])
}

/// Begins a new lineage of the change log in the main database. Its numbers begin above all numbers
/// of this change log and of the attached database `other`. The distance is random, so that two
/// restores of one backup use different numbers.
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

/// Selects the entries of the change log that meet all of these conditions, for commands.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The first and the last second, in the form of `at`, by the rule at the top of this file.
    pub since: Option<String>,
    pub until: Option<String>,
    pub key: Option<KeyId>,
    pub request: Option<Uuid>,
}

impl Selection {
    /// Whether there is no condition.
    pub fn is_everything(&self) -> bool {
        let Selection { since, until, key, request } = self;
        since.is_none() && until.is_none() && key.is_none() && request.is_none()
    }
}

/// The condition of a [`Selection`], with the parameters of [`Reading::selected`]. A client chooses
/// the id of its request. So the entries with an id are those of the key, or of the commands, that
/// used the id first.
pub(super) const IS_SELECTED: &str = "(seq BETWEEN ?1 AND ?2
    AND (?3 IS NULL OR by_key IS ?3)
    AND (?4 IS NULL OR request_id IS ?4 AND (by_key, by_prefix) IS
      (SELECT by_key, by_prefix FROM changes WHERE request_id IS ?4 ORDER BY seq LIMIT 1)))";

/// A condition on an entry, in contract section 12 a parameter of `/changes.php`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum EntryFilter {
    /// `at` is this second or a later one.
    AtFrom(String),
    /// `at` is this second or an earlier one.
    AtTo(String),
    Key(i64),
    /// The key had this name at the time of the change.
    KeyName(String),
    Request(Uuid),
    Action(String),
}

/// Which entries a page has.
#[derive(Clone, Debug, Default)]
pub struct ChangesQuery {
    /// The resources whose entries the reader may see.
    pub readable: Vec<&'static Resource>,
    /// If set, only the entries of this resource.
    pub resource: Option<&'static Resource>,
    /// If set, only the entries of this record of `resource`.
    pub record: Option<RecordId>,
    pub filters: Vec<EntryFilter>,
    pub selection: Option<Selection>,
    pub start: Start,
    /// The most entries of the page.
    pub limit: usize,
}

/// The beginning of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the oldest entry.
    #[default]
    Oldest,
    /// At the newest entry, backwards, for a command. The page has no limit of bytes, and
    /// [`ChangesPage::next`] has no meaning.
    Newest,
    /// After the newest entry: the page is empty, and a client begins to follow the changes here.
    Now,
    After(Position),
}

/// A position in the change log of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// A restore renews it.
    pub lineage: [u8; 16],
    /// The number of the last entry before the position.
    pub seq: Version,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangesPage {
    /// The entries as a JSON array.
    pub json: Vec<u8>,
    /// The beginning of the next page.
    pub next: Position,
    /// Whether further entries are there already.
    pub more: bool,
}

/// Who made a change, as JSON text.
const BY: &str = "iif(by_prefix IS NULL, json_object('kind', 'command', 'name', by_name),
    json_object('kind', 'key', 'id', by_key, 'name', by_name, 'prefix', by_prefix)) AS by";

/// Who made a change, as messages say it: `key 3 "office"`, `the command import`.
pub(super) const AUTHOR: &str = "iif(by_prefix IS NULL, 'the command ' || by_name,
    printf('key %s\"%s\"', coalesce(by_key || ' ', ''), by_name))";

/// The columns of an entry. `fields`, `before` and `by` are JSON text.
const ENTRY_COLUMNS: &str = "seq, at, resource, record_id, action, request_id,
    json(fields) AS fields, coalesce(json(before), 'null') AS before";

/// What one request, batch or command has changed.
#[derive(Debug, Serialize)]
pub struct Run {
    /// `None` for a command of a version before 1.0.0.
    pub request_id: Option<Uuid>,
    /// The time of the last entry.
    pub at: String,
    pub by: Json,
    /// Numbers of records by the plural of their resource.
    pub created: Json,
    pub changed: Json,
    pub deleted: Json,
}

impl Run {
    fn read(row: &Row<'_>) -> Result<Run> {
        let json = |column| -> Result<Json> {
            Ok(serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(damaged_text)?)
        };
        Ok(Run {
            request_id: row.get::<_, Option<[u8; 16]>>("request_id")?.map(Uuid::from_bytes),
            at: row.get("at")?,
            by: json("by")?,
            created: json("created")?,
            changed: json("changed")?,
            deleted: json("deleted")?,
        })
    }
}

impl Reading<'_> {
    /// One page of the change log. `None` if entries after the position are gone, or if the
    /// position is of another lineage or after the last entry.
    pub fn changes(&self, query: &ChangesQuery) -> Result<Option<ChangesPage>> {
        let sql = "SELECT lineage, last_seq FROM changes_state";
        let (lineage, last): ([u8; 16], Version) = self
            .connection()
            .prepare_cached(sql)?
            .query_row([], |row| Ok((row.get(0)?, Version(row.get(1)?))))?;
        let is_wanted = |resource: &&'static Resource| {
            query.start != Start::Now && query.resource.is_none_or(|only| only == *resource)
        };
        let resources: Vec<_> = query.readable.iter().copied().filter(is_wanted).collect();
        let after = match query.start {
            Start::Oldest | Start::Newest | Start::Now => None,
            Start::After(Position { lineage: cursor_lineage, seq }) => {
                let is_known = cursor_lineage == lineage && seq <= last;
                if !is_known || has_missed(self.connection(), &resources, seq)? {
                    return Ok(None);
                }
                Some(seq)
            }
        };
        let (sql, values) = self.select_entries(query, &resources, after.unwrap_or(Version(0)))?;
        let mut statement = self.connection().prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values.iter()))?;
        let (mut json, mut seq, mut count, mut more) = (JsonWriter::default(), after, 0, false);
        json.begin_array();
        while let Some(row) = rows.next()? {
            let is_full = json.written() >= MAX_PAGE && query.start != Start::Newest;
            if count == query.limit || is_full {
                more = true;
                break;
            }
            self.write_entry(&mut json, row)?;
            (count, seq) = (count + 1, Some(Version(row.get(0)?)));
        }
        json.end_array();
        // A filtered page that has reached the end leads to the end, so that the next one does not
        // look at the same entries again.
        let seq = match seq.filter(|_| more || query.filters.is_empty()) {
            Some(seq) => seq,
            None => last_readable(self.connection(), query)?,
        };
        Ok(Some(ChangesPage { json: json.take(), next: Position { lineage, seq }, more }))
    }

    /// The newest runs with an entry that the query selects, the newest first. Start and position
    /// have no meaning.
    pub fn runs(&self, query: &ChangesQuery) -> Result<Vec<Run>> {
        let (tests, values) = self.conditions(query, Version(0))?;
        let of_resource = match query.resource {
            Some(resource) => format!(" AND resource = '{}'", resource.plural),
            None => String::new(),
        };
        // All entries of an old command, which has no id, have one time.
        let sql = format!(
            "SELECT request_id, at, by, max(last),
               json_group_object(resource, created) FILTER (WHERE created > 0) AS created,
               json_group_object(resource, changed) FILTER (WHERE changed > 0) AS changed,
               json_group_object(resource, deleted) FILTER (WHERE deleted > 0) AS deleted
             FROM (
               SELECT json_array(hex(request_id), by_key, by_prefix, by_name,
                   iif(request_id IS NULL, at, '')) AS run,
                 max(seq) AS last, at, request_id, {BY}, resource,
                 count(DISTINCT record_id) FILTER (WHERE action = 'created') AS created,
                 count(DISTINCT record_id) FILTER (WHERE action = 'updated') AS changed,
                 count(DISTINCT record_id) FILTER (WHERE action = 'deleted') AS deleted
               FROM changes WHERE seq > ?5{tests}{of_resource} GROUP BY run, resource)
             GROUP BY run ORDER BY max(last) DESC LIMIT ?6 - 1"
        );
        let mut statement = self.connection().prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(values.iter()))?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            runs.push(Run::read(row)?);
        }
        Ok(runs)
    }

    /// The parameters of [`IS_SELECTED`]: the numbers of the first and of the last entry between
    /// `since` and `until`, the key and the request. The first entry comes after all entries that
    /// belong to the second before `since`.
    pub(super) fn selected(&self, selection: &Selection) -> Result<[SqlValue; 4]> {
        let Selection { since, until, key, request } = selection;
        let sql = "SELECT
            1 + coalesce((SELECT seq FROM changes WHERE at < ?1 ORDER BY seq DESC LIMIT 1), 0),
            iif(?2 IS NULL, (SELECT last_seq FROM changes_state), coalesce(
              (SELECT seq FROM changes WHERE at <= ?2 ORDER BY seq DESC LIMIT 1), 0))";
        let mut statement = self.connection().prepare(sql)?;
        let (first, last): (i64, i64) =
            statement.query_row([since, until], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let request = request.map(|id| id.as_bytes().to_vec());
        Ok([first.into(), last.into(), key.map(|key| key.0).into(), request.into()])
    }

    /// The conditions on an entry but its resource, and the values: four for [`IS_SELECTED`], then
    /// `after` and one more than the limit of the query.
    fn conditions(&self, query: &ChangesQuery, after: Version) -> Result<(String, Vec<SqlValue>)> {
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX).saturating_add(1);
        let mut values = match &query.selection {
            Some(selection) => self.selected(selection)?.to_vec(),
            None => vec![SqlValue::Null; 4],
        };
        values.extend([after.0.into(), limit.into()]);
        let mut tests = String::new();
        let mut test = |condition: &str, value: SqlValue| {
            values.push(value);
            tests.push_str(&format!(" AND {condition} ?{}", values.len()));
        };
        if let Some(RecordId(id)) = query.record {
            test("record_id =", id.into());
        }
        for filter in &query.filters {
            match filter {
                EntryFilter::AtFrom(at) => test("at >=", at.clone().into()),
                EntryFilter::AtTo(at) => test("at <=", at.clone().into()),
                EntryFilter::Key(id) => test("by_key =", (*id).into()),
                EntryFilter::KeyName(name) => {
                    test("by_prefix IS NOT NULL AND by_name =", name.clone().into());
                }
                EntryFilter::Request(id) => test("request_id =", id.as_bytes().to_vec().into()),
                EntryFilter::Action(action) => test("action =", action.clone().into()),
            }
        }
        if query.selection.is_some() {
            tests.push_str(&format!(" AND {IS_SELECTED}"));
        }
        Ok((tests, values))
    }

    /// The statement for a page of entries after the number `after`, with one entry more, which
    /// tells whether further pages follow. Each resource is read along its own part of the index.
    pub(super) fn select_entries(
        &self,
        query: &ChangesQuery,
        resources: &[&'static Resource],
        after: Version,
    ) -> Result<(String, Vec<SqlValue>)> {
        let (tests, mut values) = self.conditions(query, after)?;
        let direction = if query.start == Start::Newest { "DESC" } else { "ASC" };
        let parts: Vec<String> = resources
            .iter()
            .map(|resource| {
                format!(
                    "SELECT * FROM (SELECT seq FROM changes WHERE resource = '{}' AND seq > ?5{tests}
                     ORDER BY seq {direction} LIMIT ?6)",
                    resource.plural
                )
            })
            .collect();
        if parts.is_empty() {
            values.truncate(6);
        }
        let seqs = parts.join(" UNION ALL ");
        let sql = format!(
            "SELECT {ENTRY_COLUMNS}, {BY} FROM changes WHERE seq IN ({seqs}) ORDER BY seq {direction} LIMIT ?6"
        );
        Ok((sql, values))
    }

    /// How many entries the clock at `now` cannot have dated: it was wrong.
    pub fn count_changes_ahead(&self, now: Timestamp) -> Result<i64> {
        let latest = Timestamp::from_unix(now.unix().saturating_add(MAX_AHEAD));
        let sql = "SELECT count(*) FROM changes WHERE at > ?";
        Ok(self.connection().query_row(sql, [latest], |row| row.get(0))?)
    }

    fn write_entry(&self, json: &mut JsonWriter, row: &Row<'_>) -> Result<()> {
        json.begin_object();
        json.member("seq", &row.get::<_, i64>("seq")?);
        json.member("at", row.get_ref("at")?.as_str()?);
        let (resource, id) = (row.get_ref("resource")?.as_str()?, row.get("record_id")?);
        json.member("resource", resource);
        json.member("id", &id);
        json.member("action", row.get_ref("action")?.as_str()?);
        for name in ["fields", "before", "by"] {
            json.name(name);
            json.raw(row.get_ref(name)?.as_str()?.as_bytes());
        }
        let request_id = row.get::<_, Option<[u8; 16]>>("request_id")?;
        json.member("request_id", &request_id.map(Uuid::from_bytes));
        json.name("record");
        let record = match Resource::find(resource) {
            Some(resource) => self.json(resource, RecordId(id), &[])?,
            None => None,
        };
        match record {
            Some((record, _)) => json.raw(&record),
            None => json.value(&()),
        }
        json.end_object();
        Ok(())
    }
}

fn has_missed(
    connection: &Connection,
    resources: &[&'static Resource],
    seq: Version,
) -> rusqlite::Result<bool> {
    let mut missed = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM changes_removed WHERE resource = ? AND seq > ?)",
    )?;
    for resource in resources {
        if missed.query_row(params![resource.plural, seq.0], |row| row.get(0))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The number of the last entry, removed or not, of the resources that the reader may see. The
/// log's last number would tell the reader that records of other resources have changed.
fn last_readable(connection: &Connection, query: &ChangesQuery) -> rusqlite::Result<Version> {
    let mut last = connection.prepare_cached(
        "SELECT max(coalesce((SELECT max(seq) FROM changes WHERE resource = ?1), 0),
                    coalesce((SELECT seq FROM changes_removed WHERE resource = ?1), 0))",
    )?;
    let of = |resource: &&Resource| last.query_row([resource.plural], |row| row.get(0));
    let numbers: Vec<i64> = query.readable.iter().map(of).collect::<rusqlite::Result<_>>()?;
    Ok(Version(numbers.into_iter().max().unwrap_or(0)))
}
