//! `/metrics` on its own listener.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::support::client::{exchange, peek};
use crate::support::{ALL, DataDir, Setup, TestServer, until, uuid};

fn metered() -> (TestServer, SocketAddr) {
    let server = Setup::plain()
        .option("--metrics-listen")
        .option("127.0.0.1:0")
        .option("--rate-limit")
        .option("4")
        .start();
    let address = metrics_address(&server);
    (server, address)
}

/// The address at which a server with `--metrics-listen` serves the metrics.
pub(crate) fn metrics_address(server: &TestServer) -> SocketAddr {
    let output = server.output();
    let address = output
        .lines()
        .find_map(|line| line.strip_prefix("metrics on http://")?.strip_suffix("/metrics"));
    address.unwrap().parse().unwrap()
}

fn ask(address: SocketAddr, method: &str, path: &str) -> String {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n");
    String::from_utf8(exchange(address, request.as_bytes())).unwrap()
}

/// Every sample by its name and labels. Each has a type and a help text before it.
pub(crate) fn samples(address: SocketAddr) -> BTreeMap<String, f64> {
    let answer = ask(address, "GET", "/metrics");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    let mut found = BTreeMap::new();
    let mut family = String::new();
    for line in body.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            family = declared.split(' ').next().unwrap().to_owned();
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&family), "{line} stands below {family}");
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert_eq!(
                found.insert(series.to_owned(), value.parse().unwrap()),
                None,
                "{series} comes twice"
            );
        }
    }
    found
}

fn requests(route: &str, method: &str, status: u16) -> String {
    format!(
        "tenantdesk_requests_total{{route=\"{route}\",method=\"{method}\",status=\"{status}\"}}"
    )
}

#[test]
fn requests_are_counted_and_nobody_is_named() {
    let (server, metrics) = metered();
    let tenant = server.tenant("quite-private");
    let key = tenant.key(ALL);
    let api = server.with_key(&key.key);
    let retry = uuid();
    for _ in 0..2 {
        api.call("POST", "/v1/customers.php")
            .json(&json!({"name": "Somebody"}))
            .key(&retry)
            .send()
            .is(201);
    }
    api.get("/customers.php?id=1").is(200);
    api.get("/customers.php?id=9").is(404);
    api.get("/customers.php").is(429);
    server.anonymous().get("/nowhere-at-all").is(404);
    server.anonymous().call("BREW", "/employees.php").send().is(401);
    exchange(server.address(), b"GET /healthz HTTP/1.1\r\n\r\n");
    // Counted when the answer is written, which its reader may notice first.
    let found = until("all are counted", || {
        let found = samples(metrics);
        let counts = found.iter().filter(|(name, _)| name.starts_with("tenantdesk_requests_total"));
        (counts.map(|(_, count)| count).sum::<f64>() == 8.0).then_some(found)
    });
    assert_eq!(found[&requests("/healthz", "GET", 400)], 1.0);
    assert_eq!(found[&requests("/customers.php", "POST", 201)], 2.0);
    assert_eq!(found[&requests("/customers.php", "GET", 200)], 1.0);
    assert_eq!(found[&requests("/customers.php", "GET", 404)], 1.0);
    assert_eq!(found[&requests("/customers.php", "GET", 429)], 1.0);
    assert_eq!(found[&requests("/employees.php", "OTHER", 401)], 1.0);
    assert_eq!(found[&requests("other", "GET", 404)], 1.0);
    let posts = "{route=\"/customers.php\",method=\"POST\"}";
    assert_eq!(found[&format!("tenantdesk_request_duration_seconds_count{posts}")], 2.0);
    assert_eq!(found["tenantdesk_workers_busy"], 0.0);
    assert!(found["process_resident_memory_bytes"] > 1e6 && found["process_open_fds"] > 5.0);
    let page = ask(metrics, "GET", "/metrics");
    for name in ["quite-private", &key.prefix, "nowhere", "BREW"] {
        assert!(!page.contains(name), "{name} is in {page}");
    }
}

#[test]
fn idle_connections_do_not_hold_up_the_listener() {
    let (_server, metrics) = metered();
    let idle: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(metrics).unwrap()).collect();
    assert!(ask(metrics, "GET", "/metrics").starts_with("HTTP/1.1 200"));
    let is_open = |connection: &TcpStream| peek(connection).is_err();
    assert!(idle.iter().any(is_open), "the request waited for the end of idle connections");
}

#[test]
fn the_listener_answers_nothing_else_and_the_service_answers_no_metrics() {
    let (server, metrics) = metered();
    server.anonymous().get("/metrics").fails_with(404, "endpoint_not_found");
    assert!(ask(metrics, "GET", "/customers.php").starts_with("HTTP/1.1 404"));
    assert!(ask(metrics, "HEAD", "/metrics").ends_with("\r\n\r\n"));
    assert!(ask(metrics, "GET", "/metrics?x=1").starts_with("HTTP/1.1 200"));
    let taken = metrics.to_string();
    server
        .cli(&["serve", "--listen", "127.0.0.1:0", "--metrics-listen", &taken])
        .fails_saying("serves");
    let plain = TestServer::start();
    assert!(!plain.output().contains("metrics"), "off unless asked for");
}

#[test]
#[ignore = "takes 5 s; `make proof` runs it"]
fn proof_a_log_that_nobody_reads_does_not_stop_the_service() {
    let data_dir = DataDir::new(false);
    let mut command = data_dir.command();
    command.arg("--data-dir").arg(data_dir.data()).args(["--json", "serve"]);
    command.args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut started = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut started).unwrap();
    let started: Value = serde_json::from_str(&started).unwrap();
    let address = |member: &str| -> SocketAddr {
        let url = started[member].as_str().unwrap().trim_start_matches("http://");
        url.trim_end_matches("/metrics").parse().unwrap()
    };
    // The pipe of standard error, which nobody reads, is full before the first line is lost.
    let last = "GET /nowhere HTTP/1.1\r\nHost: desk\r\nConnection: close\r\n\r\n";
    let requests = "GET /nowhere HTTP/1.1\r\nHost: desk\r\n\r\n".repeat(999) + last;
    let loses_lines = |_| {
        let answers = exchange(address("listening"), requests.as_bytes());
        assert_eq!(String::from_utf8(answers).unwrap().matches("HTTP/1.1 404").count(), 1_000);
        samples(address("metrics"))["tenantdesk_log_lines_lost_total"] > 0.0
    };
    assert!((0..40).any(loses_lines), "no line of 40,000 was lost");
    let pid = Pid::from_child(&server);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
}
