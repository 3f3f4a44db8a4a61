//! Entries of the change log as JSON (contract section 12).

use rusqlite::Row;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Reading;
use super::encoding::damaged_text;
use crate::model::{KeyId, RecordId, Resource, Version};
use crate::store::error::DatabaseError;

/// The columns of an entry, in the order in which [`Entries::take`] reads them.
pub(super) const COLUMNS: &str = "seq, at, resource, record_id, action, fields, before, \
                                  by_key, by_name, by_prefix, request_id";

#[derive(Serialize)]
struct Entry<'a> {
    seq: Version,
    at: &'a str,
    resource: &'a str,
    id: RecordId,
    action: &'a str,
    fields: &'a RawValue,
    before: Option<&'a RawValue>,
    by: By<'a>,
    request_id: Option<Uuid>,
    record: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum By<'a> {
    Key { id: KeyId, name: &'a str, prefix: &'a str },
    Command { name: &'a str },
}

/// Writes entries as a JSON array.
pub(super) struct Entries<'a> {
    reading: &'a Reading<'a>,
    json: Vec<u8>,
}

impl<'a> Entries<'a> {
    pub(super) fn new(reading: &'a Reading<'a>) -> Entries<'a> {
        Entries { reading, json: vec![b'['] }
    }

    pub(super) fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let (resource, id) = (row.get_ref(2)?.as_str()?, row.get(3)?);
        let record = match Resource::find(resource) {
            Some(resource) => {
                self.reading.json(resource, id, &[]).map_err(|DatabaseError(error)| error)?
            }
            None => None,
        };
        let before = row.get_ref(6)?.as_str_or_null()?.map(stored_json).transpose()?;
        let name = row.get_ref(8)?.as_str()?;
        let by = match row.get(7)? {
            Some(id) => By::Key { id, name, prefix: row.get_ref(9)?.as_str()? },
            None => By::Command { name },
        };
        let entry = Entry {
            seq: row.get(0)?,
            at: row.get_ref(1)?.as_str()?,
            resource,
            id,
            action: row.get_ref(4)?.as_str()?,
            fields: stored_json(row.get_ref(5)?.as_str()?)?,
            before,
            by,
            request_id: row.get::<_, Option<[u8; 16]>>(10)?.map(Uuid::from_bytes),
            record: record.as_ref().map(|(json, _)| whole_json(json)).transpose()?,
        };
        if self.json.len() > 1 {
            self.json.push(b',');
        }
        serde_json::to_writer(&mut self.json, &entry).map_err(damaged_text)
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.json.push(b']');
        self.json
    }
}

/// JSON as it is in the file. In a damaged file it may be none.
fn stored_json(text: &str) -> rusqlite::Result<&RawValue> {
    serde_json::from_str(text).map_err(damaged_text)
}

fn whole_json(json: &[u8]) -> rusqlite::Result<&RawValue> {
    serde_json::from_slice(json).map_err(damaged_text)
}
