//! Contract section 4: pages through hundreds of records while others come and go. `model.rs` tests
//! the orders of all resources.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::thread;

use serde_json::{Value, json};

use crate::support::contract::{Kind, resource_at};
use crate::support::{Api, TestServer};

const PATH: &str = "/hardware.php";
const LASTING: usize = 400;

/// A body whose values tie often, are null often, and come in no order.
fn body(n: usize) -> Value {
    let mut body = json!({});
    for (position, field) in resource_at(PATH).unwrap().fields.iter().enumerate() {
        let mixed = n.wrapping_mul(2_654_435_761).wrapping_add(position * 97) >> 7;
        body[field.name] = match field.kind {
            _ if field.name == "employee_id" => json!(mixed % 5 + 1),
            _ if !field.required && mixed.is_multiple_of(3) => Value::Null,
            Kind::Integer => json!(i64::try_from(mixed % 40).unwrap() - 20),
            Kind::Text(..) => {
                let start = ["", "ä", "Z", "😀", "a", "_", "%", "\u{ffff}"][mixed % 8];
                json!(format!("{start}x{}", mixed % 50))
            }
            _ => field.sample(mixed % 40),
        };
    }
    body
}

/// The lasting records, by id.
fn make_lasting(api: &Api) -> HashMap<i64, Value> {
    let made = Mutex::new(HashMap::new());
    thread::scope(|scope| {
        for thread in 0..8 {
            let (api, made) = (api.clone(), &made);
            scope.spawn(move || {
                for n in (thread..LASTING).step_by(8) {
                    let record = api.post(PATH, body(n)).created();
                    made.lock().unwrap().insert(record["id"].as_i64().unwrap(), record);
                }
            });
        }
    });
    made.into_inner().unwrap()
}

/// Inserts and deletes other records until it is stopped.
fn come_and_go(api: &Api, stop: &AtomicBool) {
    let mut passing = VecDeque::new();
    for n in LASTING.. {
        if stop.load(Memory::Relaxed) {
            return;
        }
        passing.push_back(api.create(PATH, body(n)));
        if passing.len() > 20 {
            api.delete(&format!("{PATH}?id={}", passing.pop_front().unwrap())).is(204);
        }
    }
}

/// Nulls first, false before true, numbers as numbers, text by code point.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Less,
        (_, Value::Null) => Ordering::Greater,
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => a.as_i64().cmp(&b.as_i64()),
        (Value::String(a), Value::String(b)) => a.chars().cmp(b.chars()),
        other => panic!("two kinds in one field: {other:?}"),
    }
}

/// Pages through the list in one order. Each lasting record must come in its place.
fn page_through(api: &Api, field: &str, descending: bool, lasting: &HashMap<i64, Value>) {
    let sort = format!("{}{field}", if descending { "-" } else { "" });
    let ids = api.ids(&format!("{}?sort={sort}&limit=75", PATH));
    let different = ids.iter().collect::<HashSet<_>>().len();
    assert_eq!(different, ids.len(), "sort={sort}: no record comes twice");
    let seen: Vec<i64> = ids.into_iter().filter(|id| lasting.contains_key(id)).collect();
    let mut expected: Vec<i64> = lasting.keys().copied().collect();
    expected.sort_by(|a, b| {
        let order = compare(&lasting[a][field], &lasting[b][field]).then(a.cmp(b));
        if descending { order.reverse() } else { order }
    });
    assert!(seen == expected, "sort={sort}: {} of {} lasting records", seen.len(), expected.len());
}

#[test]
fn records_come_exactly_once_in_every_order_while_others_come_and_go() {
    let (_server, api) = TestServer::with_unlimited_api();
    let customer = api.customer("Theirs");
    (0..5).for_each(|_| _ = api.employee(customer));
    let lasting = make_lasting(&api);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (other, stop) = (api.clone(), &stop);
        scope.spawn(move || come_and_go(&other, stop));
        // If an assertion fails, the other thread must end, too.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for field in resource_at(PATH).unwrap().members() {
                if !["notes", "custom"].contains(&field) {
                    page_through(&api, field, false, &lasting);
                    page_through(&api, field, true, &lasting);
                }
            }
        }));
        stop.store(true, Memory::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}
