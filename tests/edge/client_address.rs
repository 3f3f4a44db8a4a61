//! No header of a client can add an address to the log.

use crate::fixture::Fixture;
use crate::support::raw::Client;
use crate::support::{Setup, until, uuid};

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
