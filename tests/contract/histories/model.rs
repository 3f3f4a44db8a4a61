//! The sequential model of a tenant: what each request does and answers where no two overlap.
//! Records are employees, of which two fields are changed. The first employees have a device each,
//! which goes along to another customer.

use std::collections::BTreeMap;

use uuid::Uuid;

/// The two fields, `phone` and `customer_id`. In a change, `None` leaves the field as it is.
pub(crate) type Fields = [Option<u16>; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub fields: Fields,
    pub version: Version,
}

/// The number of a change. `None`: nobody has seen it.
pub(crate) type Version = Option<i64>;

/// From here on are the versions that a batch gives before it fails. No `If-Match` names one.
const UNDONE: i64 = i64::MAX - 1_000;

/// An entry of the change log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub seq: Version,
    pub id: i64,
    pub action: Action,
    /// The fields before the change.
    pub before: Fields,
    /// `None`: a command made it.
    pub request_id: Option<Uuid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Action {
    Created,
    Updated,
    Deleted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    Post(Fields),
    Put {
        id: i64,
        fields: Fields,
        if_match: Option<i64>,
    },
    Delete {
        id: i64,
        if_match: Option<i64>,
    },
    /// A POST with `update_by=phone`.
    Upsert(Fields),
}

impl Change {
    /// The part of a change that an idempotency key compares: all but `If-Match`.
    fn identity(&self) -> Change {
        match *self {
            Change::Put { id, fields, .. } => Change::Put { id, fields, if_match: None },
            Change::Delete { id, .. } => Change::Delete { id, if_match: None },
            post @ (Change::Post(_) | Change::Upsert(_)) => post,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    /// Also through the employee's device: its customer is the employee's.
    Get(i64),
    List,
    Log,
    /// One change, or several as a batch.
    Write {
        changes: Vec<Change>,
        is_batch: bool,
        key: Option<Uuid>,
    },
    Import,
    Backup,
    Restore,
}

/// The result of one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outcome {
    pub status: u16,
    /// The record of the answer.
    pub record: Option<(i64, Fields)>,
    pub version: Version,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    /// 503: nothing was changed.
    Refused,
    Record(Outcome),
    List(BTreeMap<i64, Fields>),
    /// The entries, and the present fields of the records that they are about.
    Log(Vec<Entry>, BTreeMap<i64, Option<Fields>>),
    Written {
        outcomes: Vec<Outcome>,
        is_replay: bool,
    },
    /// The first change that failed.
    Failed {
        outcome: Outcome,
        number: usize,
    },
    Reused,
    Done,
}

/// A request, and all that the recorder found out about it.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub request: Request,
    pub request_id: Uuid,
    pub answer: Answer,
    /// For an import: the records that anybody has seen.
    pub imported: Vec<(i64, Fields, Version)>,
}

type Stored = BTreeMap<Uuid, (Vec<Change>, Vec<Outcome>)>;

type Backup = (BTreeMap<i64, Record>, Vec<Entry>, Stored);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    records: BTreeMap<i64, Record>,
    log: Vec<Entry>,
    /// The stored responses by their idempotency keys.
    stored: Stored,
    last_id: i64,
    last_version: i64,
    /// The employees up to this id have a device, and cannot be deleted.
    last_owner: i64,
    backup: Option<Box<Backup>>,
}

/// Whether two versions can be the same.
fn fits(a: Version, b: Version) -> bool {
    a.is_none() || b.is_none() || a == b
}

fn entry_fits(expected: &Entry, seen: &Entry) -> bool {
    let seq = if fits(expected.seq, seen.seq) { seen.seq } else { return false };
    Entry { seq, ..*expected } == *seen
}

impl Outcome {
    fn fits(&self, seen: &Outcome) -> bool {
        self.status == seen.status
            && self.record == seen.record
            && fits(self.version, seen.version)
            && self.version.is_none_or(|_| seen.version.is_some())
    }

