//! Contract section 2: the values that each field accepts, at its limits, and the values that it
//! returns.

use serde_json::{Map, Value, json};

use crate::support::contract::{
    Field, Kind, RESOURCES, Resource, at, default_value, fields, is_timestamp, sample,
};
use crate::support::{ALL, Api, InProcess, Reply, Tenant, TestServer, database, encoded};

/// Clients for one resource after the other, each on a smallest body that is ready to be changed.
fn each_resource(tenant: &Tenant, mut see: impl FnMut(&Api, &'static Resource, &Value)) {
    let api = tenant.with_scopes(ALL);
    for &resource in RESOURCES.iter() {
        let smallest = api.smallest(resource);
        see(&api, resource, &smallest);
    }
}

/// Posts the smallest body with this field changed.
#[track_caller]
fn post_with(api: &Api, resource: &Resource, smallest: &Value, field: &str, value: Value) -> Reply {
    let mut body = smallest.clone();
    body[field] = value;
    api.post(resource.path, body)
}

fn fields_of(
    resource: &Resource,
    wanted: impl Fn(Kind) -> bool,
) -> impl Iterator<Item = &'static Field> {
    fields(resource).filter(move |field| wanted(field.kind))
}

#[test]
fn text_is_measured_in_characters_whatever_their_bytes() {
    let (_server, tenant) = TestServer::with_unlimited_tenant();
    each_resource(&tenant, |api, resource, smallest| {
        for field in fields_of(resource, |kind| matches!(kind, Kind::Text { .. })) {
            let Kind::Text { min, max } = field.kind else { continue };
            for letter in ["a", "ü", "語", "𝄞", "e\u{301}"] {
                let longest: String = letter.chars().cycle().take(max).collect();
                let post = |text: &str| post_with(api, resource, smallest, field.name, json!(text));
                assert_eq!(post(&longest).created()[field.name], longest);
                post(&format!("{longest}{letter}")).fails_on(&[(field.name, "too_long")]);
                if min > 0 {
                    let shortest: String = letter.chars().cycle().take(min).collect();
                    assert_eq!(post(&shortest).created()[field.name], shortest);
                    post(&shortest[..letter.chars().next().unwrap().len_utf8()])
                        .fails_on(&[(field.name, "too_short")]);
                }
            }
        }
    });
}

#[test]
fn a_text_of_several_lines_is_stored_as_it_was_sent() {
    let (_server, api) = TestServer::with_api();
    for text in [
        "  space around  ",
        "line\nbreaks\r\nand\ttabs",
        "Z\u{351}alg\u{300}o",
        "שלום עולם \u{202e}right to left",
        "👩‍👩‍👧‍👦 family",
        "'; DROP TABLE customers; --",
        "null",
        // A zero-width space is no white space.
        "\u{200b}\u{200b}",
    ] {
        let id = api.create("/customers.php", json!({"name": "Noted", "notes": text}));
        let kept = api.get(&format!("/customers.php?id={id}")).found();
        assert_eq!(kept["notes"], text);
    }
}

#[test]
fn a_text_of_one_line_loses_white_space_at_both_ends() {
    let (_server, api) = TestServer::with_unlimited_api();
    for (sent, kept) in [
        ("  space  around  ", "space  around"),
        ("\u{a0}\u{3000}\tPF-1\u{2028}\n", "PF-1"),
        ("\u{200c}نامه\u{200c}ای", "\u{200c}نامه\u{200c}ای"),
        ("👩‍👩‍👧‍👦 ❤\u{fe0f}", "👩‍👩‍👧‍👦 ❤\u{fe0f}"),
        (&format!(" {}\n", "x".repeat(50)), &"x".repeat(50)),
    ] {
        let body = json!({"name": sent, "customer_number": sent, "custom": {"room": sent},
            "email": " a@b.example\n", "notes": sent});
        let made = api.post("/customers.php", body.clone()).created();
        let fields = ["name", "customer_number", "email", "notes"].map(|name| made[name].clone());
        assert_eq!(json!(fields), json!([kept, kept, "a@b.example", sent]));
        assert_eq!(made["custom"]["room"], kept);
        let one = format!("/customers.php?id={}", made["id"]);
        assert_eq!(api.put(&one, body).found(), made);
        for name in ["name", "custom.room"] {
            let found = api.all(&format!("/customers.php?{name}={}", encoded(sent)));
            assert_eq!(found, std::slice::from_ref(&made), "{name}");
        }
        let again = json!({"name": "Again", "customer_number": format!("\n{sent}")});
        let again = api.post("/customers.php?update_by=customer_number", again).found();
        assert_eq!(again["id"], made["id"]);
    }
    assert_eq!(api.ids("/customers.php?email=+a@b.example+").len(), 5);
    let blank = json!({"name": " A \n"});
    api.post("/customers.php", blank).fails_on(&[("name", "too_short")]);
}

