//! Histories made by hand: the checker finds the ones that break a promise, and accepts the ones
//! beside them that only look odd.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::checker::{Timed, check};
use super::model::{Answer, Change, Fields, Operation, Outcome, Request, State};

const BREMEN: u16 = 1;
const KIEL: u16 = 2;

/// The times of a request and of its answer, the request and the answer.
type Step = (u64, u64, Request, Option<Answer>);

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
    (called, returned, request, Some(answer))
}

fn to_kiel(id: i64, if_match: Option<i64>) -> Change {
    Change::Put { id, fields: [Some(KIEL), None], if_match }
}

/// A change of the record 1 to Kiel.
fn put(called: u64, returned: u64, version: i64, if_match: Option<i64>) -> Step {
    let (request, answer) = written(vec![to_kiel(1, if_match)], &[(200, 1, KIEL, version)], false);
    (called, returned, request, Some(answer))
}

fn get(called: u64, returned: u64, city: u16, version: i64) -> Step {
    let outcome = Outcome { status: 200, record: Some((1, fields(city))), version: Some(version) };
    (called, returned, Request::Get(1), Some(Answer::Record(outcome)))
}

fn command(called: u64, request: Request) -> Step {
    (called, called + 1, request, Some(Answer::Done))
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
        is_settled: answer.as_ref().is_some_and(|answer| *answer != Answer::Done),
        operation: Operation {
            request,
            request_id: Uuid::from_u128(number as u128),
            answer,
            entries: Vec::new(),
            imported: Vec::new(),
        },
    };
    let history: Vec<_> = begin.into_iter().chain(steps).enumerate().map(timed).collect();
    assert_eq!(check(State::default(), &history, State::step).is_ok(), expected, "{history:#?}");
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
    let batch = (5, 12, request, Some(answer));
    let list = |first, second| {
        let records = BTreeMap::from([(1, fields(first)), (2, fields(second))]);
        (6, 7, Request::List, Some(Answer::List(records)))
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
