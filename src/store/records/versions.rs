//! The versions that a record has had.

use rusqlite::params;

use super::read::{Reading, damaged_text};
use crate::clock::Timestamp;
use crate::model::{Custom, Field, Json, JsonObject, RecordId, Resource, Value};
use crate::store::error::Result;

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
    /// Calls `take` with the versions of a record, newest first, until it returns false. Entries of
    /// the change log that are removed end the versions early.
    pub fn versions(
        &self,
        resource: &Resource,
        id: RecordId,
        take: &mut dyn FnMut(&RecordVersion) -> bool,
    ) -> Result<()> {
        let present = self.record(resource, id)?;
        let sql = "SELECT at, before, before_updated_at, by_name, by_key, by_prefix IS NOT NULL,
                     (SELECT at FROM changes_removed WHERE resource = ?1)
                   FROM changes INDEXED BY changes_by_record
                   WHERE resource = ?1 AND record_id = ?2 ORDER BY seq DESC";
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut rows = statement.query(params![resource.plural, id.0])?;
        let mut oldest = present.as_ref().and_then(|record| record.updated_at);
        let mut values = present.map(|record| record.values);
        while let Some(row) = rows.next()? {
            let (since, name): (Timestamp, String) = (row.get(0)?, row.get(3)?);
            let author = match (row.get(4)?, row.get(5)?) {
                (Some::<i64>(key), _) => format!("key {key} \"{name}\""),
                (None, true) => format!("key \"{name}\""),
                (None, false) => format!("command {name}"),
            };
            let version = RecordVersion { values, since, author: Some(author) };
            if !take(&version) {
                return Ok(());
            }
            let Some(before) = row.get_ref(1)?.as_str_or_null()? else {
                // The entry created the record.
                (values, oldest) = (None, None);
                continue;
            };
            let before: JsonObject = serde_json::from_str(before).map_err(damaged_text)?;
            values = Some(former_values(resource, version.values, &before));
            // 1.0.0 did not write when the former version began.
            let removed: Option<Timestamp> = row.get(6)?;
            oldest = row.get::<_, Option<Timestamp>>(2)?.or(removed).or(Some(since));
        }
        if let Some(since) = oldest {
            take(&RecordVersion { values, since, author: None });
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

/// The values before a change. `values` are those after it, unless it deleted the record.
pub(super) fn former_values(
    resource: &Resource,
    values: Option<Vec<Value>>,
    before: &JsonObject,
) -> Vec<Value> {
    let defaults = || resource.fields.iter().map(Field::default_value).collect();
    let mut values = values.unwrap_or_else(defaults);
    for (field, value) in resource.fields.iter().zip(&mut values) {
        if let Some(former) = before.get(field.name) {
            *value = field.trimmed(stored_value(former));
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
