//! The merge of a file with what has changed since it was exported. A row with `updated_at` says
//! which version of its record the author of the file has seen.
//!
//! Example: the export has the phone 1. A colleague sets it to 2. If the file still has 1, its author
//! has not edited the cell, and 2 stays. If the file has 3, both have changed it: a fault. If the
//! file has 2, there is nothing to do.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::json;

use super::references::name_of;
use super::{CellFault, Place};
use crate::clock::Timestamp;
use crate::model::validation::{CUSTOM_PREFIX, is_empty, shorten};
use crate::model::{Field, Json, JsonObject, Kind, RecordId, Resource, UPDATED_AT, Value};
use crate::store::{Reading, Record, RecordVersion, StoreError};

/// The record as the author of a row has seen it.
#[derive(Debug)]
pub(super) struct Past {
    resource: &'static Resource,
    pub moment: Timestamp,
    /// The versions that began in the second `moment`, newest first, else the one of that moment. If
    /// entries of the change log are missing, the present one.
    seen: Vec<Vec<Value>>,
    /// Whether `seen` is not the present version for want of entries.
    pub is_known: bool,
    /// Whether the record has, or has had, any version.
    pub is_recorded: bool,
    /// When each field or `custom.NAME` got its present value, and from whom.
    changes: BTreeMap<String, String>,
    /// When the record was deleted, and by whom.
    pub deletion: Option<String>,
}

impl Past {
    pub(super) fn find(
        reading: &Reading<'_>,
        resource: &'static Resource,
        id: RecordId,
        moment: Timestamp,
    ) -> Result<Past, StoreError> {
        let (seen, changes) = (Vec::new(), BTreeMap::new());
        let (is_known, is_recorded, deletion) = (false, false, None);
        let mut past = Past { resource, moment, seen, is_known, is_recorded, changes, deletion };
        let mut newer: Option<RecordVersion> = None;
        reading.versions(resource, id, &mut |version| {
            past.is_recorded = true;
            if let Some(newer) = newer.as_ref().filter(|newer| newer.since > moment) {
                past.note_changes(newer, version);
            }
            if let Some(values) = &version.values
                && (version.since == moment || version.since < moment && past.seen.is_empty())
            {
                past.seen.push(values.clone());
            }
            newer = Some(version.clone());
            version.since >= moment
        })?;
        past.is_known = !past.seen.is_empty();
        Ok(past)
    }

    /// The past of a record for which entries are missing, or of which no cell was edited.
    pub(super) fn set_present(&mut self, record: &Record) {
        self.seen = vec![record.values.clone()];
    }

    fn note_changes(&mut self, newer: &RecordVersion, older: &RecordVersion) {
        let author = newer.author.as_ref().map(|author| format!(" ({author})"));
        let when = format!("{}{}", newer.since, author.unwrap_or_default());
        let (new, old) = match (&newer.values, &older.values) {
            (Some(new), Some(old)) => (new, old),
            (None, Some(_)) => {
                self.deletion.get_or_insert(when);
                return;
            }
            (_, None) => return,
        };
        for (name, _) in differences(self.resource, old, new) {
            self.changes.entry(name).or_insert_with(|| when.clone());
        }
    }

    /// The values of a field in the versions that the author may have seen.
    pub(super) fn seen_in(&self, field: &Field) -> impl Iterator<Item = &Value> {
        self.seen.iter().filter_map(|values| self.resource.value(values, field.name))
    }

    /// The cell, unless an export of that moment had it. Of `custom`, the members that were edited.
    /// `earlier` gets the names of the cells that only an earlier version of the second has.
    pub(super) fn edited(
        &self,
        field: &Field,
        cell: &Json,
        earlier: &mut Vec<String>,
    ) -> Option<Json> {
        let mut is_seen = |name: &str, is_same: &dyn Fn(&Value) -> bool| {
            let version = self.seen_in(field).position(is_same);
            earlier.extend(version.filter(|version| *version > 0).map(|_| name.to_owned()));
            version.is_some()
        };
        let (Kind::Custom, Json::Object(members)) = (field.kind, cell) else {
            let is_seen = is_seen(field.name, &|value| is_same(field, value, cell));
            return (!is_seen).then(|| cell.clone());
        };
        let mut edited = JsonObject::new();
        for (name, cell) in members {
            let is_same = |value: &Value| {
                matches!(value, Value::Custom(custom)
                if is_same_text(custom.get(name).map_or("", String::as_str), cell))
            };
            if !is_seen(&format!("{CUSTOM_PREFIX}{name}"), &is_same) {
                edited.insert(name.clone(), cell.clone());
            }
        }
        (!edited.is_empty()).then(|| edited.into())
    }

