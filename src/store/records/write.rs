//! A change of a record as data, and how it is made inside a write transaction.
//!
//! A change comes with values that passed the checks of their fields (model/validation.rs). Its
//! last checks need the transaction. For a request, [`Writing::apply`] makes them in this order:
//! the record is found, its version meets the precondition, the references lead to records, the
//! custom fields are not too many, the customer of a device is its employee's. An import
//! (transfer/row.rs) and an undo have no precondition, and report each fault in their own words, so
//! they call these checks one by one. All of them end in [`Writing::save`].
//!
//! While an employee has a device, the device belongs to the employee's customer (contract section
//! 2, `customer_id` of hardware). So a device changes its customer with its employee, and when its
//! employee moves to another customer.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Deref;

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension as _, ffi, params, params_from_iter};
use serde_json::{Map, json};

use super::change_log::{self, ChangeContext, Entry};
use super::read::{Reading, Record, Statements, damaged_text, search_text};
use crate::clock::Timestamp;
use crate::model::{
    ALL, CUSTOMER_ID, EMPLOYEE, EMPLOYEE_ID, Field, HARDWARE, ID, NaturalKey, RecordId, Resource,
    Value, Version,
};
use crate::store::error::{MAX_CHANGED, Rejection, Result};

/// A natural key with the value that a client has sent.
pub type SentKey = (&'static NaturalKey, Value);

/// A change of one record. Its values are valid on their own.
#[derive(Clone, Debug)]
pub struct Change {
    pub resource: &'static Resource,
    pub kind: ChangeKind,
    /// The fields that change, or that a new record does not leave at their defaults.
    pub values: Vec<(&'static Field, Value)>,
    /// The fields that get the id of another record: the record of the change with this number in
    /// the same mutation, counted from 0. Their values above are only placeholders.
    pub results: Vec<(&'static Field, usize)>,
    /// The natural keys that stand for references, in place of ids in the values.
    pub references: Vec<SentKey>,
    pub precondition: Precondition,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChangeKind {
    Create,
    Update(RecordId),
    /// Updates the record that has the change's value in this field. Without such a record, creates
    /// one.
    UpdateBy(&'static Field),
    Delete(RecordId),
}

/// The versions that a record may have to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Any version, and also no record.
    None,
    /// No record.
    Absent,
    /// Any version.
    Exists,
    /// The version with one of these entity tags.
    OneOf(Vec<String>),
}

/// A change that was made.
#[derive(Debug)]
pub struct Changed {
    pub resource: &'static Resource,
    pub id: RecordId,
    /// The record after the change. `None` if it was deleted.
    pub record: Option<Record>,
    pub is_new: bool,
}

/// A record as it is to be stored.
#[derive(Debug)]
pub struct Draft {
    pub resource: &'static Resource,
    pub target: Target,
    /// All values, in the order of the resource.
    pub values: Vec<Value>,
}

/// The record that a draft is for.
#[derive(Debug)]
pub enum Target {
    /// A new record, with the next id or with this id.
    New(Option<RecordId>),
    /// A deleted record, which gets its id and its `created_at` again.
    Deleted(RecordId, Option<Timestamp>),
    Stored(Record),
}

impl Change {
    /// A change that refers to no other change and is made to any version.
    pub fn new(
        resource: &'static Resource,
        kind: ChangeKind,
        values: Vec<(&'static Field, Value)>,
    ) -> Change {
        let (results, references) = (Vec::new(), Vec::new());
        Change { resource, kind, values, results, references, precondition: Precondition::None }
    }

    fn resolved(&self, earlier: &[Changed]) -> Cow<'_, [(&'static Field, Value)]> {
        let mut values = Cow::Borrowed(self.values.as_slice());
        for (field, number) in &self.results {
            let Some(changed) = earlier.get(*number) else { continue };
            for (known, value) in values.to_mut() {
                if known.name == field.name {
                    *value = Value::Integer(changed.id.0);
                }
            }
        }
        values
    }
}

impl Precondition {
    /// Checks the version of the found record. A weak tag meets no version (RFC 9110 section
    /// 13.1.1).
    fn check(&self, stored: Option<&Record>) -> Result<(), Rejection> {
        let mut has_only_weak_tags = false;
        match (self, stored) {
            (Precondition::None, _)
            | (Precondition::Absent, None)
            | (Precondition::Exists, Some(_)) => return Ok(()),
            (Precondition::Absent, Some(record)) => {
                return Err(Rejection::RecordExists(record.id, record.version));
            }
            (Precondition::OneOf(tags), Some(record)) if tags.contains(&record.version.etag()) => {
                return Ok(());
            }
            (Precondition::OneOf(tags), _) => {
                has_only_weak_tags = tags.iter().all(|tag| tag.starts_with("W/"));
            }
            (Precondition::Exists, None) => {}
        }
        let present = stored.map(|record| record.version);
        Err(Rejection::PreconditionFailed { present, has_only_weak_tags })
    }
}

impl Draft {
    /// Sets the `changes` in the stored values, or in the defaults of a new record.
    pub fn new(
        resource: &'static Resource,
        target: Target,
        changes: &[(&'static Field, Value)],
    ) -> Result<Draft, Rejection> {
        let mut values: Vec<Value> = match &target {
            Target::Stored(record) => record.values.clone(),
            _ => resource.fields.iter().map(Field::default_value).collect(),
        };
        for (field, change) in changes {
            let Some(value) = resource.value_mut(&mut values, field.name) else { continue };
            let changed = field.changed(value, change.clone());
            match changed.and_then(|new| field.check_added(value, &new).map(|()| new)) {
                Ok(changed) => *value = changed,
                Err(fault) => return Err(Rejection::InvalidFields(vec![fault])),
            }
        }
        Ok(Draft { resource, target, values })
    }

    /// Whether the draft changes nothing.
    pub(super) fn is_as_stored(&self) -> bool {
        matches!(&self.target, Target::Stored(record) if record.values == self.values)
    }
}

impl Reading<'_> {
    /// Gives the draft of a device with an employee the employee's customer. If the change names
    /// another customer, it is rejected. The stored customer does not count as named, so that a
    /// client may send a whole record back with another employee.
    pub fn set_owner(&self, draft: &mut Draft, names_customer: bool) -> Result<()> {
        if *draft.resource != HARDWARE {
            return Ok(());
        }
        let employee = HARDWARE.value(&draft.values, EMPLOYEE_ID);
        let Some(Value::Integer(employee)) = employee else { return Ok(()) };
        let sql = "SELECT customer_id FROM employees WHERE id = ?";
        let mut statement = self.connection().prepare_cached(sql)?;
        let customer = statement.query_row([employee], |row| row.get(0)).optional()?;
        // The check of the reference fails then.
        let Some(customer) = customer else { return Ok(()) };
        let stored = match &draft.target {
            Target::Stored(record) => HARDWARE.value(&record.values, CUSTOMER_ID),
            _ => None,
        };
        let sent = HARDWARE.value(&draft.values, CUSTOMER_ID);
        let owner = Value::Integer(customer);
        if names_customer && sent != stored && sent != Some(&owner) {
            let (employee, named) = (*employee, sent.cloned().unwrap_or(Value::Null));
            return Err(Rejection::OtherCustomer { employee, customer, named }.into());
        }
        if let Some(value) = HARDWARE.value_mut(&mut draft.values, CUSTOMER_ID) {
            *value = owner;
        }
        Ok(())
    }
}

/// A connection inside a write transaction, for the changes of one actor. It can read, too.
#[derive(Debug)]
pub struct Writing<'a> {
    reading: Reading<'a>,
    context: &'a ChangeContext,
    /// The records that were changed.
    changed: Cell<usize>,
}

impl<'a> Deref for Writing<'a> {
    type Target = Reading<'a>;

    fn deref(&self) -> &Reading<'a> {
        &self.reading
    }
}

impl<'a> Writing<'a> {
    pub(in crate::store) fn new(
        connection: &'a Connection,
        context: &'a ChangeContext,
    ) -> Writing<'a> {
        Writing { reading: Reading::new(connection), context, changed: Cell::default() }
    }

    /// How many records were changed, those of a cascade included.
    pub(in crate::store) fn changed(&self) -> usize {
        self.changed.get()
    }

    /// Makes the last checks and the change. `earlier` are the changes of the mutation before this
    /// one.
    pub fn apply(&self, change: &Change, earlier: &[Changed]) -> Result<Changed> {
        let resource = change.resource;
        let mut values = change.resolved(earlier);
        let stored = match change.kind {
            ChangeKind::Create => None,
            ChangeKind::Update(id) | ChangeKind::Delete(id) => {
                let record = self.record(resource, id)?;
                Some(record.ok_or(Rejection::NotFound(resource, id))?)
            }
            ChangeKind::UpdateBy(key) => {
                let sent = values.iter().find(|(field, _)| field.name == key.name);
                let value = sent.map_or(&Value::Null, |(_, value)| value);
                self.find_one(resource, key, value)?
            }
        };
        change.precondition.check(stored.as_ref())?;
        for (field, value) in values.iter() {
            self.check_reference(field, value)?;
        }
        self.add_references(change, stored.as_ref(), &mut values)?;
        let is_new = stored.is_none();
        let target = match (stored, change.kind) {
            (Some(record), ChangeKind::Delete(id)) => {
                self.delete(resource, record)?;
                return Ok(Changed { resource, id, record: None, is_new });
            }
            (Some(record), _) => Target::Stored(record),
            (None, _) => Target::New(None),
        };
        let mut draft = Draft::new(resource, target, &values)?;
        let names_customer = values.iter().any(|(field, _)| field.name == CUSTOMER_ID);
        self.set_owner(&mut draft, names_customer)?;
        self.check_move(&draft)?;
        let record = self.save(draft)?;
        Ok(Changed { resource, id: record.id, record: Some(record), is_new })
    }

    /// Stores a draft, whose checks have all passed. A stored record that has these values already
    /// stays as it is.
    pub fn save(&self, draft: Draft) -> Result<Record> {
        let Draft { resource, target, values } = draft;
        match target {
            Target::New(id) => self.insert(resource, id, None, values),
            Target::Deleted(id, created_at) => self.insert(resource, Some(id), created_at, values),
            Target::Stored(record) => self.update(resource, record, values),
        }
    }

    fn insert(
        &self,
        resource: &Resource,
        id: Option<RecordId>,
        created_at: Option<Timestamp>,
        values: Vec<Value>,
    ) -> Result<Record> {
        let (version, at) = self.next_version()?;
        let created_at = created_at.unwrap_or(at);
        let search = search_text(resource, &values);
        let wanted = id.map(|id| id.0);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(values.len() + 5);
        bound.push(&wanted);
        bound.extend(values.iter().map(|value| value as &dyn ToSql));
        bound.extend([&created_at as &dyn ToSql, &at, &search, &version.0]);
        let sql = &Statements::of(resource).insert;
        self.connection().prepare_cached(sql)?.execute(bound.as_slice())?;
        let id = RecordId(self.connection().last_insert_rowid());
        let record = Record { id, values, created_at, updated_at: Some(at), version };
        let mut fields = Vec::new();
        for (field, value) in resource.fields.iter().zip(&record.values) {
            if !value.is_absent() {
                fields.push(field.name);
            }
        }
        self.log(resource, &record, &Entry { action: "created", fields, before: None })?;
        Ok(record)
    }

    fn update(
        &self,
        resource: &Resource,
        mut record: Record,
        values: Vec<Value>,
    ) -> Result<Record> {
        let mut fields = Vec::new();
        let mut before = Map::new();
        for (field, (stored, value)) in
            resource.fields.iter().zip(record.values.iter().zip(&values))
        {
            if stored != value {
                fields.push(field.name);
                before.insert(field.name.to_owned(), json!(stored));
            }
        }
        if fields.is_empty() {
            return Ok(record);
        }
        let before = (json!(before).to_string(), record.version, record.updated_at);
        record.values = values;
        self.renew_version(&mut record)?;
        self.store(resource, &record, &fields)?;
        let entry = Entry { action: "updated", fields, before: Some(before) };
        self.log(resource, &record, &entry)?;
        if *resource == EMPLOYEE && entry.fields.contains(&CUSTOMER_ID) {
            self.move_devices(&record)?;
        }
        Ok(record)
    }

    fn store(&self, resource: &Resource, record: &Record, fields: &[&str]) -> rusqlite::Result<()> {
        let mut sql = format!("UPDATE {} SET ", resource.plural);
        let mut bound: Vec<&dyn ToSql> = Vec::with_capacity(fields.len() + 4);
        for (field, value) in resource.fields.iter().zip(&record.values) {
            if fields.contains(&field.name) {
                sql.push_str(&format!("{} = ?, ", field.name));
                bound.push(value);
            }
        }
        let search = search_text(resource, &record.values);
        sql.push_str("updated_at = ?, search = ?, version = ? WHERE id = ?");
        bound.extend([&record.updated_at as &dyn ToSql, &search, &record.version.0, &record.id.0]);
        self.connection().prepare_cached(&sql)?.execute(bound.as_slice()).map(drop)
    }

    /// Deletes a record to which no other record refers.
    pub(super) fn delete(&self, resource: &'static Resource, mut record: Record) -> Result<()> {
        let id = record.id;
        let values = String::from_utf8(record.json(resource)).map_err(damaged_text)?;
        let before = (values, record.version, record.updated_at);
        let sql = format!("DELETE FROM {} WHERE id = ?", resource.plural);
        match self.connection().prepare_cached(&sql)?.execute([id.0]) {
            Ok(_) => {}
            Err(rusqlite::Error::SqliteFailure(cause, message))
                if cause.extended_code == ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
            {
                let details = message.unwrap_or_else(|| cause.to_string());
                let counts = self.dependents(resource, id)?;
                return Err(Rejection::HasDependents { resource, details, counts }.into());
            }
            Err(error) => return Err(error.into()),
        }
        self.renew_version(&mut record)?;
        let entry = Entry { action: "deleted", fields: Vec::new(), before: Some(before) };
        Ok(self.log(resource, &record, &entry)?)
    }

    fn dependents(
        &self,
        target: &Resource,
        RecordId(id): RecordId,
    ) -> rusqlite::Result<Vec<(&'static Resource, i64)>> {
        let mut counts = Vec::new();
        for resource in ALL {
            for field in resource.fields.iter().filter(|field| field.references == Some(target)) {
                let sql =
                    format!("SELECT count(*) FROM {} WHERE {} = ?", resource.plural, field.name);
                let count = self.connection().query_row(&sql, [id], |row| row.get(0))?;
                if count > 0 {
                    counts.push((resource, count));
                }
            }
        }
        Ok(counts)
    }

    fn next_version(&self) -> rusqlite::Result<(Version, Timestamp)> {
        self.changed.set(self.changed() + 1);
        change_log::next_version(self.connection(), self.context)
    }

    fn renew_version(&self, record: &mut Record) -> rusqlite::Result<()> {
        let (version, at) = self.next_version()?;
        (record.version, record.updated_at) = (version, Some(at));
        Ok(())
    }

    fn log(&self, resource: &Resource, record: &Record, entry: &Entry) -> rusqlite::Result<()> {
        change_log::append(self.connection(), self.context, resource, record, entry)
    }

    /// Rejects the move of an employee with so many devices that the request would change more than
    /// [`MAX_CHANGED`] records.
    fn check_move(&self, draft: &Draft) -> Result<()> {
        let Target::Stored(record) = &draft.target else { return Ok(()) };
        let customer = |values| EMPLOYEE.value(values, CUSTOMER_ID);
        if *draft.resource != EMPLOYEE || customer(&record.values) == customer(&draft.values) {
            return Ok(());
        }
        let sql = "SELECT count(*) FROM hardware WHERE employee_id = ?";
        let mut statement = self.connection().prepare_cached(sql)?;
        let devices: i64 = statement.query_row([record.id.0], |row| row.get(0))?;
        let changed = i64::try_from(self.changed()).unwrap_or(i64::MAX);
        if changed.saturating_add(1 + devices) > MAX_CHANGED {
            return Err(Rejection::TooManyDevices { employee: record.id, devices }.into());
        }
        Ok(())
    }

    /// Gives the devices of an employee the employee's new customer. Each gets an entry of its own,
    /// after the entry of the employee and like that one.
    ///
    /// One statement changes all devices: a statement for each would save the changed pages for the
    /// savepoint of the mutation again and again.
    fn move_devices(&self, employee: &Record) -> Result<()> {
        let Record { id, version, updated_at, values, .. } = employee;
        let customer = EMPLOYEE.value(values, CUSTOMER_ID);
        let entries = "INSERT INTO changes (seq, at, resource, record_id, action, fields, before,
                                            before_version, before_updated_at,
                                            by_key, by_name, by_prefix, request_id)
             SELECT own.seq + row_number() OVER (ORDER BY hardware.id), own.at, 'hardware',
               hardware.id, 'updated', json_array('customer_id'),
               json_object('customer_id', customer_id), hardware.version, hardware.updated_at,
               own.by_key, own.by_name, own.by_prefix, own.request_id
             FROM hardware, changes AS own WHERE employee_id = ? AND own.seq = ?";
        let devices = self.connection().prepare_cached(entries)?.execute([id.0, version.0])?;
        self.changed.set(self.changed() + devices);
        // `changes()` is the number of these entries.
        let state = "UPDATE changes_state SET last_seq = last_seq + changes()";
        self.connection().prepare_cached(state)?.execute([])?;
        let devices = "UPDATE hardware SET customer_id = ?, updated_at = ?, version =
               (SELECT max(seq) FROM changes WHERE resource = 'hardware' AND record_id = hardware.id)
             WHERE employee_id = ?";
        let mut statement = self.connection().prepare_cached(devices)?;
        statement.execute(params![customer, updated_at, id.0])?;
        Ok(())
    }
}

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

    /// Adds the ids of the records that the natural keys of a change name to its values. `stored`
    /// is the record that changes.
    ///
    /// A contradiction between the members of one reference is reported last: before it, a record
    /// that does not exist is.
    fn add_references(
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
            let Some((first, value)) = keys.first() else { continue };
            let field = first.field;
            let value_of = |name| values.iter().find(|(known, _)| known.name == name);
            let sent = value_of(field.name).map(|(_, id)| (&ID, id));
            let customer = target.field(CUSTOMER_ID).zip(value_of(CUSTOMER_ID).map(|(_, id)| id));
            let kept = stored.and_then(|record| change.resource.value(&record.values, field.name));
            let mut terms: Vec<_> = keys.iter().map(|(key, value)| (key.key, value)).collect();
            terms.extend(sent);
            let narrowing = [customer, kept.map(|id| (&ID, id))];
            match find_referred(&terms, narrowing, |terms| self.find_all(target, terms))? {
                Ok(RecordId(id)) if sent.is_none() => {
                    values.to_mut().push((field, Value::Integer(id)));
                }
                Ok(_) => {}
                Err(ReferenceFault::Ambiguous(ids)) => {
                    return Err(Rejection::AmbiguousReference(first, value.clone(), ids).into());
                }
                Err(ReferenceFault::Missing(index)) if let Some((key, value)) = keys.get(index) => {
                    return Err(Rejection::MissingNaturalKey(key, value.clone()).into());
                }
                // Also a sent id that no record has: its own check comes later.
                Err(_) => {
                    let sent = sent.map(|(_, id)| id);
                    contradiction = contradiction.or_else(|| Some(contradict(&keys, sent)));
                }
            }
        }
        contradiction.map_or(Ok(()), |rejection| Err(rejection.into()))
    }
}

