//! Contract section 4: pages through hundreds of records while others come and go.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use serde_json::{Value, json};

use crate::support::contract::{CUSTOMERS, EMPLOYEES, HARDWARE, Kind, Resource};
use crate::support::{Api, TestServer};

const LASTING: usize = 400;

/// A body whose values tie often, are null often, and come in no order.
fn body(resource: &Resource, n: usize) -> Value {
    let mut body = json!({});
    for (position, field) in resource.fields.iter().enumerate() {
        let mixed = n.wrapping_mul(2_654_435_761).wrapping_add(position * 97) >> 7;
        let refers = resource.reference.is_some_and(|(name, ..)| name == field.name);
        let value = match field.kind {
            _ if refers && (field.required || !mixed.is_multiple_of(3)) => json!(mixed % 5 + 1),
            _ if !field.required && mixed.is_multiple_of(3) => Value::Null,
            Kind::Integer if !refers => json!(i64::try_from(mixed % 40).unwrap() - 20),
            Kind::Text(min, max) if min != max => {
                json!(
                    ["", "ä", "Z", "😀", "a", "_", "%", "\u{ffff}"][mixed % 8].to_owned()
                        + &format!("x{}", mixed % 50)
                )
            }
            _ => field.sample(mixed % 40),
        };
        if !(refers && value.is_null()) {
            body[field.name] = value;
        }
    }
    body
}

/// Makes what a resource refers to: five customers, and five employees.
fn make_referred(api: &Api, resource: &Resource) {
    if resource.plural == "customers" {
        return;
    }
    for n in 1..=5 {
        let customer = api.customer(&format!("Referred {n}"));
        if resource.plural == "hardware" {
            api.employee(customer);
        }
    }
}

/// The lasting records, by id.
fn make_lasting(api: &Api, resource: &'static Resource) -> HashMap<i64, Value> {
    let made = std::sync::Mutex::new(HashMap::new());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (api, made) = (api.clone(), &made);
            scope.spawn(move || {
                for n in (thread..LASTING).step_by(8) {
                    let record = api.post(resource.path, body(resource, n)).created();
                    made.lock().unwrap().insert(record["id"].as_i64().unwrap(), record);
                }
            });
        }
    });
    made.into_inner().unwrap()
}

/// Inserts and deletes other records until it is stopped.
fn come_and_go(api: &Api, resource: &Resource, stop: &AtomicBool) {
    let mut passing = std::collections::VecDeque::new();
    for n in LASTING.. {
        if stop.load(Memory::Relaxed) {
            return;
        }
        passing.push_back(api.create(resource.path, body(resource, n)));
        if passing.len() > 20 {
            let id = passing.pop_front().unwrap();
            api.delete(&resource.at(id)).is(204);
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
fn page_through(
    api: &Api,
    resource: &Resource,
    field: &str,
    descending: bool,
    lasting: &HashMap<i64, Value>,
) {
    let sort = format!("{}{field}", if descending { "-" } else { "" });
    let records = api.all(&format!("{}?sort={sort}&limit=75", resource.path));
    let mut times: BTreeMap<i64, usize> = BTreeMap::new();
    for record in &records {
        *times.entry(record["id"].as_i64().unwrap()).or_default() += 1;
    }
    assert!(times.values().all(|times| *times == 1), "sort={sort}: no record comes twice");
    let seen: Vec<i64> = records
        .iter()
        .map(|record| record["id"].as_i64().unwrap())
        .filter(|id| lasting.contains_key(id))
        .collect();
    let mut expected: Vec<i64> = lasting.keys().copied().collect();
    expected.sort_by(|a, b| {
        let order = compare(&lasting[a][field], &lasting[b][field]).then(a.cmp(b));
        if descending { order.reverse() } else { order }
    });
    assert!(
        seen == expected,
        "sort={sort}: {} of {} lasting records, or in another order",
        seen.len(),
        expected.len()
    );
}

fn pages_are_whole_in_every_order(resource: &'static Resource) {
    let (_server, api) = TestServer::with_unlimited_api();
    make_referred(&api, resource);
    let lasting = make_lasting(&api, resource);
    assert_eq!(lasting.len(), LASTING);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (other, stop) = (api.clone(), &stop);
        scope.spawn(move || come_and_go(&other, resource, stop));
        // If an assertion fails, the other thread must end, too.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for field in
                resource.members().into_iter().filter(|name| !["notes", "custom"].contains(name))
            {
                for descending in [false, true] {
                    page_through(&api, resource, field, descending, &lasting);
                }
            }
        }));
        stop.store(true, Memory::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn customers_come_exactly_once_in_every_order_while_others_come_and_go() {
    pages_are_whole_in_every_order(&CUSTOMERS);
}

#[test]
fn employees_come_exactly_once_in_every_order_while_others_come_and_go() {
    pages_are_whole_in_every_order(&EMPLOYEES);
}

#[test]
fn hardware_comes_exactly_once_in_every_order_while_others_come_and_go() {
    pages_are_whole_in_every_order(&HARDWARE);
}
