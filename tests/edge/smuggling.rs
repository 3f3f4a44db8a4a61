//! Request smuggling: a DELETE hidden in another request must not run.

use std::thread;

use serde_json::json;

use crate::fixture::{Fixture, RECORDS};
use crate::support::Setup;
use crate::support::raw::{Client, request};

/// How often each request is repeated.
const TRIES: usize = 300;

/// Requests that one parser ends where `hidden` begins, and another elsewhere. Each has a name for
/// what makes it ambiguous.
fn shapes(key: &str, hidden: &str) -> Vec<(&'static str, String)> {
    let post = |headers: &str, body: &str| {
        let head = format!(
            "POST {RECORDS} HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {key}\r\n{headers}\r\n"
        );
        format!("{head}{body}")
    };
    let in_process = hidden.len();
    let chunk = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    vec![
        (
            "a length beside chunked",
            post(
                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
        (
            "chunked beside a length",
            post(
                &format!("Transfer-Encoding: chunked\r\nContent-Length: {in_process}\r\n"),
                &chunk,
            ),
        ),
        (
            "two lengths",
            post(&format!("Content-Length: {in_process}\r\nContent-Length: 0\r\n"), hidden),
        ),
        (
            "two lengths, the other way round",
            post(&format!("Content-Length: 0\r\nContent-Length: {in_process}\r\n"), hidden),
        ),
        ("a list of lengths", post(&format!("Content-Length: 0, {in_process}\r\n"), hidden)),
        ("a length that is no number", post("Content-Length: 0x0\r\n", hidden)),
        ("a signed length", post("Content-Length: +0\r\n", hidden)),
        ("an unknown transfer encoding", post("Transfer-Encoding: xchunked\r\n", hidden)),
        (
            "a transfer encoding with a tab",
            post("Transfer-Encoding:\x0bchunked\r\n", &format!("0\r\n\r\n{hidden}")),
        ),
        (
            "identity",
            post(
                &format!("Transfer-Encoding: identity\r\nContent-Length: {in_process}\r\n"),
                hidden,
            ),
        ),
        (
            "chunked twice",
            post(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
        ("a space before the colon", post(&format!("Content-Length : {in_process}\r\n"), hidden)),
        ("a folded length", post(&format!("X-A: b\r\n Content-Length: {in_process}\r\n"), hidden)),
        ("a bare CR", post(&format!("X-A: b\rContent-Length: {in_process}\r\n"), hidden)),
        (
            "a bad chunk size",
            post("Transfer-Encoding: chunked\r\n", &format!("0x0\r\n\r\n{hidden}")),
        ),
        (
            "a chunk extension with a line end",
            post("Transfer-Encoding: chunked\r\n", &format!("0;a\n\r\n{hidden}")),
        ),
        (
            "a huge chunk size",
            post("Transfer-Encoding: chunked\r\n", &format!("10000000000000000\r\n\r\n{hidden}")),
        ),
        (
            "a trailer",
            post(
                "Transfer-Encoding: chunked\r\n",
                &format!("0\r\nContent-Length: 0\r\n \r\n{hidden}"),
            ),
        ),
        (
            "an expectation that is not met",
            post(&format!("Expect: 100-continue\r\nContent-Length: {}\r\n", 1_u64 << 21), hidden),
        ),
        ("a body that is too large", post(&format!("Content-Length: {}\r\n", 1_u64 << 40), hidden)),
        ("a body of a GET", request("GET", RECORDS, key, "", hidden)),
        ("a body of a DELETE", request("DELETE", "/customers.php?id=999", key, "", hidden)),
        ("a body of a path that is not there", request("POST", "/nowhere", key, "", hidden)),
    ]
}

#[test]
fn a_hidden_delete_does_not_run() {
    let fixture = Fixture::with(Setup::without_rate_limit().option("--workers").option("8"));
    let id = fixture.api().customer("Still here");
    let hidden = request("DELETE", &format!("{RECORDS}?id={id}"), &fixture.key, "", "");
    let shapes = shapes(&fixture.key, &hidden);
    assert!(shapes.len() >= 12);
    thread::scope(|scope| {
        for part in 0..4 {
            let (fixture, shapes) = (&fixture, &shapes);
            scope.spawn(move || {
                shapes
                    .iter()
                    .skip(part)
                    .step_by(4)
                    .for_each(|(what, bytes)| try_often(fixture, what, bytes))
            });
        }
    });
    assert_eq!(fixture.api().get(&format!("{RECORDS}?id={id}")).found()["name"], "Still here");
    assert!(!fixture.server.log().contains("method=\"DELETE\" path=\"/customers.php\" status=204"));
    // The same bytes on their own delete the record.
    let mut client = fixture.connect();
    client.send(&hidden);
    assert_eq!(client.answer().status, 204);
}

fn try_often(fixture: &Fixture, what: &str, bytes: &str) {
    for _ in 0..TRIES {
        let mut client = Client::connect(fixture.server.address());
        // The server may close the connection before it has read everything.
        let _ = client.try_send(bytes);
        let answer = client.try_answer(false);
        assert!(answer.is_none_or(|answer| answer.status != 204), "{what}");
    }
}

#[test]
fn requests_behind_a_good_one_do_run_and_stay_in_step() {
    let fixture = Fixture::new();
    let mut client = fixture.connect();
    let body = json!({"name": "In step"}).to_string();
    let post = request("POST", RECORDS, &fixture.key, "Content-Type: application/json\r\n", &body);
    let get = |id: usize| request("GET", &format!("{RECORDS}?id={id}"), &fixture.key, "", "");
    for id in 1..=50 {
        client.send(format!("{post}{}{}", get(id), get(999)));
        assert_eq!(client.answer().json()["id"], id);
        assert_eq!(client.answer().json()["id"], id);
        client.answer().fails_with(404, "not_found");
    }
}
