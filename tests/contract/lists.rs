//! Contract section 4: lists, their parameters, filters and pages; pages through many records while
//! others come and go. `model.rs` tests the orders of all resources.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::thread;

use serde_json::{Value, json};

use crate::support::contract::{Kind, RESOURCES, fields, members, resource_at};
use crate::support::{ALL, Api, InProcess, TestServer, encoded};

/// No record.
const NONE: [i64; 0] = [];

fn refuse(api: &Api, query: &str) -> crate::support::Reply {
    api.get(&format!("/customers.php?{query}")).fails_with(400, "bad_request")
}

fn customers(api: &Api, count: usize) {
    for n in 1..=count {
        api.customer(&format!("Customer {n}"));
    }
}

#[test]
fn an_empty_list_is_an_empty_page() {
    let (_server, api) = TestServer::with_api();
    for &resource in RESOURCES.iter() {
        let page = api.get(&format!("{}?total=true", resource.path)).found();
        assert_eq!(page, json!({"data": [], "next_cursor": null, "total": 0}));
    }
}

#[test]
fn a_page_has_fifty_records_unless_told_otherwise() {
    let (_server, api) = TestServer::with_unlimited_api();
    customers(&api, 51);
    let length = |query: &str| {
        let page = api.get(&format!("/customers.php{query}")).found();
        (page["data"].as_array().unwrap().len(), page["next_cursor"].is_string())
    };
    assert_eq!(length(""), (50, true));
    for (limit, expected) in
        [("1", (1, true)), ("50", (50, true)), ("51", (51, false)), ("200", (51, false))]
    {
        assert_eq!(length(&format!("?limit={limit}")), expected);
    }
    for bad in ["0", "201", "-1", "1.5", "abc", "", "%20", "1e2", "99999999999999999999", "null"] {
        refuse(&api, &format!("limit={bad}")).saying("limit");
    }
}

#[test]
fn the_total_counts_all_that_match_and_comes_when_asked_for() {
    let (_server, api) = TestServer::with_api();
    customers(&api, 5);
    api.put("/customers.php?id=2", json!({"status": "inactive", "city": "Bonn"})).is(200);
    assert!(api.get("/customers.php").found().get("total").is_none());
    assert_eq!(api.total("/customers.php"), 5);
    assert_eq!(api.total("/customers.php?status=active"), 4);
    assert_eq!(api.total("/customers.php?q=bonn"), 1);
    assert_eq!(api.total("/customers.php?city=null&q=customer"), 4);
    let first = api.get("/customers.php?limit=2").found();
    assert_eq!(api.get("/customers.php?cursor=&limit=2").found(), first);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = api.get(&format!("/customers.php?limit=2&cursor={cursor}&total=true")).found();
    assert_eq!(second["total"], 5, "of all pages, not of the rest");
    for no in ["false", "0"] {
        assert!(api.get(&format!("/customers.php?total={no}")).found().get("total").is_none());
    }
    refuse(&api, "total=maybe").saying("total");
    refuse(&api, "total=").saying("total");
}

#[test]
fn the_order_is_by_id_unless_told_otherwise() {
    let (_server, api) = TestServer::with_api();
    customers(&api, 4);
    assert_eq!(api.ids("/customers.php?limit=3"), [1, 2, 3, 4]);
    assert_eq!(api.ids("/customers.php?sort=id&limit=3"), [1, 2, 3, 4]);
    assert_eq!(api.ids("/customers.php?sort=-id&limit=3"), [4, 3, 2, 1]);
    for bad in ["notes", "-notes", "bogus", "", "-", "--id", "+id", "id,name", "ID", "search"] {
        refuse(&api, &format!("sort={bad}")).saying("sort");
    }
}

#[test]
fn text_compares_exactly_and_takes_any_value() {
    let (_server, api) = TestServer::with_unlimited_api();
    let cities = [
        "Bonn", "bonn", "Bonn.", "Bönn", "Bo%n", "Bo_n", "null", "'", "\"x\"", "a&b=c", "1+1", "é",
        "e\u{301}",
    ];
    for city in cities {
        api.create("/customers.php", json!({"name": "Someone", "city": city}));
    }
    for city in cities.into_iter().filter(|city| *city != "null") {
        let found = api.all(&format!("/customers.php?city={}", encoded(city)));
        assert!(found.iter().map(|record| &record["city"]).eq([city]), "{city}: {found:?}");
    }
    assert_eq!(api.total("/customers.php?city=null"), 0, "`null` finds nulls, not the text");
    api.customer("Nowhere");
    assert_eq!(api.total("/customers.php?city=null"), 1);
    assert_eq!(api.total(&format!("/customers.php?city={}", "x".repeat(300))), 0);
    assert_eq!(api.total("/customers.php?email=no-address"), 0);
    refuse(&api, "email=a+b@shop.example").saying("%2B");
}