    fn of(status: u16) -> Outcome {
        Outcome { status, record: None, version: None }
    }
}

impl State {
    pub(crate) fn with_owners(last_owner: i64) -> State {
        State { last_owner, ..State::default() }
    }

    /// The state after `operation`. `None` if its answer is wrong.
    pub(crate) fn step(&self, operation: &Operation) -> Option<State> {
        match (&operation.request, &operation.answer) {
            (_, Answer::Refused) => Some(self.clone()),
            (Request::Write { changes, is_batch, key }, seen) => {
                let (state, answer) = self.write(operation, changes, *is_batch, *key)?;
                answer_fits(&answer, seen).then_some(state)
            }
            (Request::Import, _) => self.import(operation),
            (Request::Backup, _) => {
                let backup = (self.records.clone(), self.log.clone(), self.stored.clone());
                Some(State { backup: Some(Box::new(backup)), ..self.clone() })
            }
            (Request::Restore, _) => self.restored(),
            (request, seen) => self.reads(request, seen).then(|| self.clone()),
        }
    }

    fn restored(&self) -> Option<State> {
        let (records, log, stored) = self.backup.as_deref()?.clone();
        Some(State { records, log, stored, ..self.clone() })
    }

    /// Whether a reading request may be answered so.
    fn reads(&self, request: &Request, seen: &Answer) -> bool {
        match (request, seen) {
            (Request::Get(id), Answer::Record(seen)) => {
                let expected = match self.records.get(id) {
                    Some(record) => self.outcome(200, *id, record),
                    None => Outcome::of(404),
                };
                expected.fits(seen)
            }
            (Request::List, Answer::List(seen)) => {
                let expected = self.records.iter().map(|(id, record)| (id, &record.fields));
                expected.eq(seen.iter())
            }
            (Request::Log, Answer::Log(entries, records)) => {
                let present = |id| self.records.get(id).map(|record| record.fields);
                self.log.len() == entries.len()
                    && self.log.iter().zip(entries).all(|(own, seen)| entry_fits(own, seen))
                    && records.iter().all(|(id, fields)| present(id) == *fields)
            }
            _ => false,
        }
    }

    fn outcome(&self, status: u16, id: i64, record: &Record) -> Outcome {
        Outcome { status, record: Some((id, record.fields)), version: record.version }
    }

    /// The answer and the state after a write. `None` where ids or versions are used again.
    fn write(
        &self,
        operation: &Operation,
        changes: &[Change],
        is_batch: bool,
        key: Option<Uuid>,
    ) -> Option<(State, Answer)> {
        let identity = changes.iter().map(Change::identity).collect();
        // `If-Match` of an operation stands in the body of a batch.
        let identity: Vec<Change> = if is_batch { changes.to_vec() } else { identity };
        if let Some((request, outcomes)) = key.and_then(|key| self.stored.get(&key)) {
            let answer = if *request == identity {
                Answer::Written { outcomes: outcomes.clone(), is_replay: true }
            } else {
                Answer::Reused
            };
            return Some((self.clone(), answer));
        }
        let mut state = self.clone();
        let mut outcomes = Vec::new();
        for (number, change) in changes.iter().enumerate() {
            let outcome = state.change(operation, change, number)?;
            if outcome.status >= 300 {
                // A 412 of a batch has no `ETag`.
                let version = outcome.version.filter(|_| !is_batch);
                let outcome = Outcome { version, ..outcome };
                return Some((self.clone(), Answer::Failed { outcome, number }));
            }
            outcomes.push(outcome);
        }
        if let Some(key) = key {
            state.stored.insert(key, (identity, outcomes.clone()));
        }
        Some((state, Answer::Written { outcomes, is_replay: false }))
    }

