//! The limits that the proxy enforces, with the rates of the example. The client's address and scheme
//! behind a proxy are the real ones, whatever the client claims.

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};

use serde_json::Value;

use crate::support::browser::encode;
use crate::support::proxy::{Deployment, Kind, Proxy};
use crate::support::raw::read_answer;
use crate::support::{ALL, Reply, Setup, TestServer, until, uuid};

/// Sends a request from the address `from` of this machine. Returns `None` if the proxy closes the
/// connection without a response.
///
/// The connection stays open after the response. If it did not, the proxy would close it before it
/// has read the whole body. The reset that follows can remove the response before a client reads it.
fn ask_from(from: Ipv4Addr, proxy: &Proxy, request: &str) -> Option<Reply> {
    let mut connection = proxy.connect_from(from).unwrap();
    // The request may be rejected before the whole body is sent.
    let _ = connection.write_all(request.as_bytes());
    read_answer(&mut BufReader::new(connection))
}

fn ask(proxy: &Proxy, request: &str) -> Reply {
    ask_from(Ipv4Addr::LOCALHOST, proxy, request).expect("a response")
}

fn probe(proxy: &Proxy) -> String {
    format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.host())
}

/// The proxy's own error in the form of the contract.
#[track_caller]
fn assert_refused(answer: &Reply, status: u16, code: &str) {
    let error = &answer.json()["error"];
    assert_eq!((answer.status, &error["status"]), (status, &status.into()), "{answer:?}");
    assert_eq!(error["code"], code, "{answer:?}");
    assert!(error["message"].is_string(), "{answer:?}");
    assert!(answer.header("Content-Type").unwrap().starts_with("application/json"), "{answer:?}");
    let retry_after = (status >= 500).then_some("1");
    assert_eq!(answer.header("Retry-After"), retry_after, "{answer:?}");
}

#[test]
fn a_body_over_64_kib_is_a_413_of_the_service_and_one_of_megabytes_is_cut() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL).key;
    let post = |proxy: &Proxy, length: usize| {
        let host = proxy.host();
        format!(
            "POST /customers.php HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{}",
            " ".repeat(length)
        )
    };
    for deployment in Deployment::all() {
        let proxy = deployment.start_with(server.address(), |text| text);
        ask(&proxy, &post(&proxy, 100_000)).fails_with(413, "payload_too_large");
        // Either the proxy's own limit applies first, or the service closes the connection.
        let request = post(&proxy, 3_000_000);
        if let Some(answer) = ask_from(Ipv4Addr::LOCALHOST, &proxy, &request) {
            let own = if answer.status == 413 { "payload_too_large" } else { "overloaded" };
            assert!(matches!(answer.status, 413 | 502), "{deployment:?}: {answer:?}");
            assert_refused(&answer, answer.status, own);
        }
    }
}

#[test]
fn a_service_that_is_stopped_is_a_502_at_once() {
    for deployment in Deployment::all() {
        let mut server = TestServer::start();
        let proxy = deployment.start_with(server.address(), |text| text);
        server.stop();
        let answer = ask(&proxy, &probe(&proxy));
        assert_refused(&answer, 502, "overloaded");
        assert!(answer.header("Strict-Transport-Security").is_some(), "{answer:?}");
    }
}

#[test]
fn a_service_that_does_not_answer_is_a_504() {
    for deployment in Deployment::all() {
        // It accepts connections and says nothing.
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = deployment.start_with(silent.local_addr().unwrap(), |text| {
            text.replace("read_timeout    65s", "read_timeout 100ms")
                .replace("header_timeout 65s", "header_timeout 100ms")
        });
        assert_refused(&ask(&proxy, &probe(&proxy)), 504, "overloaded");
    }
}

#[test]
fn a_burst_over_the_limit_of_nginx_gets_errors_of_the_contract() {
    let server = TestServer::start();
    for deployment in Deployment::all().filter(|deployment| deployment.kind == Kind::Nginx) {
        let proxy = deployment.start_with(server.address(), |text| {
            text.replace("rate=50r/s", "rate=1r/m").replace("burst=200", "burst=1")
        });
        let answers = [(); 3].map(|()| ask(&proxy, &probe(&proxy)));
        assert_eq!(answers[0].status, 200);
        assert_refused(&answers[2], 503, "overloaded");
    }
}

/// A client that has sent its key in the clear must not go on without a word.
#[test]
fn a_browser_is_sent_to_https_and_a_key_in_the_clear_is_refused() {
    let server = TestServer::start();
    for deployment in Deployment::all() {
        let proxy = deployment.start_with(server.address(), |text| text);
        let ask = |header: &str| {
            let mut connection = proxy.connect_plainly().unwrap();
            let host = proxy.host();
            let request = format!("GET /docs?a=b HTTP/1.1\r\nHost: {host}\r\n{header}\r\n");
            connection.write_all(request.as_bytes()).unwrap();
            read_answer(&mut BufReader::new(connection)).expect("a response")
        };
        let sent = ask("");
        assert_eq!(sent.status, 301, "{deployment:?}: {sent:?}");
        let location = format!("https://{}/docs?a=b", proxy.host());
        assert_eq!(sent.header("Location"), Some(location.as_str()));
        assert_eq!(ask("Authorization: Bearer x\r\n").status, 403, "{deployment:?}");
    }
}