#[test]
fn a_value_that_the_field_cannot_hold_is_a_bad_request() {
    let (_server, api) = TestServer::with_unlimited_api();
    for &resource in RESOURCES.iter() {
        for field in fields(resource).filter(|field| field.name != "notes") {
            let bad: &[&str] = match field.kind {
                Kind::Integer => &["abc", "1.5", "1e2", "0x1", "9223372036854775808"],
                Kind::Boolean => &["yes", "2", "TRUE", "01"],
                Kind::Date => &["2023-02-29", "2024-1-1", "today", "2024-01-01T00:00:00Z"],
                Kind::Choice(_) => &["bogus", "ACTIVE", "active,inactive"],
                _ => &[],
            };
            for value in bad.iter().chain(&["", "%20", "+%09", "%E3%80%80"]) {
                let reply = api.get(&format!("{}?{}={value}", resource.path, field.name));
                reply.fails_with(400, "bad_request").saying(field.name);
            }
        }
    }
    for query in ["created_at=", "created_at=2026-11-20", "updated_at=soon", "status"] {
        refuse(&api, query);
    }
}

#[test]
fn booleans_are_found_by_word_and_by_digit() {
    let (_server, api) = TestServer::with_api();
    for is_leased in [true, false, false] {
        api.create("/hardware.php", json!({"name": "Thing", "is_leased": is_leased}));
    }
    for (value, count) in [("true", 1), ("1", 1), ("false", 2), ("0", 2), ("null", 0)] {
        assert_eq!(api.total(&format!("/hardware.php?is_leased={value}")), count, "{value}");
    }
    for name in ["is_leased", "employee_id", "purchase_cost_cents"] {
        for text in ["\"\"", "\"\\u0020\"", "\"1\"", " 1", "1\t"] {
            let reply = api.get(&format!("/hardware.php?{name}={}", encoded(text)));
            reply.fails_with(400, "bad_request").saying(name);
        }
    }
}

#[test]
fn dates_have_a_from_and_a_to_that_are_inclusive() {
    let (_server, api) = TestServer::with_api();
    for date in ["2023-12-31", "2024-01-01", "2024-02-29", "2024-12-31", "2025-01-01", ""] {
        api.create("/customers.php", json!({"name": "Someone", "customer_since": date}));
    }
    let ids = |query: &str| api.ids(&format!("/customers.php?{query}"));
    assert_eq!(ids("customer_since=2024-02-29"), [3]);
    assert_eq!(ids("customer_since_from=2024-01-01&customer_since_to=2024-12-31"), [2, 3, 4]);
    assert_eq!(ids("customer_since_from=2024-12-31"), [4, 5]);
    assert_eq!(ids("customer_since_to=2023-12-31"), [1]);
    assert_eq!(ids("customer_since_from=2025-01-02"), NONE);
    assert_eq!(ids("customer_since=null"), [6]);
    for bad in ["_from=2024", "_to=2023-02-29", "_from=", "_from=2024-01-01T00:00:00Z"] {
        refuse(&api, &format!("customer_since{bad}"));
    }
}

#[test]
fn timestamps_have_a_from_and_a_to_with_any_offset_or_a_date() {
    let (server, tenant) = InProcess::at("2026-11-20T23:59:58Z");
    let api = tenant.with_scopes(ALL);
    for name in ["At :58", "At :59", "At midnight", "A day later"] {
        api.customer(name);
        server.advance(if name == "At midnight" { 24 * 3600 } else { 1 });
    }
    let ids = |query: &str| api.ids(&format!("/customers.php?{query}"));
    assert_eq!(ids("created_at=2026-11-20T23:59:59Z"), [2]);
    assert_eq!(ids("created_at=2026-11-21T01:59:59%2B02:00"), [2]);
    assert_eq!(ids("created_at=2026-11-20T18:59:59-05:00"), [2]);
    let range = "created_at_from=2026-11-20T23:59:59Z&created_at_to=2026-11-21T00:00:00Z";
    assert_eq!(ids(range), [2, 3]);
    assert_eq!(ids("created_at_to=2026-11-20"), [1, 2], "the last second of that day");
    assert_eq!(ids("created_at_from=2026-11-21"), [3, 4], "the first second of that day");
    assert_eq!(ids("created_at_from=2026-11-21&created_at_to=2026-11-21"), [3]);
    assert_eq!(ids("updated_at_from=2026-11-21T05:30:00%2B05:30"), [3, 4]);
    let second = "2026-11-20T23:59:59";
    assert_eq!(ids(&format!("created_at={second}.000000001Z")), NONE);
    assert_eq!(ids(&format!("created_at_from={second}.000000001Z")), [3, 4]);
    refuse(&api, "created_at=2026-11-21T01:59:59+02:00").saying("%2B");
    for bad in ["2026-11-20T23:59:59", "2026-02-29", "1763683199", ""] {
        refuse(&api, &format!("created_at_from={bad}"));
    }
}