    /// The faults of edits of fields that others have changed to another value. `now` has the stored
    /// values, and `edited` has those after the edits.
    pub(super) fn conflicts(&self, now: &[Value], edited: &[Value]) -> Vec<CellFault> {
        let fault = |name: &str, message| (name.to_owned(), "changed_meanwhile", message);
        let changes = self.seen.first().map(|then| differences(self.resource, then, now));
        let changes = changes.unwrap_or_default();
        let mut faults = Vec::new();
        for (name, edit) in differences(self.resource, now, edited) {
            if !self.is_known {
                let message = format!(
                    "{name} was edited, but the change log no longer has the record as it was at \
                     {}; export again, or use --overwrite",
                    self.moment
                );
                return vec![fault(UPDATED_AT.name, message)];
            }
            let Some((_, change)) = changes.iter().find(|(changed, _)| *changed == name) else {
                continue;
            };
            let since =
                self.changes.get(&name).map_or(String::new(), |when| format!(" since {when}"));
            let [then, now, edited] = [&change.old, &change.new, &edit.new].map(shown);
            let message = format!(
                "{name} was {then} at the export, is {now}{since}, and {edited} in the file"
            );
            faults.push(fault(&name, message));
        }
        faults
    }

    /// How many fields that others have changed get another value.
    pub(super) fn count_set_back(&self, now: &[Value], edited: &[Value]) -> usize {
        let edits = differences(self.resource, now, edited);
        edits.iter().filter(|(name, _)| self.changes.contains_key(name)).count()
    }

    /// Why the row's record is no longer found by its value in `key`.
    pub(super) fn farewell(&self, key: &Field) -> String {
        let noun = self.resource.name;
        match (&self.deletion, self.changes.get(key.name)) {
            (Some(when), _) => format!("the {noun} was deleted at {when}"),
            (None, Some(when)) => format!("the {noun} has another {} since {when}", key.name),
            (None, None) => format!("the {noun} has another {} now", key.name),
        }
    }
}

/// A value for people.
pub(super) fn shown(value: &Json) -> String {
    match value {
        value if is_empty(value) => "empty".to_owned(),
        Json::String(text) => json!(shorten(text)).to_string(),
        value => value.to_string(),
    }
}

/// Whether reading an export of the value gives the cell. Spreadsheets save CR LF as LF.
pub(super) fn is_same(field: &Field, value: &Value, cell: &Json) -> bool {
    match (value, cell) {
        (Value::Null, cell) => is_empty(cell),
        (Value::Text(text), cell) => is_same_text(text, cell),
        (Value::Custom(custom), Json::Null) => custom.is_empty(),
        (value, cell) => field.check(cell).is_ok_and(|checked| checked == *value),
    }
}

pub(super) fn is_same_text(text: &str, cell: &Json) -> bool {
    let plain = |text: &str| text.replace("\r\n", "\n").trim().to_owned();
    match cell {
        Json::Null => text.trim().is_empty(),
        Json::String(cell) => plain(text) == plain(cell),
        _ => false,
    }
}

/// A record that the import changes, for the operator.
#[derive(Debug, Serialize)]
pub struct ChangedRecord {
    #[serde(flatten)]
    pub place: Place,
    pub id: RecordId,
    pub name: String,
    /// For each field or `custom.NAME` that changes.
    pub fields: BTreeMap<String, FieldChange>,
}

#[derive(Debug, Serialize)]
pub struct FieldChange {
    pub old: Json,
    pub new: Json,
}

/// The fields and the members of `custom` that differ, with their names.
fn differences(resource: &Resource, old: &[Value], new: &[Value]) -> Vec<(String, FieldChange)> {
    let mut fields = Vec::new();
    let mut add = |name: String, old: Json, new: Json| {
        if old != new {
            fields.push((name, FieldChange { old, new }));
        }
    };
    for (field, (old, new)) in resource.fields.iter().zip(old.iter().zip(new)) {
        match (old, new) {
            (Value::Custom(old), Value::Custom(new)) => {
                for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
                    let [old, new] = [old, new].map(|custom| json!(custom.get(name)));
                    add(format!("{CUSTOM_PREFIX}{name}"), old, new);
                }
            }
            (old, new) => add(field.name.to_owned(), json!(old), json!(new)),
        }
    }
    fields
}

impl ChangedRecord {
    pub(super) fn new(
        place: Place,
        resource: &Resource,
        record: &Record,
        values: &[Value],
    ) -> ChangedRecord {
        let fields = differences(resource, &record.values, values).into_iter().collect();
        ChangedRecord { place, id: record.id, name: name_of(resource, &record.values), fields }
    }

    /// One line for people: `line 41: customer 40 "Müller": phone "0351 1" → "0345 2"`.
    pub fn describe(&self, resource: &Resource) -> String {
        let name = match self.name.as_str() {
            "" => String::new(),
            name => format!(" {:?}", shorten(name)),
        };
        let change = |(name, FieldChange { old, new }): (&String, &FieldChange)| {
            format!("{name} {} → {}", shown(old), shown(new))
        };
        let fields: Vec<String> = self.fields.iter().map(change).collect();
        let (place, noun, id) = (self.place, resource.name, self.id.0);
        format!("{place}: {noun} {id}{name}: {}", fields.join(", "))
    }
}