    /// Makes one change. `None` where its id or version is not new.
    fn change(&mut self, operation: &Operation, change: &Change, number: usize) -> Option<Outcome> {
        let seen = match &operation.answer {
            Answer::Written { outcomes, .. } => outcomes.get(number),
            _ => None,
        };
        let (id, if_match) = match change {
            Change::Post(fields) => {
                let seen = seen?;
                let (id, _) = seen.record?;
                self.create(id, *fields, seen.version, Some(operation.request_id))?;
                return Some(self.outcome(201, id, &self.records[&id]));
            }
            Change::Upsert(fields) => {
                let is_found = |record: &Record| record.fields[0] == fields[0];
                let records = self.records.iter().filter(|(_, record)| is_found(record));
                let change = match records.map(|(id, _)| *id).collect::<Vec<_>>()[..] {
                    [] => Change::Post(*fields),
                    [id] => Change::Put { id, fields: *fields, if_match: None },
                    _ => return Some(Outcome::of(409)),
                };
                return self.change(operation, &change, number);
            }
            Change::Put { id, if_match, .. } | Change::Delete { id, if_match } => (*id, *if_match),
        };
        let Some(record) = self.records.get(&id).copied() else { return Some(Outcome::of(404)) };
        if if_match.is_some_and(|version| !fits(record.version, Some(version))) {
            return Some(Outcome { version: record.version, ..Outcome::of(412) });
        }
        let Change::Put { fields, .. } = change else {
            if id <= self.last_owner {
                return Some(Outcome::of(409));
            }
            // The answer of a DELETE has no version.
            self.log(None, id, Action::Deleted, record.fields, operation.request_id)?;
            self.records.remove(&id);
            return Some(Outcome::of(204));
        };
        let is_changed = |n: usize| fields[n].is_some() && fields[n] != record.fields[n];
        let mut after = record;
        let mut before: Fields = [None, None];
        for n in (0..fields.len()).filter(|n| is_changed(*n)) {
            before[n] = record.fields[n];
            after.fields[n] = fields[n];
        }
        if after.fields != record.fields {
            let undone = Some(UNDONE + number as i64);
            after.version = seen.map_or(undone, |seen| seen.version);
            self.log(after.version, id, Action::Updated, before, operation.request_id)?;
        }
        self.records.insert(id, after);
        Some(self.outcome(200, id, &self.records[&id]))
    }

    /// `None` where the id or the version is not new.
    fn create(
        &mut self,
        id: i64,
        fields: Fields,
        version: Version,
        request_id: Option<Uuid>,
    ) -> Option<()> {
        if id <= self.last_id {
            return None;
        }
        self.last_id = id;
        self.records.insert(id, Record { fields, version });
        let before = [None, None];
        self.push(Entry { seq: version, id, action: Action::Created, before, request_id })
    }

    fn log(
        &mut self,
        seq: Version,
        id: i64,
        action: Action,
        before: Fields,
        request_id: Uuid,
    ) -> Option<()> {
        self.push(Entry { seq, id, action, before, request_id: Some(request_id) })
    }

    /// Adds an entry. Numbers rise, so none is given twice.
    fn push(&mut self, entry: Entry) -> Option<()> {
        if let Some(seq) = entry.seq {
            if seq <= self.last_version {
                return None;
            }
            self.last_version = seq;
        }
        self.log.push(entry);
        Some(())
    }

    fn import(&self, operation: &Operation) -> Option<State> {
        let mut state = self.clone();
        for (id, fields, version) in &operation.imported {
            state.create(*id, *fields, *version, None)?;
        }
        Some(state)
    }
}

fn answer_fits(expected: &Answer, seen: &Answer) -> bool {
    match (expected, seen) {
        (
            Answer::Written { outcomes, is_replay },
            Answer::Written { outcomes: seen, is_replay: was_replay },
        ) => {
            is_replay == was_replay
                && outcomes.len() == seen.len()
                && outcomes.iter().zip(seen).all(|(own, seen)| own.fits(seen))
        }
        (
            Answer::Failed { outcome, number },
            Answer::Failed { outcome: seen, number: seen_number },
        ) => number == seen_number && outcome.fits(seen),
        _ => expected == seen,
    }
}