#[test]
fn a_cursor_belongs_to_its_resource_sort_filters_and_search() {
    let (_server, api) = TestServer::with_unlimited_api();
    customers(&api, 6);
    for _ in 0..3 {
        api.employee(1);
    }
    let cursor_of = |query: &str| {
        let page = api.get(&format!("/customers.php?limit=2&{query}")).found();
        page["next_cursor"].as_str().unwrap_or_else(|| panic!("no next page: {query}")).to_owned()
    };
    let queries =
        ["sort=id", "sort=-id", "sort=name", "status=active", "q=customer", "q=cust", "city=null"];
    for query in queries {
        let cursor = cursor_of(query);
        assert!(cursor.len() <= 2048);
        for other in queries {
            let target = format!("/customers.php?{other}&cursor={cursor}");
            if other == query {
                api.get(&target).is(200);
            } else {
                api.get(&target).fails_with(400, "bad_request");
            }
        }
        api.get(&format!("/employees.php?{query}&cursor={cursor}")).fails_with(400, "bad_request");
    }
    let cursor = cursor_of("sort=id");
    // The default sort may be named or left out.
    api.get(&format!("/customers.php?cursor={cursor}")).is(200);
}

#[test]
fn a_cursor_outlives_a_restart_and_its_records_deletion() {
    let (mut server, api) = TestServer::with_api();
    customers(&api, 5);
    let page = api.get("/customers.php?limit=2&sort=name").found();
    let target =
        format!("/customers.php?sort=name&cursor={}", page["next_cursor"].as_str().unwrap());
    server.restart();
    api.delete("/customers.php?id=2").is(204);
    assert_eq!(api.ids(&target.replace("&cursor", "&limit=9&cursor")), [3, 4, 5]);
}

#[test]
fn a_cursor_is_short_whatever_it_stands_for() {
    let (_server, api) = TestServer::with_api();
    let name = "𝄞".repeat(200);
    for _ in 0..2 {
        api.customer(&name);
    }
    let filter = encoded(&name);
    for query in [
        "sort=name".to_owned(),
        format!("sort=-name&name={filter}"),
        format!("sort=name&q={filter}"),
    ] {
        let page = api.get(&format!("/customers.php?limit=1&{query}")).found();
        let cursor = page["next_cursor"].as_str().unwrap();
        assert!(cursor.len() <= 2048, "{} bytes", cursor.len());
        assert!(
            cursor.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)),
            "{cursor}"
        );
        let next = api.get(&format!("/customers.php?limit=1&{query}&cursor={cursor}")).found();
        assert_eq!(next["data"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn the_link_is_the_whole_next_address() {
    let (_server, api) = TestServer::with_unlimited_api();
    for n in 0..7 {
        let name = format!("Müller & Söhne {n}");
        api.create("/customers.php", json!({"name": name, "city": "a&b=c +%,;"}));
    }
    for base in ["", "/v1"] {
        let query = "limit=2&sort=-name&total=true&city=a%26b%3Dc+%2B%25,;&q=m%C3%9CLLER+%26";
        let mut target = format!("{base}/customers.php?{query}");
        let mut ids = Vec::new();
        loop {
            let reply = api.get(&target).is(200);
            let page = reply.json();
            assert_eq!(page["total"], 7);
            ids.extend(page["data"].as_array().unwrap().iter().map(|record| record["id"].clone()));
            let Some(link) = reply.header("Link") else { break };
            let next = link.strip_prefix('<').and_then(|link| link.strip_suffix(">; rel=\"next\""));
            target = next.unwrap_or_else(|| panic!("no address: {link}")).to_owned();
            assert!(target.starts_with(&format!("{base}/customers.php?")), "{target}");
            assert!(!target.contains([',', ';']), "some clients cut the header there: {target}");
        }
        assert_eq!(ids, [7, 6, 5, 4, 3, 2, 1]);
    }
}

const PATH: &str = "/hardware.php";
const LASTING: usize = 200;

/// A body whose values tie often, are null often, and come in no order.
fn body(n: usize) -> Value {
    let mixed = n.wrapping_mul(2_654_435_761) >> 7;
    let start = ["b", "ä", "Z", "😀", "a", "_", "%", "\u{ffff}"][mixed % 8];
    json!({
        "name": format!("{start}x{}", mixed % 50),
        "employee_id": mixed % 5 + 1,
        "status": (!mixed.is_multiple_of(3)).then_some(["in_use", "lost"][mixed % 2]),
        "model": (!mixed.is_multiple_of(4)).then(|| format!("M{}", mixed % 7)),
        "purchase_date": (!mixed.is_multiple_of(5)).then(|| format!("2024-01-{:02}", mixed % 28 + 1)),
        "purchase_cost_cents": mixed % 40,
        "is_leased": mixed.is_multiple_of(2),
    })
}

/// The lasting records, by id.
fn make_lasting(api: &Api) -> HashMap<i64, Value> {
    let records = (0..LASTING).map(|n| api.post(PATH, body(n)).created());
    records.map(|record| (record["id"].as_i64().unwrap(), record)).collect()
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
    for selection in [["--last", "200"], ["--since", "2h"]] {
        let changes = [&["changes", "acme", "--resource", "customers"], &selection[..]].concat();
        assert_eq!(server.cli_json(&changes), json!(pages.concat()), "the command prints them all");
    }
}