#[test]
fn a_host_of_no_tenant_is_a_404() {
    let server = TestServer::start();
    for deployment in Deployment::all().filter(|deployment| deployment.several_machines) {
        let proxy = deployment.start(server.address());
        let request = "GET /customers.php HTTP/1.1\r\nHost: nobody.desk.example\r\n\r\n";
        assert_refused(&ask(&proxy, request), 404, "not_found");
    }
}

/// Caddy's own 431 has no body.
#[test]
fn an_address_that_is_too_long_for_nginx_is_a_414_of_the_contract() {
    let server = TestServer::start();
    for deployment in Deployment::all().filter(|deployment| deployment.kind == Kind::Nginx) {
        let proxy = deployment.start(server.address());
        let (path, host) = ("x".repeat(15_000), proxy.host());
        let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_refused(&ask(&proxy, &request), 414, "malformed_request");
    }
}

/// Sends a request with these headers through the proxy, from the address `from` of this machine,
/// and returns the entry of the service's access log.
fn logged(proxy: &Proxy, server: &TestServer, from: Ipv4Addr, headers: &str) -> Value {
    let (id, host) = (uuid(), proxy.host());
    let request = format!(
        "GET /customers.php HTTP/1.1\r\nHost: {host}\r\nX-Request-Id: {id}\r\n{headers}\r\n"
    );
    assert_eq!(ask_from(from, proxy, &request).unwrap().status, 401);
    until("the request is in the log", || {
        server
            .log()
            .lines()
            .find(|line| line.contains(&id))
            .map(|line| serde_json::from_str(line).unwrap())
    })
}

/// A server behind each proxy.
fn deployments() -> impl Iterator<Item = (TestServer, Proxy)> {
    Deployment::all().map(|deployment| {
        let server = Setup::plain().option("--log-format").option("json").start();
        let proxy = deployment.start(server.address());
        (server, proxy)
    })
}

#[test]
fn the_clients_own_address_is_logged_and_one_that_it_made_up_is_ignored() {
    let from = Ipv4Addr::new(127, 0, 0, 3);
    let forged = [
        "",
        "X-Forwarded-For: 203.0.113.9\r\n",
        "X-Forwarded-For: 203.0.113.9, 127.0.0.1\r\n",
        "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 203.0.113.10\r\n",
        "x-forwarded-for: nonsense\r\n",
        "Forwarded: for=203.0.113.9\r\nX-Real-IP: 203.0.113.9\r\nTrue-Client-IP: 203.0.113.9\r\n",
        "Connection: X-Forwarded-For\r\nX-Forwarded-For: 203.0.113.9\r\n",
    ];
    for (server, proxy) in deployments() {
        for headers in forged {
            assert_eq!(
                logged(&proxy, &server, from, headers)["client"],
                from.to_string(),
                "{headers}"
            );
        }
    }
}

/// A browser without `Sec-Fetch-Site` sends a form through the proxy. The panel compares `Origin` and
/// `Host` as they arrive.
#[test]
fn a_sign_in_through_https_sets_a_secure_cookie() {
    for (server, proxy) in deployments() {
        let tenant = server.tenant("acme");
        let sign_in =
            [("action", "sign-in"), ("tenant", &*tenant.name), ("password", &tenant.password)];
        let form = encode(&sign_in);
        let send = |origin: &str| {
            let (host, length) = (proxy.host(), form.len());
            let head =
                format!("POST /api_keys.php HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n");
            ask(&proxy, &format!("{head}Content-Length: {length}\r\n\r\n{form}"))
        };
        let signed_in = send(&format!("https://{}", proxy.host())).is(303);
        assert!(signed_in.header("Set-Cookie").unwrap().contains("Secure"), "{signed_in}");
        send("https://evil.example").is(403);
    }
}

/// Of the loopback addresses, the examples name 127.0.0.1 alone. The others are outside.
#[test]
fn the_panel_and_readiness_are_for_private_networks_only() {
    let (inside, outside) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    for (_server, proxy) in deployments() {
        let status = |from: Ipv4Addr, target: &str| {
            let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.host());
            ask_from(from, &proxy, &request).unwrap().status
        };
        for target in ["/api_keys.php", "/readyz"] {
            assert_eq!(status(inside, target), 200, "{target}");
        }
        assert_eq!(status(outside, "/docs"), 200);
        let same = ["/api_keys.php?x=1", "/api%5Fkeys.php", "/./api_keys.php"];
        for target in ["/api_keys.php", "/readyz"].into_iter().chain(same) {
            assert_eq!(status(outside, target), 403, "{target}");
        }
    }
}