#[test]
fn a_text_of_one_line_has_no_hidden_character_unless_it_is_stored() {
    let (_server, tenant) = TestServer::with_unlimited_tenant();
    let api = tenant.with_scopes(ALL);
    let body = json!({"name": "Good", "customer_number": "C-1"});
    let one = format!("/customers.php?id={}", api.create("/customers.php", body));
    let hidden = "\n\t\u{1b}\u{7f}\u{85}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\
                  \u{2060}\u{2066}\u{2069}\u{feff}";
    for character in hidden.chars() {
        let text = format!("Ab{character}c");
        for body in [
            json!({"name": text}),
            json!({"name": "Good", "custom": {"room": text}}),
            json!({"name": "Good", "email": format!("ab{character}c@shop.example")}),
        ] {
            for reply in [api.post("/customers.php", body.clone()), api.put(&one, body.clone())] {
                let reply = reply.fails_with(400, "bad_request").saying("character 3");
                reply.saying(&format!("U+{:04X}", u32::from(character)));
            }
        }
        api.put(&one, json!({"notes": text})).is(200);
    }
    let sql = "UPDATE customers SET name = 'A' || char(8203) || 'b', custom = '{\"a\":\"1\\t2\"}'";
    database(&tenant.file()).execute(sql, []).unwrap();
    let mut whole = api.get(&one).found();
    whole["city"] = json!("Kiel");
    assert_eq!(api.put(&one, whole.clone()).found()["name"], "A\u{200b}b");
    whole["city"] = json!("Bonn");
    api.post("/customers.php?update_by=customer_number", whole.clone()).is(200);
    whole["custom"]["b"] = json!("1\t2");
    api.put(&one, whole.clone()).fails_with(400, "bad_request").saying("custom.b");
    let other = json!({"name": "A\u{200b}c"});
    api.put(&one, other).fails_with(400, "bad_request").saying("U+200B");
    assert_eq!(api.get(&one).found()["city"], "Bonn");
}

/// The code of a field for a value that it cannot hold.
fn own_code(kind: Kind) -> &'static str {
    match kind {
        Kind::Email => "invalid_email",
        Kind::Integer => "invalid_int",
        Kind::Boolean => "invalid_bool",
        Kind::Date => "invalid_date",
        Kind::Choice(_) => "not_in_list",
        _ => unreachable!("{kind:?} has no code of its own"),
    }
}

#[test]
fn null_the_empty_string_and_white_space_are_empty() {
    let (_server, tenant) = TestServer::with_unlimited_tenant();
    let empties = [json!(null), json!(""), json!("\t\r\n \u{a0}\u{2003}\u{3000}\u{2028}\u{85}")];
    each_resource(&tenant, |api, resource, smallest| {
        let mut full = smallest.clone();
        for (n, field) in fields(resource).enumerate() {
            if field.references.is_none() {
                full[field.name] = sample(field, n + 1);
            }
        }
        let made = api.post(resource.path, full).created();
        let address = at(resource, made["id"].as_i64().unwrap());
        for field in fields(resource) {
            for empty in &empties {
                let post = post_with(api, resource, smallest, field.name, empty.clone());
                let put = api.put(&address, json!({field.name: empty}));
                if field.required {
                    post.fails_on(&[(field.name, "required")]);
                    put.fails_on(&[(field.name, "required")]);
                } else {
                    assert_eq!(post.created()[field.name], default_value(field), "{}", field.name);
                    match default_value(field) {
                        Value::Null => {
                            assert_eq!(put.found()[field.name], Value::Null, "{}", field.name)
                        }
                        _ => drop(put.fails_on(&[(field.name, "required")])),
                    }
                }
            }
        }
    });
}

#[test]
fn all_failing_fields_come_together_in_their_order() {
    let (_server, tenant) = TestServer::with_tenant();
    each_resource(&tenant, |api, resource, smallest| {
        let mut body = Map::new();
        let mut faults = Vec::new();
        // Sent backwards; the answer has the order of section 2.
        for field in fields(resource).rev() {
            let (value, code) = match field.kind {
                _ if field.required => (json!(" "), "required"),
                Kind::Text { max, .. } => (json!("x".repeat(max + 1)), "too_long"),
                kind => (json!("what?"), own_code(kind)),
            };
            body.insert(field.name.to_owned(), value);
            faults.insert(0, (field.name, code));
        }
        let before = api.total(resource.path);
        api.post(resource.path, Value::Object(body.clone())).fails_on(&faults);
        assert_eq!(api.total(resource.path), before);
        let made = api.post(resource.path, smallest.clone()).created();
        let address = at(resource, made["id"].as_i64().unwrap());
        api.put(&address, Value::Object(body)).fails_on(&faults);
        assert_eq!(api.get(&address).found(), made);
    });
}

