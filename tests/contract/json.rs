//! Contract section 3 again: bodies that are JSON, and bodies that are not.

use serde_json::{Value, json};

use crate::support::{Api, Reply, TestServer};

fn post(api: &Api, body: impl Into<Vec<u8>>) -> Reply {
    api.post_bytes("/customers.php", body)
}

/// `levels` arrays, one in the other, as the value of an unknown member: with the body's own object
/// one level more.
fn nested(levels: usize) -> String {
    format!("{{\"name\":\"Deep\",\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn what_is_not_one_json_object_is_invalid() {
    let (_server, api) = TestServer::with_unlimited_api();
    let bodies: &[&[u8]] = &[
        b"",
        b"{\"name\":\"Open\"",
        b"{\"name\":\"Comma\",}",
        b"{\"name\":\"Twice\"}{\"name\":\"Twice\"}",
        b"{\"name\":\"Comment\"/**/}",
        b"{\"name\":\"New\nline\"}",
        b"{\"name\":\"NUL \0\"}",
        b"{\"name\":\"Escape \\x41\"}",
        b"{\"name\":\"Number\",\"x\":01}",
        b"{\"name\":\"Number\",\"x\":NaN}",
        b"{\"name\":\"Latin-1 \xFC\"}",
        b"{\"name\":\"Overlong \xC0\xAF\"}",
        b"{\"name\":\"Surrogate \xED\xA0\x80\"}",
        b"{\"x\xFF\":1,\"name\":\"Name\"}",
        b"\xEF\xBB\xBF\xEF\xBB\xBF{\"name\":\"Two marks\"}",
        b"\xEF\xBB\xBF",
        b" \xEF\xBB\xBF{\"name\":\"A late mark\"}",
        b"\xFF\xFE{\0}\0",
        b"\xC2\xA0{\"name\":\"No-break space\"}",
        b"name=Form",
    ];
    for body in bodies {
        let reply = post(&api, *body).fails_with(400, "invalid_json");
        let message = reply.message();
        let has_number_after = |word: &str| {
            message
                .split(word)
                .nth(1)
                .is_some_and(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        };
        assert!(
            has_number_after("line") && has_number_after("column"),
            "where? {message} for {body:?}"
        );
    }
    for (body, what) in [
        ("null", "another JSON value"),
        ("\"{}\"", "a text in quotes"),
        ("[{\"name\":\"In a list\"}]", "an array"),
        (" \r\n[object Object]", "JavaScript"),
        ("\u{feff}<html>", "HTML"),
        ("name=Form&x=1", "a form"),
        ("'{name: 1}'", "cmd.exe"),
        ("{'name': 1}", "double quotes"),
        ("{“name”: 1}", "typographic"),
        ("{\"name\": {{name}}}", "placeholder"),
    ] {
        post(&api, body).fails_with(400, "invalid_json").saying(what);
    }
    assert_eq!(api.total("/customers.php"), 0);
    api.customer("There");
    for body in ["", "[]", "{\"name\":"] {
        let put = api
            .call("PUT", "/customers.php?id=1")
            .header("Content-Type", "application/json")
            .body(body);
        put.send().fails_with(400, "invalid_json");
    }
}

#[test]
fn a_lone_surrogate_is_invalid_wherever_it_stands() {
    let (_server, api) = TestServer::with_api();
    let bodies = [
        r#"{"name":"\ud800"}"#,
        r#"{"name":"\udc00"}"#,
        r#"{"name":"x \udbff y"}"#,
        r#"{"name":"\udc00\ud800"}"#,
        r#"{"name":"\ud800\ud800"}"#,
        r#"{"name":"\ud800A"}"#,
        r#"{"name":"\ud800\n"}"#,
        r#"{"name":"Fine","unknown":"\ud800"}"#,
        r#"{"name":"Fine","\ud800":1}"#,
        r#"{"name":"Fine","x":[{"y":["\udfff"]}]}"#,
        r#"{"name":"Fine","x":{"\udfff":1}}"#,
        r#"{"name":"\ud800","name":"Fine"}"#,
        r#"{"name":"Fine","id":"\ud800"}"#,
        r#"{"name":"Fine","status":"\ud800"}"#,
    ];
    for body in bodies {
        post(&api, body).fails_with(400, "invalid_json");
    }
    assert_eq!(api.total("/customers.php"), 0);
    assert_eq!(post(&api, r#"{"name":"\ud83d\ude00 \uD83D\uDE00"}"#).created()["name"], "😀 😀");
    assert_eq!(post(&api, r#"{"name":"\\ud800 \\\\udfff"}"#).created()["name"], r"\ud800 \\udfff");
}

#[test]
fn a_hundred_levels_of_nesting_pass_and_more_than_128_do_not() {
    let (server, api) = TestServer::with_api();
    post(&api, nested(99)).is(201);
    post(&api, nested(100)).is(201);
    for levels in [129, 130, 1_000, 30_000] {
        post(&api, nested(levels)).fails_with(400, "invalid_json");
    }
    post(&api, "[".repeat(60_000)).fails_with(400, "invalid_json");
    post(&api, format!("{{\"name\":\"Deep\",\"x\":{}", "{\"a\":".repeat(10_000)))
        .fails_with(400, "invalid_json");
    post(&api, nested(100_000)).fails_with(413, "payload_too_large");
    server.anonymous().get("/healthz").is(200);
}

#[test]
fn one_leading_byte_order_mark_is_ignored() {
    let (_server, api) = TestServer::with_api();
    assert_eq!(post(&api, "\u{feff}{\"name\":\"Marked\"}").created()["name"], "Marked");
    let within = post(&api, "{\"name\":\"Within\",\"notes\":\"\u{feff}Within\"}").created();
    assert_eq!(within["notes"], "\u{feff}Within");
}

#[test]
fn of_a_member_given_twice_the_last_counts() {
    let (_server, api) = TestServer::with_api();
    assert_eq!(post(&api, r#"{"name":"First","name":"Last"}"#).created()["name"], "Last");
    assert_eq!(post(&api, r#"{"name":7,"name":"Last"}"#).created()["name"], "Last");
    assert_eq!(post(&api, r#"{"name":"First","n\u0061me":"Last"}"#).created()["name"], "Last");
    let reply = post(&api, r#"{"name":"First","name":""}"#);
    reply.fails_on(&[("name", "required")]);
    post(&api, r#"{"name":"First","name":7}"#).fails_with(400, "bad_request").saying("name");
    let put = api.call("PUT", "/customers.php?id=1").header("Content-Type", "application/json");
    let changed = put.body(r#"{"phone":"1","name":"A last one","phone":"2"}"#).send().found();
    assert_eq!(
        (changed["phone"].clone(), changed["name"].clone()),
        (json!("2"), json!("A last one"))
    );
}

#[test]
fn a_number_that_no_field_takes_is_json_all_the_same() {
    let (_server, api) = TestServer::with_api();
    for number in ["1e-400", "1e300", "-0.0", "1E+2", "99999999999999999999"] {
        let made =
            post(&api, format!("{{\"name\":\"Numbers\",\"unknown\":{number},\"id\":{number}}}"));
        made.is(201);
        post(&api, format!("{{\"name\":{number}}}")).fails_with(400, "bad_request").saying("name");
        let hardware = format!("{{\"name\":\"Costly\",\"purchase_cost_cents\":{number}}}");
        let reply = api.post_bytes("/hardware.php", hardware);
        reply.fails_on(&[("purchase_cost_cents", "invalid_int")]);
    }
}

#[test]
fn members_may_come_with_escapes_white_space_and_in_any_order() {
    let (_server, api) = TestServer::with_api();
    let body = "\r\n\t {\t\"not\\u0065s\" : \"a\\/b\\\\c\\\"d\\u00e4\\n\" ,\r\n \"n\\u0061me\":\"\\u004eame\" } \n";
    let made = post(&api, body).created();
    assert_eq!(made["name"], "Name");
    assert_eq!(made["notes"], "a/b\\c\"dä\n");
}

#[test]
fn answers_are_json_that_any_reader_reads() {
    let (_server, api) = TestServer::with_api();
    let awkward: String = (1..=0x2f).chain(0x7f..=0xa0).filter_map(char::from_u32).collect();
    let notes = format!("{awkward}\u{2028}\u{2029}\u{fffe}\u{10ffff}\"\\/</script>");
    let made = post(&api, json!({"name": "Awkward", "notes": notes}).to_string()).created();
    assert_eq!(made["notes"], Value::String(notes));
}
