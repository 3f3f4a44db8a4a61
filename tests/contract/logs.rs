//! Contract section 11: the log has one line for each request, and no secret. No header of a client can
//! add an address to the log.

use serde_json::{Value, json};

use crate::support::client::Call;
use crate::support::raw::Client;
use crate::support::{ALL, Setup, TestServer, until, uuid};

/// Makes requests of many kinds and returns, for each, its id and what its line has to say.
fn make_requests(server: &TestServer) -> Vec<(String, Vec<String>)> {
    let tenant = server.tenant("acme");
    let key = tenant.key(ALL);
    let api = server.with_key(&key.key);
    let mut expected = Vec::new();
    let mut ask = |call: Call<'_>, method: &str, path: &str, status: u16, known: bool| {
        let id = uuid();
        call.header("X-Request-Id", &id).send().is(status);
        let mut words = vec![method.to_owned(), path.to_owned(), status.to_string()];
        if known {
            words.extend(["acme".to_owned(), key.prefix.clone()]);
        }
        expected.push((id, words));
    };
    let body = json!({"name": "A name that is nobody's business", "email": "private@shop.example"});
    ask(api.call("POST", "/customers.php").json(&body), "POST", "/customers.php", 201, true);
    ask(api.call("GET", "/v1/customers.php?q=PRIVATEWORD"), "GET", "/v1/customers.php", 200, true);
    let put = api.call("PUT", "/customers.php?id=1").json(&json!({"notes": "PRIVATENOTE"}));
    ask(put, "PUT", "/customers.php", 200, true);
    let broken = api.call("POST", "/customers.php").header("Content-Type", "application/json");
    ask(broken.body("{\"PRIVATEBROKEN\":tdk_"), "POST", "/customers.php", 400, true);
    let invalid = json!({"name": "", "email": "PRIVATEMAIL", "status": "PRIVATESTATUS"});
    ask(api.call("POST", "/customers.php").json(&invalid), "POST", "/customers.php", 422, true);
    let mistyped = api.call("POST", "/customers.php").json(&json!({"name": ["PRIVATETYPE"]}));
    ask(mistyped, "POST", "/customers.php", 400, true);
    ask(api.call("DELETE", "/customers.php?id=77"), "DELETE", "/customers.php", 404, true);
    ask(api.call("PATCH", "/hardware.php"), "PATCH", "/hardware.php", 405, true);
    let (wrong, short) = (format!("tdk_{}", "PRIVATEKEY".repeat(5)), "PRIVATETOKEN");
    ask(server.with_key(&wrong).call("GET", "/employees.php"), "GET", "/employees.php", 401, false);
    ask(server.with_key(short).call("GET", "/employees.php"), "GET", "/employees.php", 401, false);
    let target = format!("/employees.php?api_key={}", key.key);
    ask(server.anonymous().call("GET", &target), "GET", "/employees.php", 401, false);
    // U+009B begins a terminal's control sequence; U+202E reverses what follows.
    let unprintable = server.anonymous();
    let unprintable = unprintable.call("GET", "/x\u{9b}31m\u{202e}y");
    ask(unprintable, "GET", "/x%C2%9B31m%E2%80%AEy", 404, false);
    ask(server.anonymous().call("HEAD", "/healthz"), "HEAD", "/healthz", 200, false);
    expected
}

const PRIVATE: [&str; 11] = [
    "nobody's business",
    "private@shop.example",
    "PRIVATEWORD",
    "PRIVATENOTE",
    "PRIVATEBROKEN",
    "PRIVATEMAIL",
    "PRIVATESTATUS",
    "PRIVATETYPE",
    "PRIVATEKEYPRIVATEKEY",
    "PRIVATETOKEN",
    "api_key=",
];

/// The lines of a log with an entry of each kind. Every test server checks at its end that its log
/// has no key and no password.
fn log_of(setup: Setup) -> (Vec<(String, Vec<String>)>, Vec<String>) {
    let server = setup.start();
    let expected = make_requests(&server);
    // An event of the panel has the id of its request, too.
    let is_whole = |log: &String| {
        let ends = |id: &str| log.lines().any(|l| l.contains(id) && l.contains("duration_ms"));
        log.ends_with('\n') && expected.iter().all(|(id, _)| ends(id))
    };
    let log = until("every request has its line", || Some(server.log()).filter(is_whole));
    for private in PRIVATE {
        assert!(!log.contains(private), "{private} is in the log:\n{log}");
    }
    (expected, log.lines().map(str::to_owned).collect())
}

/// Each request has one line, with all that it has to say. `mark` is in each line of a request.
#[track_caller]
fn assert_lines(expected: &[(String, Vec<String>)], lines: &[String], mark: &str) {
    for (id, words) in expected {
        let its: Vec<&String> =
            lines.iter().filter(|line| line.contains(mark) && line.contains(id)).collect();
        assert_eq!(its.len(), 1, "{its:?}");
        for word in words {
            assert!(its[0].contains(word), "{word} is not in {}", its[0]);
        }
    }
}

#[test]
fn each_request_logs_one_line_as_text() {
    let (expected, lines) = log_of(Setup::plain());
    assert_lines(&expected, &lines, " request: ");
}

#[test]
fn each_request_logs_one_line_as_json() {
    let (expected, lines) = log_of(Setup::plain().option("--log-format").option("json"));
    for line in &lines {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    assert_lines(&expected, &lines, "\"target\":\"request\"");
}

/// The access log entry of a request with these headers.
fn line_of(server: &TestServer, headers: &str) -> String {
    let id = uuid();
    let mut client = Client::connect(server.address());
    client
        .send(format!("GET /readyz HTTP/1.1\r\nHost: desk\r\nX-Request-Id: {id}\r\n{headers}\r\n"));
    assert_eq!(client.answer().status, 200);
    until("it is logged", || {
        server.log().lines().find(|line| line.contains(&id)).map(str::to_owned)
    })
}

#[test]
fn the_log_has_the_address_that_the_last_stranger_had() {
    let setup = Setup::plain().option("--trusted-proxy=192.0.2.0/24");
    let server = setup.option("--trusted-proxy=2001:db8::1").start();
    let is = |headers: &str, address: &str| {
        let line = line_of(&server, headers);
        assert!(line.ends_with(&format!("client={address}")), "{line}");
    };
    is("", "127.0.0.1");
    // The proxies append an address to the header that the client sent.
    is("X-Forwarded-For: 203.0.113.7, 198.51.100.4, 192.0.2.8\r\n", "198.51.100.4");
    for forged in [
        "Forwarded: for=203.0.113.7",
        "X-Real-IP: 203.0.113.7",
        "Client: 203.0.113.7",
        "request-metadata: a 203.0.113.7 0 0",
    ] {
        is(&format!("{forged}\r\n"), "127.0.0.1");
    }
}
