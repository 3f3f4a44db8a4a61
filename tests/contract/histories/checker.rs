//! Whether a history is linearizable: the search of Wing and Gong, with Lowe's memory of the
//! configurations that were seen.
//!
//! The search looks for an order of all operations. If an operation returned before another one was
//! called, it comes first. The model allows each answer in this order.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use uuid::Uuid;

use super::model::{Answer, Change, Fields, Operation, Outcome, Request, State};

/// An operation of a history. Times are numbers that rise with each event.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    pub called: u64,
    pub returned: u64,
    /// Operations with a rank take effect in its order. It saves the search what the model would
    /// reject later.
    pub rank: Option<i64>,
    pub operation: Operation,
}

/// The most configurations that are tried.
const MOST: usize = 200_000;

/// Why no order was found.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The longest order, and what could not come after it.
    NotLinearizable(String),
    /// More than [`MOST`] configurations would have to be tried.
    Undecided,
}

/// The operations that have taken effect, as bits, and the state that they give.
type Configuration = (Vec<u64>, State);

pub(crate) fn check(initial: State, history: &[Timed]) -> Result<(), Fault> {
    let start = (vec![0; history.len().div_ceil(64)], initial);
    // Their hashes: two with the same one are not to be expected.
    let (mut seen, hasher) = (HashSet::new(), RandomState::new());
    let mut longest = start.clone();
    let mut stack = vec![start];
    while let Some((done, state)) = stack.pop() {
        if count(&done) == history.len() {
            return Ok(());
        }
        let next = successors(&done, &state, history);
        if count(&done) > count(&longest.0) {
            longest = (done, state);
        }
        if seen.len() > MOST {
            return Err(Fault::Undecided);
        }
        // The first that was found is tried first.
        for configuration in next.into_iter().rev() {
            if seen.insert(hasher.hash_one(&configuration)) {
                stack.push(configuration);
            }
        }
    }
    let (done, state) = longest;
    let open: Vec<&Timed> = open(&done, history).map(|number| &history[number]).collect();
    Err(Fault::NotLinearizable(format!(
        "{} of {} operations have an order; none of these fits after them: \
         {open:?}\nin the state {state:?}",
        count(&done),
        history.len()
    )))
}

fn count(done: &[u64]) -> usize {
    done.iter().map(|bits| bits.count_ones() as usize).sum()
}

fn is_done(done: &[u64], number: usize) -> bool {
    done[number / 64] >> (number % 64) & 1 == 1
}

/// The operations that may come next: each was called before any other that is left has returned.
fn open<'a>(done: &'a [u64], history: &'a [Timed]) -> impl Iterator<Item = usize> + 'a {
    let left = move || (0..history.len()).filter(move |number| !is_done(done, *number));
    let first_return = left().map(|number| history[number].returned).min().unwrap_or(0);
    let lowest_rank = left().filter_map(|number| history[number].rank).min();
    left().filter(move |number| {
        let Timed { called, rank, .. } = history[*number];
        called < first_return && rank.is_none_or(|rank| Some(rank) == lowest_rank)
    })
}

fn successors(done: &[u64], state: &State, history: &[Timed]) -> Vec<Configuration> {
    let mut next = Vec::new();
    for number in open(done, history) {
        let mut with = done.to_vec();
        with[number / 64] |= 1 << (number % 64);
        let operation = &history[number].operation;
        let Some(after) = state.step(operation) else { continue };
        // A request that fits here and has no effect would have none at a later place either.
        if operation.answer != Answer::Done && after == *state {
            return vec![(with, after)];
        }
        next.push((with, after));
    }
    next
}

// Histories made by hand: the checker finds the ones that break a promise, and accepts the ones
// beside them that only look odd.

const BREMEN: u16 = 1;
const KIEL: u16 = 2;

/// The times of a request and of its answer, the request and the answer.
type Step = (u64, u64, Request, Answer);

fn fields(city: u16) -> Fields {
    [Some(city), Some(1)]
}

