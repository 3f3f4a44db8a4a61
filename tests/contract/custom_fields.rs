//! Contract section 2, custom fields: the shop's own texts in a record.

use serde_json::{Value, json};

use crate::support::contract::{self, RESOURCES};
use crate::support::{Api, TestServer, database};

const PATH: &str = "/customers.php";
const ONE: &str = "/customers.php?id=1";

fn post(api: &Api, custom: Value) -> Value {
    api.post(PATH, json!({"name": "Eva", "custom": custom})).created()["custom"].clone()
}

fn many(count: usize) -> Value {
    (0..count).map(|n| (format!("name_{n:02}"), json!(n.to_string()))).collect()
}

#[test]
fn names_and_values_have_rules() {
    let (_server, api) = TestServer::with_unlimited_api();
    let refused = |custom: Value| {
        let put = api.put(ONE, json!({"custom": custom})).fails_with(400, "bad_request");
        let body = json!({"name": "Eva", "custom": custom});
        assert_eq!(api.post(PATH, body).fails_with(400, "bad_request").message(), put.message());
        put
    };
    assert_eq!(post(&api, many(20)), many(20));
    let longest = "a".repeat(40);
    assert_eq!(post(&api, json!({"b_2": "😀".repeat(500), &longest: "x"}))[longest], "x");
    for name in ["", "Room", "1a", "_a", "a-b", "a.b", "ä", &"a".repeat(41)] {
        refused(json!({name: "x"})).saying("A name has 1 to 40 of the characters a-z, 0-9 and _");
    }
    for value in [json!(1), json!(true), json!([]), json!({}), json!("a\u{0}b")] {
        let both = refused(json!({"room": value, "os": "x".repeat(501)}));
        both.saying("custom.room").saying("custom.os");
    }
    for object in [json!(1), json!("x"), json!([1]), json!([[]])] {
        refused(object).saying("must be a JSON object");
    }
    let long = "x".repeat(501);
    let faults = [("custom.os", "too_long"), ("custom.room", "too_long")];
    let body = json!({"name": "Eva", "custom": {"os": long, "room": long}});
    api.post(PATH, body).fails_on(&faults);
    api.post(PATH, json!({"name": "Eva", "custom": many(21)})).fails_on(&[("custom", "too_long")]);
    let mut both = many(21);
    both["name_05"] = json!(long);
    let faults = [("custom", "too_long"), ("custom.name_05", "too_long")];
    api.post(PATH, json!({"name": "Eva", "custom": both})).fails_on(&faults);
    let one_more = json!({"custom": {"one_more": "x"}});
    api.put(ONE, one_more).fails_on(&[("custom", "too_long")]);
    api.put(ONE, json!({"custom": {"name_00": "", "one_more": "x"}})).is(200);
}

#[test]
fn a_put_sets_and_removes_the_named_members() {
    let (_server, api) = TestServer::with_unlimited_api();
    for &resource in RESOURCES.iter() {
        let mut body = api.smallest(resource);
        assert_eq!(api.post(resource.path, body.clone()).created()["custom"], json!({}));
        body["custom"] = json!([]);
        let operation = json!({"method": "POST", "path": resource.path, "body": body});
        let done = api.post("/batch.php", json!({"operations": [operation]})).found();
        assert_eq!(done["results"][0]["body"]["custom"], json!({}));
        body["custom"] = json!({"os": "Debian 13", "room": "2.14", "a": "", "b": null, "c": " "});
        let record = api.post(resource.path, body).created();
        let stored = json!({"os": "Debian 13", "room": "2.14"});
        assert_eq!(record["custom"], stored, "empty values are left out");
        let at = contract::at(resource, record["id"].as_i64().unwrap());
        let put = |custom: Value| api.put(&at, json!({ "custom": custom })).found();
        assert_eq!(put(json!({})), record, "nothing is changed");
        assert_eq!(put(json!([])), record, "PHP writes an empty object so");
        for empty in [json!(null), json!(""), json!(" ")] {
            let custom = put(json!({"room": "2.15", "floor": "2"}))["custom"].clone();
            assert_eq!(custom, json!({"floor": "2", "os": "Debian 13", "room": "2.15"}));
            let custom = put(json!({"floor": empty, "unknown": empty}))["custom"].clone();
            assert_eq!(custom, json!({"os": "Debian 13", "room": "2.15"}));
        }
        assert_eq!(put(json!(null))["custom"], json!({}));
    }
    let update_by = "/hardware.php?update_by=serial_number";
    let body = |custom: Value| json!({"name": "PC", "serial_number": "S-1", "custom": custom});
    let made = api.post(update_by, body(json!({"a": "1", "b": ""}))).created();
    assert_eq!(made["custom"], json!({"a": "1"}));
    let changed = api.post(update_by, body(json!({"b": "2"}))).found();
    assert_eq!(changed["custom"], json!({"a": "1", "b": "2"}));
    api.post("/hardware.php?update_by=custom.a", json!({})).fails_with(400, "bad_request");
}

