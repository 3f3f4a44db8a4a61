//! The requests of clients and the operator, with their times and answers. They say what a disk
//! must hold after a power loss.

use std::collections::BTreeMap;

use serde_json::Value;

/// A value for each name. For a tenant: its records by resource and label. For the registry:
/// tenants, keys, passwords.
pub(crate) type State = BTreeMap<String, Value>;

/// The names that a change concerns, with their new values. `None`: the name is removed.
pub(crate) type Effect = Vec<(String, Option<Value>)>;

/// A request with an idempotency key, which can be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub method: &'static str,
    pub target: String,
    pub body: Option<Value>,
    pub idempotency_key: String,
    /// Status and body, if it succeeded.
    pub answer: Option<(u16, Vec<u8>)>,
}

/// One change, by a request or a command.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub what: String,
    /// The moment before it was sent.
    pub started: usize,
    /// The moment at which success was answered. `None`: it failed.
    pub acknowledged: Option<usize>,
    pub effect: Effect,
    pub request: Option<Request>,
}

/// The changes of one client, one after the other. Nobody else changes the same names.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub changes: Vec<Change>,
}

/// A state that a disk may hold.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub state: State,
    /// The number of the change that was not acknowledged and has taken effect.
    pub unacknowledged: Option<usize>,
}

impl History {
    /// The number of the last change that was acknowledged at `moment`.
    pub(crate) fn last_acknowledged(&self, moment: usize) -> Option<usize> {
        self.changes.iter().rposition(|change| change.acknowledged.is_some_and(|at| at <= moment))
    }

    /// The changes that were started at `moment`, but not acknowledged.
    pub(crate) fn unacknowledged(&self, moment: usize) -> Vec<usize> {
        let first = self.last_acknowledged(moment).map_or(0, |last| last + 1);
        (first..self.changes.len())
            .filter(|number| self.changes[*number].started < moment)
            .collect()
    }

    /// The states that a disk may hold at `moment`: what was acknowledged; also one of the changes
    /// that were not.
    pub(crate) fn candidates(&self, moment: usize) -> Vec<Candidate> {
        let state = self.state(self.last_acknowledged(moment));
        let mut candidates = Vec::new();
        for number in self.unacknowledged(moment) {
            let mut state = state.clone();
            self.changes[number].apply_to(&mut state);
            candidates.push(Candidate { state, unacknowledged: Some(number) });
        }
        candidates.insert(0, Candidate { state, unacknowledged: None });
        candidates
    }

    /// The state after the change `last`. Earlier changes that failed have no effect.
    pub(crate) fn state(&self, last: Option<usize>) -> State {
        let mut state = State::new();
        let count = last.map_or(0, |last| last + 1);
        for change in self.changes[..count].iter().filter(|change| change.acknowledged.is_some()) {
            change.apply_to(&mut state);
        }
        state
    }

    /// Adds a change that a command made.
    pub(crate) fn add(
        &mut self,
        what: impl Into<String>,
        started: usize,
        acknowledged: Option<usize>,
        effect: Effect,
    ) {
        self.changes.push(Change {
            what: what.into(),
            started,
            acknowledged,
            effect,
            request: None,
        });
    }

    /// A restore brought the state `state`.
    pub(crate) fn restored(&mut self, started: usize, acknowledged: usize, state: &State) {
        let effect = difference(&self.end(), state);
        self.add("restore", started, Some(acknowledged), effect);
    }

    /// The state after all that was acknowledged.
    pub(crate) fn end(&self) -> State {
        self.state(self.changes.len().checked_sub(1))
    }
}

impl Change {
    pub(crate) fn apply_to(&self, state: &mut State) {
        for (name, value) in &self.effect {
            match value {
                Some(value) => state.insert(name.clone(), value.clone()),
                None => state.remove(name),
            };
        }
    }
}

/// The changes that turn the state `from` into the state `to`.
pub(crate) fn difference(from: &State, to: &State) -> Effect {
    let gone = from.keys().filter(|name| !to.contains_key(*name)).map(|name| (name.clone(), None));
    gone.chain(to.iter().map(|(name, value)| (name.clone(), Some(value.clone())))).collect()
}

/// The first difference between the found state and the expected state, if any. Of a record only
/// the members that are expected are compared: a request that was not answered says nothing of the
/// others.
pub(crate) fn mismatch(found: &State, expected: &State) -> Option<String> {
    if let Some((name, value)) = found.iter().find(|(name, _)| !expected.contains_key(*name)) {
        return Some(format!("{name} should not be there: {value}"));
    }
    expected.iter().find_map(|(name, expected)| match found.get(name) {
        None => Some(format!("{name} is lost")),
        Some(found) if !fits(found, expected) => {
            Some(format!("{name} is {found} and should be {expected}"))
        }
        Some(_) => None,
    })
}

fn fits(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(name, value)| found.get(name) == Some(value))
        }
        _ => found == expected,
    }
}

/// The same state without what a repeated request makes anew: a reference may be to a record of the
/// same batch.
pub(crate) fn without_stamps(mut state: State) -> State {
    for value in state.values_mut() {
        if let Some(members) = value.as_object_mut() {
            for member in ["id", "customer_id", "employee_id", "created_at", "updated_at", "etag"] {
                members.remove(member);
            }
        }
    }
    state
}
