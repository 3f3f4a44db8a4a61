//! The records that natural keys name, such as `customer_number` for `customer_id`.

use std::borrow::Cow;

use rusqlite::params_from_iter;
use serde_json::json;

use super::write::CUSTOMER;
use super::{Change, Reading, Record};
use crate::model::{ALL, Field, ID, NaturalKey, RecordId, Resource, Value};
use crate::store::error::{Rejection, Result};

/// A natural key with the value that a client has sent.
pub type SentKey = (&'static NaturalKey, Value);

impl Reading<'_> {
    /// Finds the records that have all these values, as filters compare. Returns at most ten ids.
    pub fn find_all(
        &self,
        resource: &Resource,
        conditions: &[(&Field, &Value)],
    ) -> Result<Vec<RecordId>> {
        let tests: Vec<String> =
            conditions.iter().map(|(field, _)| format!("{} = ?", field.name)).collect();
        let (table, tests) = (resource.plural, tests.join(" AND "));
        let sql = format!("SELECT id FROM {table} WHERE {tests} LIMIT 10");
        let mut statement = self.connection().prepare_cached(&sql)?;
        let values = params_from_iter(conditions.iter().map(|(_, value)| value));
        let ids = statement.query_map(values, |row| row.get(0).map(RecordId))?;
        Ok(ids.collect::<rusqlite::Result<_>>()?)
    }

    /// Adds the ids of the records that the natural keys of a change name to its values. `stored` is
    /// the record that changes.
    ///
    /// A contradiction between the members of one reference is reported last: before it, a record
    /// that does not exist is.
    pub(super) fn add_references(
        &self,
        change: &Change,
        stored: Option<&Record>,
        values: &mut Cow<'_, [(&'static Field, Value)]>,
    ) -> Result<()> {
        let mut contradiction = None;
        // Customers come first, because the customer of a device narrows its employee.
        for target in ALL {
            let keys = change.references.iter().filter(|(key, _)| *key.target == *target);
            let keys: Vec<&SentKey> = keys.collect();
            let Some((NaturalKey { field, .. }, _)) = keys.first() else { continue };
            let value_of = |name| values.iter().find(|(known, _)| known.name == name);
            let sent = value_of(field.name).map(|(_, id)| id.clone());
            let customer = value_of(CUSTOMER).map(|(_, id)| id.clone());
            let kept = stored.and_then(|record| change.resource.value(&record.values, field.name));
            match self.find_reference(target, &keys, sent.as_ref(), kept, customer.as_ref())? {
                Some(RecordId(id)) if sent.is_none() => {
                    values.to_mut().push((*field, Value::Integer(id)));
                }
                Some(_) => {}
                None => contradiction = contradiction.or_else(|| Some(contradict(&keys, sent))),
            }
        }
        contradiction.map_or(Ok(()), |rejection| Err(rejection.into()))
    }

    /// The record that all keys of one reference name. The id that was `sent` is a further key. If
    /// several records remain, it is the one whose id the stored record has, or the one of the
    /// customer. `None` if no record has all keys.
    fn find_reference(
        &self,
        target: &'static Resource,
        keys: &[&SentKey],
        sent: Option<&Value>,
        kept: Option<&Value>,
        customer: Option<&Value>,
    ) -> Result<Option<RecordId>> {
        let mut conditions: Vec<(&Field, &Value)> = Vec::new();
        for (key, value) in keys {
            if self.find_all(target, &[(key.key, value)])?.is_empty() {
                return Err(Rejection::MissingNaturalKey(key, value.clone()).into());
            }
            conditions.push((key.key, value));
        }
        conditions.extend(sent.map(|id| (&ID, id)));
        let mut found = self.find_all(target, &conditions)?;
        let narrowing = [kept.map(|id| (&ID, id)), target.field(CUSTOMER).zip(customer)];
        for condition in narrowing.into_iter().flatten() {
            if found.len() > 1 {
                conditions.push(condition);
                let narrowed = self.find_all(target, &conditions)?;
                conditions.pop();
                found = if narrowed.is_empty() { found } else { narrowed };
            }
        }
        match (found.as_slice(), keys) {
            ([], _) | (_, []) => Ok(None),
            ([id], _) => Ok(Some(*id)),
            (_, [(key, value), ..]) => {
                Err(Rejection::AmbiguousReference(key, value.clone(), found).into())
            }
        }
    }
}

/// The rejection of members that name different records.
fn contradict(keys: &[&SentKey], sent: Option<Value>) -> Rejection {
    let mut members: Vec<String> =
        keys.iter().map(|(key, value)| format!("\"{}\" {}", key.name, json!(value))).collect();
    let mut noun = "record";
    if let Some((key, _)) = keys.first() {
        members.extend(sent.map(|id| format!("\"{}\" {}", key.field.name, json!(id))));
        noun = key.target.name;
    }
    let members = members.join(" and ");
    Rejection::Contradiction(format!("No {noun} has {members}. Send the one that is right."))
}