fn written(
    changes: Vec<Change>,
    outcomes: &[(u16, i64, u16, i64)],
    key: bool,
) -> (Request, Answer) {
    let outcome = |&(status, id, city, version): &(u16, i64, u16, i64)| Outcome {
        status,
        record: Some((id, fields(city))),
        version: Some(version),
    };
    let is_batch = changes.len() > 1;
    let request = Request::Write { changes, is_batch, key: key.then(Uuid::nil) };
    (
        request,
        Answer::Written { outcomes: outcomes.iter().map(outcome).collect(), is_replay: false },
    )
}

fn create(called: u64, returned: u64, id: i64, key: bool) -> Step {
    let change = Change::Post(fields(BREMEN));
    let (request, answer) = written(vec![change], &[(201, id, BREMEN, id + 9)], key);
    (called, returned, request, answer)
}

fn to_kiel(id: i64, if_match: Option<i64>) -> Change {
    Change::Put { id, fields: [Some(KIEL), None], if_match }
}

/// A change of the record 1 to Kiel.
fn put(called: u64, returned: u64, version: i64, if_match: Option<i64>) -> Step {
    let (request, answer) = written(vec![to_kiel(1, if_match)], &[(200, 1, KIEL, version)], false);
    (called, returned, request, answer)
}

fn get(called: u64, returned: u64, city: u16, version: i64) -> Step {
    let outcome = Outcome { status: 200, record: Some((1, fields(city))), version: Some(version) };
    (called, returned, Request::Get(1), Answer::Record(outcome))
}

fn command(called: u64, request: Request) -> Step {
    (called, called + 1, request, Answer::Done)
}

/// Checks the steps after these: the record 1 of version 10 and the record 2 of version 11 are
/// created in Bremen.
#[track_caller]
fn assert_order(expected: bool, steps: impl IntoIterator<Item = Step>) {
    let begin = [create(1, 2, 1, false), create(3, 4, 2, false)];
    let timed = |(number, (called, returned, request, answer)): (usize, Step)| Timed {
        called,
        returned,
        rank: None,
        operation: Operation {
            request,
            request_id: Uuid::from_u128(number as u128),
            answer,
            imported: Vec::new(),
        },
    };
    let history: Vec<_> = begin.into_iter().chain(steps).enumerate().map(timed).collect();
    assert_eq!(check(State::default(), &history).is_ok(), expected, "{history:#?}");
}

#[test]
fn a_lost_change_and_a_read_from_an_old_snapshot_are_found() {
    assert_order(false, [put(5, 6, 12, None), get(7, 8, BREMEN, 10)]);
    assert_order(true, [put(5, 6, 12, None), get(7, 8, KIEL, 12)]);
    assert_order(false, [put(5, 12, 12, None), get(6, 7, KIEL, 12), get(8, 9, BREMEN, 10)]);
    assert_order(true, [put(5, 12, 12, None), get(6, 7, BREMEN, 10), get(8, 9, KIEL, 12)]);
}

#[test]
fn a_lost_update_and_a_version_that_is_given_twice_are_found() {
    assert_order(false, [put(5, 8, 12, Some(10)), put(5, 8, 13, Some(10))]);
    assert_order(false, [put(5, 6, 11, None)]);
    assert_order(true, [put(5, 8, 12, Some(10))]);
}

#[test]
fn half_a_batch_and_a_key_that_takes_effect_twice_are_found() {
    let changes = vec![to_kiel(1, None), to_kiel(2, None)];
    let (request, answer) = written(changes, &[(200, 1, KIEL, 12), (200, 2, KIEL, 13)], false);
    let batch = (5, 12, request, answer);
    let list = |first, second| {
        let records = BTreeMap::from([(1, fields(first)), (2, fields(second))]);
        (6, 7, Request::List, Answer::List(records))
    };
    assert_order(true, [batch.clone(), list(KIEL, KIEL)]);
    assert_order(false, [batch, list(KIEL, BREMEN)]);
    assert_order(false, [create(5, 8, 3, true), create(5, 8, 4, true)]);
}

#[test]
fn a_restore_that_keeps_what_came_later_is_found() {
    let restored = [command(5, Request::Backup), put(7, 8, 12, None), command(9, Request::Restore)];
    assert_order(true, restored.clone().into_iter().chain([get(11, 12, BREMEN, 10)]));
    assert_order(false, restored.into_iter().chain([get(11, 12, KIEL, 12)]));
}