#[test]
fn lists_filter_and_search_custom_fields() {
    let (_server, api) = TestServer::with_unlimited_api();
    let tricky = "x\",\"room\":\"2.14";
    for custom in [
        json!({"room": "2.14", "os": "Debian \"13\""}),
        json!({"room": "2.1", "note": tricky}),
        json!({"rooms": "2.14"}),
        json!({}),
        json!({"room": "2.14"}),
    ] {
        post(&api, custom);
    }
    let ids = |query: &str| api.ids(&format!("{PATH}?{query}"));
    assert_eq!(ids("custom.room=2.14"), [1, 5]);
    assert_eq!(ids("custom.room=2.14&name=Eva&sort=-id&limit=1"), [5, 1], "over pages");
    assert_eq!(ids("custom.room=null"), [3, 4]);
    assert_eq!(ids("custom.os=Debian+%2213%22&custom.room=2.14&custom.note=null"), [1]);
    assert_eq!(ids("custom.unknown=2.14"), [0_i64; 0]);
    assert_eq!(api.total(&format!("{PATH}?custom.room=2.14")), 2);
    assert_eq!(ids("q=debian"), [1]);
    assert_eq!(ids("q=2.14"), [1, 2, 3, 5]);
    api.put(ONE, json!({"custom": {"os": null}})).is(200);
    assert_eq!(ids("q=debian"), [0_i64; 0]);
    for query in [
        "custom.Room=1",
        "custom.=1",
        "custom.room=",
        "custom.room=+",
        "sort=custom",
        "custom=1",
        "sort=custom.room",
        "custom.a=1&custom.b=1&custom.c=1&custom.d=1",
    ] {
        api.get(&format!("{PATH}?{query}")).fails_with(400, "bad_request");
    }
    let page = api.get(&format!("{PATH}?custom.room=2.14&limit=1")).found();
    let cursor = page["next_cursor"].as_str().unwrap();
    for other in ["", "&custom.room=2.1", "&custom.rooms=2.14"] {
        let target = format!("{PATH}?limit=1&cursor={cursor}{other}");
        api.get(&target).fails_with(400, "bad_request").saying("another list");
    }
}

#[test]
fn lists_filter_by_a_range_of_a_custom_field() {
    let (_server, api) = TestServer::with_unlimited_api();
    for custom in [
        json!({"lease": "2027-01-31", "room": "2"}),
        json!({"lease": "2027-02-01", "room": "2"}),
        json!({"lease": "10"}),
        json!({"room": "2027-01-31"}),
    ] {
        post(&api, custom);
    }
    let ids = |query: &str| api.ids(&format!("{PATH}?{query}"));
    assert_eq!(ids("custom.lease_from=2027-01-31&custom.lease_to=2027-01-31"), [1]);
    assert_eq!(ids("custom.lease_from=2027-02"), [2]);
    assert_eq!(ids("custom.lease_to=2027-02-01"), [1, 2, 3], "by code point");
    assert_eq!(ids("custom.lease_from=1&sort=-id&limit=1&custom.room=2"), [2, 1], "over pages");
    assert_eq!(api.total(&format!("{PATH}?custom.lease_to=2027-01-31")), 2);
    let three = "custom.lease_from=1&custom.lease_to=3&custom.room=2&custom.x=null";
    assert_eq!(ids(three), [1, 2], "a range is one filter");
    for query in [&format!("{three}&custom.y=null"), "custom.lease_to=", "custom.lease_from=null"] {
        api.get(&format!("{PATH}?{query}")).fails_with(400, "bad_request");
    }
}

