//! Histories made by hand. The checker must find each history that breaks a promise. It must accept
//! the histories beside them that only look odd.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::checker::{Timed, check};
use crate::model::{Action, Answer, Change, Entry, Fields, Operation, Outcome, Request, State};

const BREMEN: u16 = 1;
const KIEL: u16 = 2;
const LUEBECK: u16 = 3;

/// The times of a request and of its answer, the request and the answer.
type Step = (u64, u64, Request, Option<Answer>);

fn has_order(steps: &[Step]) -> bool {
    let history: Vec<Timed<Operation>> = steps
        .iter()
        .enumerate()
        .map(|(number, (called, returned, request, answer))| Timed {
            called: *called,
            returned: *returned,
            rank: None,
            is_settled: answer.as_ref().is_some_and(|answer| *answer != Answer::Done),
            operation: Operation {
                request: request.clone(),
                request_id: Uuid::from_u128(number as u128),
                answer: answer.clone(),
                entries: Vec::new(),
                imported: Vec::new(),
            },
        })
        .collect();
    check(State::default(), &history, State::step).is_ok()
}

fn fields(city: u16) -> Fields {
    [Some(city), Some(1)]
}

fn outcome(status: u16, id: i64, city: u16, version: i64) -> Outcome {
    Outcome { status, record: Some((id, fields(city))), version: Some(version) }
}

fn done(outcome: Outcome) -> Option<Answer> {
    Some(Answer::Written { outcomes: vec![outcome], is_replay: false })
}

fn write(change: Change) -> Request {
    Request::Write { changes: vec![change], is_batch: false, key: None }
}

fn change(id: i64, city: u16, if_match: Option<i64>) -> Change {
    Change::Put { id, fields: [Some(city), None], if_match }
}

/// The record 1 in Bremen, of version 10, and the record 2, of version 11.
fn begin() -> Vec<Step> {
    let post = || write(Change::Post(fields(BREMEN)));
    vec![
        (1, 2, post(), done(outcome(201, 1, BREMEN, 10))),
        (3, 4, post(), done(outcome(201, 2, BREMEN, 11))),
    ]
}

/// A change of the record 1 to Kiel.
fn put(called: u64, returned: u64, version: i64) -> Step {
    let answer = done(outcome(200, 1, KIEL, version));
    (called, returned, write(change(1, KIEL, None)), answer)
}

fn get(called: u64, returned: u64, city: u16, version: i64) -> Step {
    let answer = Answer::Record(outcome(200, 1, city, version));
    (called, returned, Request::Get(1), Some(answer))
}

#[track_caller]
fn assert_order(expected: bool, steps: impl IntoIterator<Item = Step>) {
    let steps: Vec<Step> = begin().into_iter().chain(steps).collect();
    assert_eq!(has_order(&steps), expected, "{steps:#?}");
}

#[test]
fn an_answer_before_the_commit_is_found() {
    // The process was killed after the answer.
    assert_order(false, [put(5, 6, 12), get(7, 8, BREMEN, 10)]);
    assert_order(true, [put(5, 6, 12), get(7, 8, KIEL, 12)]);
}

#[test]
fn a_read_from_an_old_snapshot_is_found() {
    assert_order(false, [put(5, 8, 12), get(6, 7, KIEL, 12), get(9, 10, BREMEN, 10)]);
    assert_order(false, [put(5, 12, 12), get(6, 7, KIEL, 12), get(8, 9, BREMEN, 10)]);
    assert_order(true, [put(5, 12, 12), get(6, 7, BREMEN, 10), get(8, 9, KIEL, 12)]);
    let list = |city| {
        let records = BTreeMap::from([(1, fields(city)), (2, fields(BREMEN))]);
        (7, 8, Request::List, Some(Answer::List(records)))
    };
    assert_order(false, [put(5, 6, 12), list(BREMEN)]);
    assert_order(true, [put(5, 6, 12), list(KIEL)]);
}

#[test]
fn a_version_that_is_given_twice_is_found() {
    let other =
        |version| (5, 8, write(change(2, KIEL, None)), done(outcome(200, 2, KIEL, version)));
    assert_order(false, [put(5, 8, 12), other(12)]);
    assert_order(false, [put(5, 6, 11)]);
    assert_order(true, [put(5, 8, 12), other(13)]);
}

#[test]
fn a_lost_update_is_found() {
    let put = |city: u16, version| {
        let answer = done(outcome(200, 1, city, version));
        (5, 8, write(change(1, city, Some(10))), answer)
    };
    assert_order(false, [put(KIEL, 12), put(LUEBECK, 13)]);
    let refused = |version| {
        let outcome = Outcome { status: 412, record: None, version: Some(version) };
        let request = write(change(1, LUEBECK, Some(10)));
        (5, 8, request, Some(Answer::Failed { outcome, number: 0 }))
    };
    assert_order(true, [put(KIEL, 12), refused(12)]);
    assert_order(false, [put(KIEL, 12), refused(10)]);
}