/// Why several terms do not name one record.
pub enum ReferenceFault {
    /// No record has the term at this index.
    Missing(usize),
    /// Each term has a record, but no record has all terms up to this index.
    Contradiction(usize),
    /// At most ten of the records that have all terms.
    Ambiguous(Vec<RecordId>),
}

/// Finds the record that has all `terms`. If several have them, those that also have a term of
/// `narrowing` count, if there are any. `find` returns at most ten records.
pub fn find_referred<T: Copy>(
    terms: &[T],
    narrowing: [Option<T>; 2],
    mut find: impl FnMut(&[T]) -> Result<Vec<RecordId>>,
) -> Result<Result<RecordId, ReferenceFault>> {
    let mut found = Vec::new();
    for (index, term) in terms.iter().enumerate() {
        let with_term = find(std::slice::from_ref(term))?;
        if with_term.is_empty() {
            return Ok(Err(ReferenceFault::Missing(index)));
        }
        if index == 0 {
            found = with_term;
        }
    }
    for index in 1..terms.len() {
        found = find(terms.get(..=index).unwrap_or(terms))?;
        if found.is_empty() {
            return Ok(Err(ReferenceFault::Contradiction(index)));
        }
    }
    let mut terms = terms.to_vec();
    for term in narrowing.into_iter().flatten() {
        if found.len() > 1 {
            terms.push(term);
            let narrowed = find(&terms)?;
            if narrowed.is_empty() {
                terms.pop();
            } else {
                found = narrowed;
            }
        }
    }
    Ok(match *found {
        [id] => Ok(id),
        _ => Err(ReferenceFault::Ambiguous(found)),
    })
}

/// The rejection of members that name different records.
fn contradict(keys: &[&SentKey], sent: Option<&Value>) -> Rejection {
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
