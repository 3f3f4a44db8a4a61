//! The merge of a file with what has changed since it was exported. A row with `updated_at` says
//! which version of its record the author of the file has seen.
//!
//! Example: the export has the phone 1. A colleague sets it to 2. If the file still has 1, its author
//! has not edited the cell, and 2 stays. If the file has 3, both have changed it: a fault. If the
//! file has 2, there is nothing to do.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use super::Place;
use super::references::name_of;
use crate::clock::Timestamp;
use crate::model::validation::{CUSTOM_PREFIX, is_empty, shorten};
use crate::model::{Custom, Field, Json, JsonObject, Kind, RecordId, Resource, Value};
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

/// A fault of a column: its name and the message.
type Conflict = (String, String);

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
        for name in differences(self.resource, old, new).into_keys() {
            self.changes.entry(name).or_insert_with(|| when.clone());
        }
    }

    /// The values of a field in the versions that the author may have seen.
    pub(super) fn seen_in(&self, field: &Field) -> impl Iterator<Item = &Value> {
        self.seen.iter().filter_map(|values| self.resource.value(values, field.name))
    }

    /// Whether a cell has what an export of that moment had. Then it was not edited.
    pub(super) fn has(&self, field: &Field, cell: &Json) -> bool {
        self.seen_in(field).any(|value| is_same(field, value, cell))
    }

    /// The members of `custom` that were edited. Null is an edit of all of them.
    pub(super) fn edited_members(&self, field: &Field, cell: &Json) -> Option<Json> {
        let Json::Object(members) = cell else {
            return (!self.has(field, cell)).then(|| cell.clone());
        };
        let is_edited = |(name, cell): &(&String, &Json)| {
            let seen = |value: &Value| match value {
                Value::Custom(custom) => is_same_text(text_of(custom, name), cell),
                _ => false,
            };
            !self.seen_in(field).any(seen)
        };
        let edited: JsonObject =
            members.iter().filter(is_edited).map(|(n, c)| (n.clone(), c.clone())).collect();
        (!edited.is_empty()).then(|| edited.into())
    }

    /// The conflicts of an edited value with a change by others since.
    pub(super) fn conflicts(&self, field: &Field, edited: &Value, now: &Value) -> Vec<Conflict> {
        let Some(then) = self.seen_in(field).next() else { return Vec::new() };
        if field.kind != Kind::Custom {
            let conflict = (edited != now && then != now)
                .then(|| self.conflict(field.name, &json!(then), &json!(now), &json!(edited)));
            return conflict.into_iter().collect();
        }
        let none = Custom::new();
        let (Value::Custom(then), Value::Custom(now)) = (then, now) else { return Vec::new() };
        let edited_members = if let Value::Custom(members) = edited { members } else { &none };
        // Null removes all members.
        let names = if *edited == Value::Null { now.keys() } else { edited_members.keys() };
        let texts = |name| [then, now, edited_members].map(|custom| text_of(custom, name));
        names
            .map(|name| (name, texts(name)))
            .filter(|(_, [then, now, edited])| edited != now && then != now)
            .map(|(name, texts)| {
                let [then, now, edited] = texts.map(|text| json!(text));
                self.conflict(&format!("{CUSTOM_PREFIX}{name}"), &then, &now, &edited)
            })
            .collect()
    }

    fn conflict(&self, name: &str, then: &Json, now: &Json, edited: &Json) -> Conflict {
        let since = self.changes.get(name).map_or(String::new(), |when| format!(" since {when}"));
        let [then, now, edited] = [then, now, edited].map(shown);
        let message =
            format!("{name} was {then} at the export, is {now}{since}, and {edited} in the file");
        (name.to_owned(), message)
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

fn text_of<'c>(custom: &'c Custom, name: &str) -> &'c str {
    custom.get(name).map_or("", String::as_str)
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
        (Value::Custom(custom), Json::Object(members)) => {
            members.iter().all(|(name, cell)| is_same_text(text_of(custom, name), cell))
        }
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

/// The fields and the members of `custom` that differ, by their names.
fn differences(resource: &Resource, old: &[Value], new: &[Value]) -> BTreeMap<String, FieldChange> {
    let mut fields = BTreeMap::new();
    let mut add = |name: String, old: Json, new: Json| {
        if old != new {
            fields.insert(name, FieldChange { old, new });
        }
    };
    for (field, (old, new)) in resource.fields.iter().zip(old.iter().zip(new)) {
        match (old, new) {
            (Value::Custom(old), Value::Custom(new)) => {
                for name in old.keys().chain(new.keys()) {
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
        let fields = differences(resource, &record.values, values);
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