#[test]
fn integers_are_json_integers_of_64_bits() {
    let (_server, api) = TestServer::with_api();
    let post = |number: &str| {
        api.post_bytes(
            "/hardware.php",
            format!("{{\"name\":\"Thing\",\"purchase_cost_cents\":{number}}}"),
        )
    };
    for good in ["0", "12", "-12", "9223372036854775807", "-9223372036854775808"] {
        let made = post(good).created();
        assert_eq!(made["purchase_cost_cents"].to_string(), good);
    }
    for bad in [
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "1.5",
        "12.0",
        "1e2",
        "\"12\"",
        "true",
        r#"{"$serde_json::private::Number":"12"}"#,
        r#"{"\u0024serde_json::private::Number":"12"}"#,
    ] {
        post(bad).fails_on(&[("purchase_cost_cents", "invalid_int")]);
    }
    let reply = api.post_bytes("/hardware.php", r#"{"name":"Thing","employee_id":1.0}"#);
    reply.fails_on(&[("employee_id", "invalid_int")]);
}

#[test]
fn booleans_are_true_false_one_or_zero_and_come_back_as_booleans() {
    let (_server, api) = TestServer::with_api();
    let post = |value: &str| {
        api.post_bytes("/hardware.php", format!("{{\"name\":\"Thing\",\"is_leased\":{value}}}"))
    };
    for (sent, kept) in [("true", true), ("false", false), ("1", true), ("0", false)] {
        assert_eq!(post(sent).created()["is_leased"], kept, "{sent}");
    }
    for bad in ["2", "-1", "1.0", "0.0", "1e0", "\"true\"", "\"1\"", "[]", "{}", "10"] {
        post(bad).fails_on(&[("is_leased", "invalid_bool")]);
    }
}

#[test]
fn dates_exist_and_are_written_in_one_way() {
    let (_server, api) = TestServer::with_api();
    let post =
        |date: &str| api.post("/customers.php", json!({"name": "Dated", "customer_since": date}));
    for good in ["2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31"] {
        assert_eq!(post(good).created()["customer_since"], good);
    }
    for bad in ["2023-02-29", "2024-1-01", "2024-01-01T00:00:00Z", " 2024-01-01"] {
        post(bad).fails_on(&[("customer_since", "invalid_date")]);
    }
}

#[test]
fn enumerated_values_are_exactly_those() {
    let (_server, tenant) = TestServer::with_unlimited_tenant();
    each_resource(&tenant, |api, resource, smallest| {
        for field in fields_of(resource, |kind| matches!(kind, Kind::Choice(_))) {
            let Kind::Choice(names) = field.kind else { continue };
            for name in names {
                let post = |text| post_with(api, resource, smallest, field.name, json!(text));
                assert_eq!(post((*name).to_owned()).created()[field.name], *name);
                for near in [name.to_uppercase(), format!("{name} "), format!("{name}s")] {
                    post(near).fails_on(&[(field.name, "not_in_list")]);
                }
            }
        }
    });
}

/// `src/model/validation.rs` tests the rules of addresses.
#[test]
fn e_mail_addresses_are_one_plain_address() {
    let (_server, api) = TestServer::with_unlimited_api();
    let post = |email: &str| api.post("/customers.php", json!({"name": "Mailed", "email": email}));
    for good in ["a@b.example", "UPPER@SHOP.EXAMPLE", "müller@BÜCHER.example", "用户@例子.广告"]
    {
        assert_eq!(post(good).created()["email"], good);
    }
    for bad in ["a@localhost", "\"a\"@shop.example", "Eva <a@shop.example>"] {
        post(bad).fails_on(&[("email", "invalid_email")]);
    }
}

#[test]
fn an_e_mail_address_of_more_than_254_characters_is_too_long() {
    let (_server, api) = TestServer::with_api();
    let post = |email: &str| api.post("/customers.php", json!({"name": "Mailed", "email": email}));
    let domain = [["d".repeat(60).as_str(); 3].join("."), "example".to_owned()].join(".");
    let of = |length: usize| {
        let rest = length - domain.len() - 2;
        format!("{}@{}.{domain}", "l".repeat(rest - 4), "s".repeat(4))
    };
    assert_eq!(of(254).chars().count(), 254);
    post(&of(254)).is(201);
    post(&of(255)).fails_on(&[("email", "too_long")]);
    post(&"x".repeat(255)).fails_on(&[("email", "too_long")]);
    post(&"x".repeat(254)).fails_on(&[("email", "invalid_email")]);
    post(&"ü".repeat(254)).fails_on(&[("email", "invalid_email")]);
    post(&"ü".repeat(255)).fails_on(&[("email", "too_long")]);
}

#[test]
fn unknown_and_read_only_fields_are_ignored() {
    let (_server, tenant) = TestServer::with_tenant();
    each_resource(&tenant, |api, resource, smallest| {
        let mut body = smallest.clone();
        for (name, value) in [
            ("id", json!(777)),
            ("created_at", json!("1999-01-01T00:00:00Z")),
            ("updated_at", json!(false)),
            ("search", json!("x")),
            ("", json!("x")),
            ("tenant_id", json!(2)),
            ("x'; --", json!({"deep": [1, null]})),
        ] {
            body[name] = value;
        }
        let made = api.post(resource.path, body.clone()).created();
        assert_ne!(made["id"], 777);
        assert!(!made["created_at"].as_str().unwrap().starts_with("1999"));
        let address = at(resource, made["id"].as_i64().unwrap());
        let changed = api.put(&address, body).found();
        assert_eq!((&changed["id"], &changed["created_at"]), (&made["id"], &made["created_at"]));
    });
}

#[test]
fn unknown_members_are_named_and_a_strict_request_has_none() {
    let (_server, api) = TestServer::with_api();
    let send = |method: &str, target: &str, prefer: &str, body: &Value| {
        let reply = api.call(method, target).header("Prefer", prefer).json(body).send();
        let strict = reply.header("Preference-Applied").is_some();
        (reply.header("X-Ignored-Fields").map(str::to_owned), strict, reply)
    };
    let mut body = json!({"id": 7, "created_at": 1, "updated_at": null, "etag": "x", "name": "A"});
    let (ignored, strict, reply) = send("POST", "/customers.php", "handling=strict", &body);
    reply.fails_on(&[("name", "too_short")]);
    assert_eq!((ignored, strict), (None, true), "read-only members are known");
    body["name"] = json!("Eins");
    for n in 0..9 {
        body[format!("member {n}, ü\u{202e}{}", "x".repeat(50))] = json!(n);
    }
    body["custmer_number"] = json!("C-1");
    body["beyond"] = json!("ten");
    let names = |n| format!("member?{n}????{}", "x".repeat(28));
    let names = (0..9).map(names).chain(["custmer_number".to_owned()]).collect::<Vec<_>>();
    for prefer in
        ["", "handling", "strict", "handling=lenient, handling=strict", "x;handling=strict"]
    {
        let (ignored, strict, reply) = send("POST", "/customers.php", prefer, &body);
        assert_eq!((ignored, strict), (Some(names.join(", ")), false), "{prefer}");
        reply.is(201);
    }
    for (method, target) in [("POST", "/customers.php"), ("PUT", "/customers.php?id=x")] {
        for prefer in
            ["handling=strict", "respond-async, Handling = \"strict\"; a=b, handling=lenient"]
        {
            let (ignored, strict, reply) = send(method, target, prefer, &body);
            assert_eq!((ignored, strict), (None, true), "{prefer}");
            let reply = reply.fails_with(400, "bad_request");
            reply.saying("\"custmer_number\" (did you mean \"customer_number\"?), \"beyond\"");
        }
    }
    body["name"] = json!("");
    let (ignored, _, reply) = send("PUT", "/customers.php?id=1", "", &body);
    reply.fails_on(&[("name", "required")]);
    assert!(ignored.is_some(), "errors name ignored members, too");
    let (_, strict, reply) = send("DELETE", "/customers.php?id=1", "handling=strict", &body);
    reply.is(204);
    assert!(!strict);
    assert_eq!(api.total("/customers.php"), 4);
}

#[test]
fn the_timestamps_are_equal_at_first_and_a_put_that_changes_a_value_moves_one() {
    let (server, tenant) = InProcess::at("2026-11-20T19:30:00.9Z");
    each_resource(&tenant, |api, resource, smallest| {
        let made = api.post(resource.path, smallest.clone()).created();
        let created = made["created_at"].as_str().unwrap().to_owned();
        assert!(is_timestamp(&created) && created.starts_with("2026-11-20T19:3"), "{created}");
        assert_eq!(made["updated_at"], created);
        let address = at(resource, made["id"].as_i64().unwrap());
        server.advance(65);
        assert_eq!(api.put(&address, json!({"notes": null})).found(), made, "no value has changed");
        let changed = api.put(&address, json!({"notes": "Changed"})).found();
        assert_eq!(changed["created_at"], created);
        assert!(changed["updated_at"].as_str().unwrap() > created.as_str());
        server.advance(65);
        let same = api.get(&address).found();
        assert_eq!(same["updated_at"], changed["updated_at"], "reading changes nothing");
        api.put(&address, json!({"notes": 7})).fails_with(400, "bad_request");
        assert_eq!(api.get(&address).found(), same, "and neither does a PUT that failed");
    });
}
