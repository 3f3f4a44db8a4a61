//! Contract section 4: pages through many records while others come and go. `model.rs` tests
//! the orders of all resources.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::thread;

use serde_json::{Value, json};

use crate::support::contract::{Kind, fields, members, resource_at, sample};
use crate::support::{Api, TestServer};

const PATH: &str = "/hardware.php";
const LASTING: usize = 200;

/// A body whose values tie often, are null often, and come in no order.
fn body(n: usize) -> Value {
    let mut body = json!({});
    for (position, field) in fields(resource_at(PATH).unwrap()).enumerate() {
        let mixed = n.wrapping_mul(2_654_435_761).wrapping_add(position * 97) >> 7;
        body[field.name] = match field.kind {
            _ if field.name == "employee_id" => json!(mixed % 5 + 1),
            _ if field.name == "customer_id" => continue,
            _ if !field.required && mixed.is_multiple_of(3) => Value::Null,
            Kind::Integer => json!(i64::try_from(mixed % 40).unwrap() - 20),
            Kind::Text { .. } => {
                let start = ["", "ä", "Z", "😀", "a", "_", "%", "\u{ffff}"][mixed % 8];
                json!(format!("{start}x{}", mixed % 50))
            }
            _ => sample(field, mixed % 40),
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
fn records_come_exactly_once_while_others_come_and_go() {
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
            for (number, field) in members(resource_at(PATH).unwrap()).into_iter().enumerate() {
                if !["notes", "custom"].contains(&field) {
                    page_through(&api, field, number % 2 == 0, &lasting);
                }
            }
        }));
        stop.store(true, Memory::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Twenty custom fields: 40 KB of JSON.
fn heavy() -> Value {
    (0..20).map(|n| (format!("f{n}"), json!("😀".repeat(500)))).collect::<Value>()
}

/// The elements of a list's pages, each with their number.
fn walk(api: &Api, target: &str) -> Vec<Vec<Value>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let reply = api.get(&format!("{target}&limit=200&cursor={cursor}"));
        let page = reply.json();
        let data = page["data"].as_array().unwrap().clone();
        let has_more = page.get("more").map_or(!page["next_cursor"].is_null(), |more| more == true);
        let last = data.last().map_or(0, |last| last.to_string().len());
        assert!(reply.body.len() - last < (4 << 20), "a page ends as soon as it has 4 MiB");
        assert!(!has_more || reply.body.len() >= 4 << 20, "no page ends early");
        pages.push(data);
        if !has_more {
            return pages;
        }
        page["next_cursor"].as_str().unwrap().clone_into(&mut cursor);
    }
}

#[test]
fn a_page_ends_with_4_mib_and_no_record_is_lost() {
    let (server, api) = TestServer::with_unlimited_api();
    let customer = api.create("/customers.php", json!({"name": "Heavy", "custom": heavy()}));
    let employee = json!({"customer_id": customer, "email": "a@b.example", "custom": heavy()});
    api.create("/employees.php", employee);
    for n in 0..60 {
        let mut body = body(n);
        body["employee_id"] = json!(1);
        api.create(PATH, body);
    }
    let pages = walk(&api, &format!("{PATH}?sort=-name&include=employee,customer"));
    let ids: Vec<i64> = pages.concat().iter().map(|it| it["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, api.ids(&format!("{PATH}?sort=-name")));
    assert_eq!((pages.len(), ids.len()), (2, 60));
    for n in 0..120 {
        api.put("/customers.php?id=1", json!({"city": n.to_string()})).is(200);
    }
    let pages = walk(&api, "/changes.php?resource=customers");
    let cities: Vec<Value> =
        pages.concat()[2..].iter().map(|it| it["before"]["city"].clone()).collect();
    let expected: Vec<Value> = (0..119).map(|n| json!(n.to_string())).collect();
    assert_eq!((pages.len(), cities), (2, expected));
    let printed = server.cli_json(&["changes", "acme", "--resource", "customers", "--last", "200"]);
    assert_eq!(printed.as_array().unwrap(), &pages.concat(), "the command prints them all");
}
