//! No input of a client can add a header to a response, or an address to the log.

use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{Client, request};
use crate::support::{Setup, until, uuid};

/// Line ends as attackers encode them, raw ones last.
const LINE_ENDS: [&str; 9] = [
    "%0d%0a",
    "%0D%0A",
    "%0a",
    "%250d%250a",
    "%E5%98%8D%E5%98%8A",
    "%u000d%u000a",
    "\u{560d}\u{560a}",
    "\r",
    "\r\n ",
];

const KNOWN: &str = "
    x-request-id x-api-version content-length content-type cache-control connection date location
    link allow www-authenticate retry-after x-ratelimit-limit x-ratelimit-remaining
    x-ratelimit-reset content-security-policy x-frame-options x-content-type-options
    referrer-policy set-cookie vary etag content-encoding
";

/// Requests with `evil` in every place that a response may repeat.
fn requests(key: &str, evil: &str) -> Vec<String> {
    let get = |target: &str, headers: &str| request("GET", target, key, headers, "");
    let post = |target: &str, headers: &str, body: &str| {
        request("POST", target, key, &format!("Content-Type: application/json\r\n{headers}"), body)
    };
    let query = evil.replace(' ', "+");
    vec![
        get(&format!("{RECORDS}?limit=1&name={query}"), ""),
        get(&format!("{RECORDS}?limit=1&total=true&q=a&{query}=b"), ""),
        get(&format!("{RECORDS}?limit=1&cursor={query}"), ""),
        get(&format!("{RECORDS}?id={query}"), ""),
        get(&format!("/v1{RECORDS}?limit=1&sort=-name&phone={query}"), ""),
        get(&format!("/{query}"), ""),
        get(&format!("/api_keys.php?{query}"), ""),
        get(RECORDS, &format!("X-Request-Id: 6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d{evil}\r\n")),
        get("/", &format!("Origin: http://{evil}\r\n")),
        get("/docs", &format!("If-None-Match: {evil}\r\nAccept: {evil}\r\n")),
        post(RECORDS, &format!("Idempotency-Key: {evil}\r\n"), "{\"name\": \"Anybody\"}"),
        post(&format!("{RECORDS}?{query}"), "", "{\"name\": \"Anybody\"}"),
        request(&format!("GET{}", query.replace('%', "")), RECORDS, key, "", ""),
        request("GET", RECORDS, &query, "", ""),
        format!("GET / HTTP/1.1\r\nHost: desk{query}\r\n\r\n"),
        format!("GET http://desk{query}/ HTTP/1.1\r\nHost: desk\r\n\r\n"),
    ]
}

#[test]
fn no_echo_can_break_a_line() {
    let fixture = Fixture::new();
    // Enough records for a `Link` header, which repeats the query.
    for _ in 0..3 {
        fixture.api().customer("Anybody");
    }
    for line_end in LINE_ENDS {
        let evil = format!("a{line_end}X-Evil: b{line_end}{line_end}<p>evil");
        for bytes in requests(&fixture.key, &evil) {
            let mut client = Client::connect(fixture.server.address());
            client.send(&bytes);
            let answer = client.try_answer().unwrap_or_else(|| panic!("no answer to {bytes:?}"));
            for (name, value) in &answer.headers {
                assert!(
                    KNOWN.split_whitespace().any(|known| known == name),
                    "{name} answers {bytes:?}"
                );
                assert!(
                    !value.contains('\r') && !value.contains("<p>"),
                    "{name}: {value} answers {bytes:?}"
                );
            }
        }
    }
    // A response repeats the query without a change.
    let page = fixture.ask(&format!("{RECORDS}?limit=1&q=%0d%0aanybody"));
    assert!(page.header("link").contains("q=%0d%0aanybody"), "{page:?}");
}

#[test]
fn only_spaces_and_tabs_separate_the_scheme_from_the_key() {
    let fixture = Fixture::new();
    let ask = |authorization: &[u8]| {
        let mut client = fixture.connect();
        let head = format!("GET {RECORDS} HTTP/1.1\r\nHost: desk\r\nAuthorization: ");
        client.send([head.as_bytes(), authorization, b"\r\n\r\n"].concat());
        client.answer()
    };
    let key = fixture.key.as_bytes();
    assert_eq!(ask(&[&b"Bearer \t "[..], key].concat()).status, 200);
    // No-break space and next line are white space in Latin-1, but not in HTTP.
    for space in [&b"\xa0"[..], b"\x85"] {
        ask(&[&b"Bearer"[..], space, key].concat()).fails_with(401, "missing_authorization");
        ask(&[&b"Bearer "[..], space, key].concat()).fails_with(401, "malformed_api_key");
        ask(&[&b"Bearer "[..], key, space].concat()).fails_with(401, "invalid_api_key");
    }
}

/// The access log entry of a request with these headers.
fn line_of(fixture: &Fixture, headers: &str) -> String {
    let id = uuid();
    let mut client = Client::connect(fixture.server.address());
    client
        .send(format!("GET /readyz HTTP/1.1\r\nHost: desk\r\nX-Request-Id: {id}\r\n{headers}\r\n"));
    assert_eq!(client.answer().status, 200);
    until("it is logged", || {
        fixture.server.log().lines().find(|line| line.contains(&id)).map(str::to_owned)
    })
}

#[test]
fn the_log_has_the_address_that_the_last_stranger_had() {
    let fixture = Fixture::with(
        Setup::without_rate_limit()
            .option("--trusted-proxy")
            .option("192.0.2.0/24")
            .option("--trusted-proxy=2001:db8::1"),
    );
    let is = |headers: &str, address: &str| {
        let line = line_of(&fixture, headers);
        assert!(line.ends_with(&format!("client={address}")), "{line}");
    };
    is("", "127.0.0.1");
    is("X-Forwarded-For: 198.51.100.4\r\n", "198.51.100.4");
    // The proxies append an address to the header that the client sent.
    is("X-Forwarded-For: 203.0.113.7, 198.51.100.4, 192.0.2.8\r\n", "198.51.100.4");
    is(
        "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-For: 198.51.100.4, 2001:db8::1\r\n",
        "198.51.100.4",
    );
    is("X-Forwarded-For: 203.0.113.7, nonsense, 192.0.2.8\r\n", "192.0.2.8");
    is("X-Forwarded-For: 203.0.113.7, 2001:470::1\r\n", "2001:470::1");
    for forged in [
        "Forwarded: for=203.0.113.7",
        "X-Real-IP: 203.0.113.7",
        "Client: 203.0.113.7",
        "request-metadata: a 203.0.113.7 0 0",
    ] {
        is(&format!("{forged}\r\n"), "127.0.0.1");
    }
}