#[test]
fn a_request_without_an_answer_has_taken_effect_or_not() {
    let key = Some(Uuid::nil());
    let lost =
        (5, 8, Request::Write { changes: vec![change(1, KIEL, None)], is_batch: false, key }, None);
    assert_order(true, [lost.clone(), get(9, 10, BREMEN, 10)]);
    // It has no entry in the change log, so it has not.
    assert_order(false, [lost, get(9, 10, KIEL, 12)]);
}

#[test]
fn half_a_batch_is_found() {
    let changes = vec![change(1, KIEL, None), change(2, KIEL, None)];
    let outcomes = vec![outcome(200, 1, KIEL, 12), outcome(200, 2, KIEL, 13)];
    let batch = (
        5,
        12,
        Request::Write { changes, is_batch: true, key: None },
        Some(Answer::Written { outcomes, is_replay: false }),
    );
    let list = |first, second| {
        let records = BTreeMap::from([(1, fields(first)), (2, fields(second))]);
        (6, 7, Request::List, Some(Answer::List(records)))
    };
    assert_order(true, [batch.clone(), list(BREMEN, BREMEN)]);
    assert_order(true, [batch.clone(), list(KIEL, KIEL)]);
    assert_order(false, [batch, list(KIEL, BREMEN)]);
}

#[test]
fn a_batch_that_overtakes_itself_fails_and_leaves_the_record() {
    let changes = vec![change(1, KIEL, None), change(1, LUEBECK, Some(10))];
    let request = Request::Write { changes, is_batch: true, key: None };
    let failed = |status| Outcome { status, record: None, version: Some(10) };
    let batch = |status| {
        let answer = Answer::Failed { outcome: failed(status), number: 1 };
        (5, 6, request.clone(), Some(answer))
    };
    assert_order(true, [batch(412), get(7, 8, BREMEN, 10)]);
    assert_order(false, [batch(412), get(7, 8, KIEL, 12)]);
    assert_order(false, [batch(404), get(7, 8, BREMEN, 10)]);
}

#[test]
fn a_key_that_takes_effect_twice_is_found() {
    let post = |id, is_replay| {
        let changes = vec![Change::Post(fields(KIEL))];
        let outcomes = vec![outcome(201, id, KIEL, id + 9)];
        let key = Some(Uuid::nil());
        (
            5,
            8,
            Request::Write { changes, is_batch: false, key },
            Some(Answer::Written { outcomes, is_replay }),
        )
    };
    assert_order(true, [post(3, true), post(3, false)]);
    assert_order(false, [post(3, false), post(4, false)]);
    assert_order(false, [post(3, true)]);
}

#[test]
fn a_change_log_that_does_not_fit_is_found() {
    let entry = |number: u128, seq, id, action, before| Entry {
        seq: Some(seq),
        id,
        action,
        before,
        request_id: Some(Uuid::from_u128(number)),
    };
    let created = |number: u128, seq, id| entry(number, seq, id, Action::Created, [None, None]);
    let updated = |seq| entry(2, seq, 1, Action::Updated, [Some(BREMEN), None]);
    let log =
        |entries: Vec<Entry>| (7, 8, Request::Log, Some(Answer::Log(entries, BTreeMap::new())));
    let two = [created(0, 10, 1), created(1, 11, 2)];
    let [first, second] = two;
    assert_order(true, [put(5, 6, 12), log(vec![first, second, updated(12)])]);
    assert_order(false, [put(5, 6, 12), log(two.to_vec())]);
    assert_order(false, [put(5, 6, 12), log(vec![first, second, updated(13)])]);
    assert_order(false, [put(5, 6, 12), log(vec![second, first, updated(12)])]);
}

#[test]
fn a_restore_that_keeps_what_came_later_is_found() {
    let command = |time, request| (time, time + 1, request, Some(Answer::Done));
    let restored = [command(5, Request::Backup), put(7, 8, 12), command(9, Request::Restore)];
    assert_order(true, restored.clone().into_iter().chain([get(11, 12, BREMEN, 10)]));
    assert_order(false, restored.clone().into_iter().chain([get(11, 12, KIEL, 12)]));
    // A version of the time between the backup and the restore is not used again.
    assert_order(false, restored.clone().into_iter().chain([put(11, 12, 12)]));
    assert_order(true, restored.into_iter().chain([put(11, 12, 13)]));
    // A restore directly behind its backup has an effect on what comes between.
    let commands = [(5, 9, Request::Backup), (6, 10, Request::Restore)];
    let commands = commands.map(|(from, to, request)| (from, to, request, Some(Answer::Done)));
    let between = [put(7, 8, 12), get(11, 12, BREMEN, 10)];
    assert_order(true, commands.into_iter().chain(between));
}