#[test]
fn a_custom_field_gets_no_name_of_a_range() {
    let (server, api) = TestServer::with_unlimited_api();
    let named = |name: &str| json!({"name": "Eva", "custom": {name: "2027-01-31"}});
    for name in ["lease_to", "lease_from"] {
        api.post(PATH, named(name)).fails_with(400, "bad_request").saying("range");
    }
    post(&api, json!({"leased_to_whom": "x", "to": "x", "from": "x"}));
    api.put(ONE, named("lease_to")).fails_with(400, "bad_request").saying("custom.lease_to");
    // As 1.0.0 stored it.
    let file = server.data().join("tenants/1.db");
    let set = "UPDATE customers SET custom = '{\"lease_to\":\"2027-01-31\",\"room\":\"2\"}'";
    database(&file).execute_batch(set).unwrap();
    let record = api.get(ONE).found();
    assert_eq!(record["custom"]["lease_to"], "2027-01-31");
    api.put(ONE, record).is(200);
    api.put(ONE, json!({"custom": {"lease_to": "2028"}})).fails_with(400, "bad_request");
    api.put(ONE, json!({"custom": {"room": "3"}})).is(200);
    let moved = json!({"custom": {"lease_to": "", "lease": "2027-01-31"}});
    let custom = json!({"lease": "2027-01-31", "room": "3"});
    assert_eq!(api.put(ONE, moved).found()["custom"], custom);
    let file = server.home().join("c.csv");
    std::fs::write(&file, "name,custom.lease_to\nEva,2027-01-31\n").unwrap();
    let refused = server.cli(&["import", "acme", "customers", "c.csv"]).fails_saying("1 fault");
    assert!(refused.stderr.contains("line 2: custom.lease_to: bad_request"), "{refused:?}");
}

#[test]
fn files_have_columns_and_objects() {
    let (server, api) = TestServer::with_unlimited_api();
    post(&api, json!({"room": "2.14", "os": "Debian, 13"}));
    post(&api, json!({"a": "1"}));
    post(&api, json!({}));
    let export = |format| server.cli(&["export", "acme", "customers", "--format", format]).done();
    let csv = export("csv").stdout;
    let header = csv.lines().next().unwrap();
    assert!(header.contains(",notes,custom.a,custom.os,custom.room,created_at,"), "{header}");
    let jsonl = export("jsonl").stdout;
    assert!(
        jsonl.starts_with("{\"id\":1,") && jsonl.contains("\"custom\":{\"a\":\"1\"},\"created")
    );
    let import = |name: &str, text: &str, options: &[&str]| {
        std::fs::write(server.home().join(name), text).unwrap();
        server.cli(&[&["import", "acme", "customers", name], options].concat())
    };
    let customs =
        || api.all(PATH).iter().map(|record| record["custom"].clone()).collect::<Vec<_>>();
    let before = customs();
    for (name, text) in [("c.csv", &csv), ("c.jsonl", &jsonl)] {
        import(name, text, &[]).done();
    }
    assert_eq!(customs(), [before.clone(), before.clone(), before].concat());
    let update = |name: &str, text: &str| import(name, text, &["--update-by", "id"]);
    update("u.csv", "id,custom.a,custom.new\n1,,7\n2,,\n").done();
    update("u.jsonl", "{\"id\": 1, \"custom\": {\"os\": \"\"}}\n{\"id\": 4, \"custom\": null}\n")
        .done();
    let after = customs();
    assert_eq!(after[..2], [json!({"new": "7", "room": "2.14"}), json!({})]);
    assert_eq!(after[3], json!({}));
    for (text, fault) in [
        ("name,custom.ro!m\nEva,1\n", "custom.ro!m: unknown_column"),
        (&*format!("name,custom.a\nEva,{}\n", "x".repeat(501)), "custom.a: too_long"),
        (
            "name,custom\nEva,1\n",
            "custom: unknown_column: Unknown column 2 (B) \"custom\". Did you mean \"custom.NAME\"",
        ),
    ] {
        let refused = import("f.csv", text, &[]).fails_saying("nothing was imported");
        assert!(refused.stderr.contains(fault), "{refused:?}");
    }
    server.cli(&["check"]).done();
}

#[test]
fn the_change_log_has_the_former_object() {
    let (_server, api) = TestServer::with_unlimited_api();
    post(&api, json!({}));
    api.put(ONE, json!({"custom": {"room": "2.14"}})).is(200);
    api.put(ONE, json!({"custom": {"os": "Debian 13"}, "city": "Ulm"})).is(200);
    api.delete(ONE).is(204);
    post(&api, json!({"room": "1"}));
    let log = api.get("/changes.php").found();
    let part = |n: usize| (log["data"][n]["fields"].clone(), log["data"][n]["before"].clone());
    assert_eq!(part(0), (json!(["name", "status"]), json!(null)), "no custom field");
    assert_eq!(part(1), (json!(["custom"]), json!({"custom": {}})));
    let before = json!({"city": null, "custom": {"room": "2.14"}});
    assert_eq!(part(2), (json!(["city", "custom"]), before));
    assert_eq!(part(3).1["custom"], json!({"os": "Debian 13", "room": "2.14"}));
    assert_eq!(part(4).0, json!(["name", "status", "custom"]));
}
