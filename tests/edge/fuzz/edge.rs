//! Sends arbitrary bytes to the edge. Each request that reaches the handler has its response sent
//! to the client, in order.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tenantdesk::http::{Body, Request};

use super::fuzz;
use crate::edge_server::EdgeServer;

const SEEDS: &[&[u8]] = &[
    b"GET http://other:81/a?b HTTP/1.1\r\nHost: desk\r\n\r\nOPTIONS * HTTP/1.1\r\n\
      Host: desk\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: 4\r\n\
      Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: desk\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\
      2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: desk\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    b"GET /customers.php?id=7 HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer x\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: desk\r\nContent-Length: 42\r\n\r\nGET /hidden HTTP/1.1\r\n\
      Host: desk\r\n\r\n123456",
    b"GET /a?\xc3\xbc HTTP/1.1\r\nHost: desk\r\nUser-Agent: caf\xe9\r\n\
      Authorization: Bearer \xe9%41\r\nCookie: a=b; c\r\n\r\n",
    b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nHost: desk\r\n\r\nDELETE /b?id=1 HTTP/1.1\r\nHost: desk\r\n\
      Idempotency-Key: x\r\n\r\nPUT /c HTTP/1.1\r\nHost: desk\r\nContent-Length: 2\r\n\r\n\
      {}",
    b"POST /customers.php HTTP/1.1\r\nHost: desk\r\nContent-Type: application/json\r\n\
      Content-Length: 5\r\n\r\n{\"a\":",
];

#[rustfmt::skip]
const PIECES: &[&[u8]] = &[
    b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b"\x0b", b"\xff",
    b"%0d%0a", b"Content-Length: ", b"Content-Length: 0\r\n", b"Content-Length: 5\r\n",
    b"Content-Length: 18446744073709551616\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: ", b"chunked", b"identity", b"Expect: 100-continue\r\n",
    b"Connection: close\r\n", b"Connection: keep-alive, Content-Length\r\n", b"Upgrade: h2c\r\n",
    b"Host: desk\r\n", b"N: 1\r\n", b"Authorization: Bearer x\r\n",
    b"X-Request-Id: 6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d\r\n", b"HTTP/1.1", b"HTTP/1.0", b"GET ",
    b"HEAD ", b"POST ", b"DELETE ", b"OPTIONS * ", b"CONNECT ",
    b"GET /hidden HTTP/1.1\r\nHost: desk\r\n\r\n", b"0\r\n\r\n", b"5\r\nabcde\r\n",
    b"ffffffffffffffff\r\n", b"http://desk/", b"/a?b=c#d", b"*", b"//", b"[::1]",
];

/// Ends a connection whose requests are whole.
const LAST: &[u8] = b"GET /last HTTP/1.1\r\nHost: desk\r\nConnection: close\r\n\r\n";

#[test]
fn edge() {
    let server = EdgeServer::silent(|config| {
        config.connections.body_timeout = Duration::from_millis(100);
        config.connections.idle_timeout = Duration::from_millis(500);
    });
    let (mut inputs, mut came) = (0, 0);
    fuzz("edge", SEEDS, PIECES, |input| {
        let mut client = server.connect();
        // The edge may have refused it by now, and read no more.
        let _ = client.try_send(input) && client.try_send(LAST);
        let answers = client.rest();
        let seen = server.take_forwarded();
        let ids: Vec<String> = seen.iter().map(|request| request.id.to_string()).collect();
        assert_eq!(ids, answered(&answers), "{}", String::from_utf8_lossy(&answers));
        seen.iter().for_each(check);
        (inputs, came) = (inputs + 1, came + seen.len());
    });
    assert!(came > inputs / 10, "{inputs} inputs made no more than {came} requests");
}

/// The request ids of the answers that the handler gave. Whatever else comes ends the connection,
/// and is never a 500: that would be a request that tiny_http took for another.
fn answered(mut answers: &[u8]) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(end) = answers.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = std::str::from_utf8(&answers[..end]).unwrap();
        let status = head.split(' ').nth(1).unwrap();
        assert_ne!(status, "500", "{head}");
        if status == "204" {
            let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
            ids.push(id.to_owned());
        } else if status != "100" {
            break;
        }
        answers = &answers[end + 4..];
    }
    ids
}

fn check(request: &Request) {
    assert!(request.path.starts_with('/') || request.path == "*", "{request:?}");
    let target = [request.path.as_str(), request.query.as_deref().unwrap_or("")].concat();
    assert!(
        target.len() <= 8 * 1024 && target.bytes().all(|byte| (0x21..0x7f).contains(&byte)),
        "{request:?}"
    );
    assert_eq!((request.client, request.secure), (IpAddr::V4(Ipv4Addr::LOCALHOST), false));
    assert!(request.headers.values().all(|value| value.to_str().is_ok()), "{request:?}");
    if let Body::Whole(body) = &request.body {
        assert!(body.len() <= 64 * 1024);
    }
}
