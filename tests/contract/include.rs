//! Contract section 4: `include`.

use serde_json::{Value, json};

use crate::support::{ALL, Api, TestServer};

/// The names that each path can include, with each way to ask for them.
const POSSIBLE: [(&str, &[&str]); 5] = [
    ("/employees.php?include=customer", &["customer"]),
    ("/hardware.php?include=employee", &["employee"]),
    ("/hardware.php?include=customer", &["customer"]),
    ("/hardware.php?include=employee,customer", &["employee", "customer"]),
    ("/hardware.php?include=employee&include=customer", &["employee", "customer"]),
];

/// Two customers, three employees, and hardware of theirs, of a customer alone and of nobody, many
/// with equal names.
fn fill(api: &Api) {
    for name in ["Eins", "Zwei"] {
        api.customer(name);
    }
    for (customer, name) in [(1, "Ada"), (2, "Bob"), (2, "Cyd")] {
        let email = format!("{name}@shop.example");
        let body = json!({"customer_id": customer, "email": email, "first_name": name});
        api.create("/employees.php", body);
    }
    for n in 0..12 {
        let employee = [json!(null), json!(1), json!(2), json!(3)][n % 4].clone();
        let body = json!({"name": format!("Thing {}", n % 3), "employee_id": employee,
            "asset_tag": (n % 2 == 0).then(|| format!("T-{}", n / 4))});
        let device = api.create("/hardware.php", body);
        if n == 8 {
            api.put(&format!("/hardware.php?id={device}"), json!({"customer_id": 1})).is(200);
        }
    }
}

/// The record with the members that `names` add, each read on its own.
fn expected(api: &Api, mut record: Value, names: &[&str]) -> Value {
    let read = |path: &str, id: &Value| match id {
        Value::Null => Value::Null,
        id => api.get(&format!("{path}?id={id}")).found(),
    };
    for name in names {
        record[name] = match *name {
            "employee" => read("/employees.php", &record["employee_id"]),
            _ => read("/customers.php", &record["customer_id"]),
        };
    }
    record
}

#[test]
fn a_record_comes_with_those_it_belongs_to() {
    let (_server, api) = TestServer::with_unlimited_api();
    fill(&api);
    for (target, names) in POSSIBLE {
        let path = target.split('?').next().unwrap();
        let plain = api.all(path);
        assert!(plain.len() >= 3);
        let whole: Vec<Value> =
            plain.into_iter().map(|record| expected(&api, record, names)).collect();
        assert_eq!(api.all(&format!("{target}&limit=5")), whole, "{target}");
        assert_eq!(api.below_v1().all(target), whole, "{target}");
        for record in whole {
            let one = api.get(&format!("{target}&id={}", record["id"])).found();
            assert_eq!(one, record, "{target}");
        }
    }
    let swapped = api.get("/hardware.php?id=2&include=customer,employee").found();
    assert_eq!(swapped, api.get("/hardware.php?id=2&include=employee,customer").found());
    let nobodys = api.get("/hardware.php?id=1&include=employee,customer").found();
    assert_eq!([&nobodys["employee"], &nobodys["customer"]], [&Value::Null; 2]);
}

#[test]
fn each_included_resource_needs_its_scope_and_the_refusal_counts() {
    let (_server, tenant) = TestServer::with_tenant();
    fill(&tenant.with_scopes(ALL));
    let refused = |scopes: &[&str], target: &str, lacking: &str| {
        let api = tenant.with_scopes(scopes);
        let before = api.get("/hardware.php?limit=1").is(200).limit("Remaining");
        let reply = api.get(target).fails_with(403, "insufficient_scope");
        assert_eq!(reply.limit("Remaining"), before - 1);
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{lacking}\"");
        assert_eq!(reply.header("WWW-Authenticate"), Some(challenge.as_str()));
        for scope in lacking.split(' ') {
            assert!(reply.message().contains(scope), "{reply}");
        }
    };
    let both = "/hardware.php?include=employee,customer";
    refused(&["hardware:read"], both, "customers:read employees:read");
    refused(&["hardware:read", "employees:read"], both, "customers:read");
    refused(&["hardware:read", "employees:write", "customers:read"], both, "employees:read");
    // Before it is looked whether the record exists.
    refused(&["hardware:read"], "/hardware.php?id=999&include=employee", "employees:read");
    let api = tenant.with_scopes(&["hardware:read", "customers:read"]);
    api.get("/hardware.php?include=customer").is(200);
    api.get("/hardware.php?id=2&include=customer").is(200);
    let other = tenant.with_scopes(&["customers:read"]);
    let early = other.get("/employees.php?include=customer").fails_with(403, "insufficient_scope");
    assert_eq!(early.header("X-RateLimit-Remaining"), None, "the scope of the path comes first");
}

#[test]
fn a_record_with_include_has_no_version() {
    let (_server, api) = TestServer::with_api();
    fill(&api);
    let target = "/employees.php?id=1&include=customer";
    let etag = api.get("/employees.php?id=1").is(200).header("ETag").unwrap().to_owned();
    for method in ["GET", "HEAD"] {
        for tag in [etag.as_str(), "*"] {
            api.call(method, target).header("If-None-Match", tag).send().is(200);
        }
    }
    let (get, head) = (api.get(target).is(200), api.head(target).is(200));
    assert_eq!(get.header("Content-Length"), head.header("Content-Length"));
    api.head("/employees.php?include=customer").is(200);
}

#[test]
fn include_may_change_from_page_to_page() {
    let (_server, api) = TestServer::with_api();
    fill(&api);
    let first = api.get("/hardware.php?limit=5&include=customer").is(200);
    assert!(first.header("Link").unwrap().contains("include=customer"));
    let both = api.get("/hardware.php?limit=5&include=employee,customer&q=thing").is(200);
    assert!(both.header("Link").unwrap().contains("include=employee%2Ccustomer&"));
    let cursor = first.json()["next_cursor"].as_str().unwrap().to_owned();
    for include in ["", "&include=employee", "&include=employee,customer"] {
        let next = api.get(&format!("/hardware.php?limit=5&cursor={cursor}{include}")).found();
        assert_eq!(next["data"][0]["id"], 6);
        assert_eq!(next["data"][0].get("employee").is_some(), !include.is_empty());
    }
}

#[test]
fn a_name_that_cannot_be_included_is_refused() {
    let (_server, api) = TestServer::with_unlimited_api();
    fill(&api);
    for (path, name) in [
        ("/customers.php", "customer"),
        ("/employees.php", "employee"),
        ("/hardware.php", ""),
        ("/hardware.php", "Customer"),
        ("/hardware.php", "customer,"),
        ("/hardware.php", "customer,customer"),
    ] {
        for id in ["", "&id=1", "&id=999"] {
            let target = format!("{path}?include={name}{id}");
            api.get(&target).fails_with(400, "bad_request").saying("include");
        }
    }
    let twice = "/hardware.php?include=customer&include=customer";
    api.get(twice).fails_with(400, "bad_request").saying("include");
    let body = json!({"name": "Thing"});
    api.post("/hardware.php?include=employee", body.clone()).fails_with(400, "bad_request");
    api.put("/hardware.php?id=1&include=employee", body).fails_with(400, "bad_request");
    api.delete("/hardware.php?id=1&include=employee").fails_with(400, "bad_request");
    api.get("/changes.php?include=customer").fails_with(400, "bad_request");
    api.get("/hardware.php?id=1&include=employee&limit=1").fails_with(400, "bad_request");
}
