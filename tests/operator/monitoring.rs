//! `examples/monitoring`: the alerts pass their tests, and each query of the dashboard has a result
//! while Prometheus scrapes the server. `examples/alert` sends its message to each address.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::examples::{example, has};
use super::metrics::{metrics_address, samples};
use crate::support::client::exchange;
use crate::support::{ALL, Api, Setup, TestServer, encoded, until};

/// The metrics of `prometheus-node-exporter` that the alerts use.
const OF_THE_MACHINE: [&str; 4] = [
    "node_filesystem_avail_bytes",
    "node_filesystem_size_bytes",
    "node_systemd_timer_last_trigger_seconds",
    "node_systemd_unit_state",
];

fn metered() -> (TestServer, Api, SocketAddr) {
    let server =
        Setup::without_rate_limit().option("--metrics-listen").option("127.0.0.1:0").start();
    let api = server.with_key(&server.tenant("acme").key(ALL).key);
    let metrics = metrics_address(&server);
    (server, api, metrics)
}

/// Every query of the dashboard, for all servers, over 5 s.
fn queries() -> Vec<String> {
    fn gather(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("expr").map(|expr| expr.as_str().unwrap().to_owned()));
                members.values().for_each(|value| gather(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| gather(value, found)),
            _ => {}
        }
    }
    let dashboard = read_to_string(example("monitoring/dashboard.json")).unwrap();
    let mut found = Vec::new();
    gather(&serde_json::from_str(&dashboard).unwrap(), &mut found);
    assert!(found.len() > 15, "{found:?}");
    found
        .iter()
        .map(|query| query.replace("$__rate_interval", "5s").replace("$instance", ".*"))
        .collect()
}

#[test]
fn the_alerts_pass_their_tests() {
    if !has("promtool", "--version") {
        return;
    }
    for arguments in [
        &["check", "config", "prometheus.yml"][..],
        &["check", "rules", "tenantdesk.rules.yml"],
        &["test", "rules", "tenantdesk.test.yml"],
    ] {
        let mut command = Command::new("promtool");
        let output = command.args(arguments).current_dir(example("monitoring")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn the_server_has_every_metric_that_the_alerts_and_the_dashboard_use() {
    let (_server, api, metrics) = metered();
    api.customer("Shop");
    let exposed = until("the request is counted", || {
        let exposed = samples(metrics);
        exposed.keys().any(|series| series.contains("POST")).then_some(exposed)
    });
    let exposed: BTreeSet<&str> =
        exposed.keys().map(|series| series.split('{').next().unwrap()).collect();
    let rules = read_to_string(example("monitoring/tenantdesk.rules.yml")).unwrap();
    let expressions = rules.lines().filter(|line| !line.contains('#')).map(str::to_owned);
    let text: Vec<String> = expressions.chain(queries()).collect();
    let words = text.iter().flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let named: BTreeSet<&str> = words
        .filter(|word| ["tenantdesk_", "process_", "node_"].iter().any(|p| word.starts_with(p)))
        .collect();
    assert!(named.len() > 10, "{named:?}");
    for name in named {
        assert!(exposed.contains(name) || OF_THE_MACHINE.contains(&name), "there is no {name}");
    }
}

/// A Prometheus that scrapes `metrics`.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    fn start(metrics: SocketAddr) -> Prometheus {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("prometheus.yml");
        let scrape = json!({"job_name": "tenantdesk", "static_configs": [{"targets": [metrics]}]});
        let text = json!({"global": {"scrape_interval": "500ms"}, "scrape_configs": [scrape]});
        std::fs::write(&config, text.to_string()).unwrap();
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines
            .find_map(|line| {
                let text = line.contains("Listening on").then_some(line)?;
                text.rsplit_once("address=")?.1.parse().ok()
            })
            .expect("Prometheus says where it listens");
        std::thread::spawn(move || lines.for_each(drop));
        Prometheus { child, address, _directory: directory }
    }

    /// The values that a query has now.
    fn ask(&self, query: &str) -> Vec<f64> {
        let request = format!("GET /api/v1/query?query={} HTTP/1.0\r\n\r\n", encoded(query));
        let answer = String::from_utf8(exchange(self.address, request.as_bytes())).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        // 503 until it is ready.
        assert!(head.contains(" 200 ") || head.contains(" 503 "), "{query}: {answer}");
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let found = body["data"]["result"].as_array().cloned().unwrap_or_default();
        found.iter().map(|sample| sample["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "takes 6 s; .ci/run runs it"]
fn long_each_query_of_the_dashboard_has_a_result_under_load() {
    if !has("prometheus", "--version") {
        return;
    }
    let (_server, api, metrics) = metered();
    let prometheus = Prometheus::start(metrics);
    for query in queries() {
        until(&format!("there is a result for {query}"), || {
            let id = api.customer("Shop");
            api.get(&format!("/customers.php?id={id}")).is(200);
            let values = prometheus.ask(&query);
            (!values.is_empty() && values.iter().all(|value| value.is_finite())).then_some(())
        });
    }
}

/// The message that the script sends on its next connection. The answer to the line `asked` is
/// `answer`, and to any other line `other`.
fn hear(listener: &TcpListener, (asked, answer): (&str, &str), other: &str) -> String {
    let (mut connection, _) = until("the script connects", || listener.accept().ok());
    connection.set_nonblocking(false).unwrap();
    connection.write_all(other.as_bytes()).unwrap();
    let mut heard = String::new();
    for line in BufReader::new(connection.try_clone().unwrap()).lines().map_while(Result::ok) {
        let text = if line == asked { answer } else { other };
        // curl has closed the connection after its last line.
        let _ = connection.write_all(text.as_bytes());
        heard += &format!("{line}\n");
    }
    heard
}

fn hear_request(listener: &TcpListener) -> String {
    hear(listener, ("", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "")
}

#[test]
fn an_alert_goes_to_each_address_and_a_push_to_the_dead_mans_switch() {
    if !has("curl", "--version") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let alert = |what: &str| {
        let mut script = Command::new(example("alert/tenantdesk-alert"));
        script.arg(what).env("ALERT_POST", format!("http://{address}/topic"));
        script.env("ALERT_GET", format!("http://{address}/api/push/1?status=down"));
        script.env("ALERT_MAIL", "admin@shop.example").env("ALERT_FROM", "desk@shop.example");
        script.env("ALERT_SMTP", format!("smtp://{address}"));
        script.env("ALIVE_URL", format!("http://{address}/alive")).spawn().unwrap()
    };
    let mut script = alert("tenantdesk.service");
    let post = hear_request(&listener);
    assert!(post.starts_with("POST /topic ") && post.contains("Title: TenantDesk on "), "{post}");
    assert!(post.contains(": tenantdesk.service failed\n"), "{post}");
    let get = hear_request(&listener);
    assert!(get.starts_with("GET /api/push/1?status=down&msg=TenantDesk"), "{get}");
    let mail = hear(&listener, ("DATA", "354 Send it.\r\n"), "250 Yes.\r\n");
    for line in
        ["MAIL FROM:<desk@shop.example>", "RCPT TO:<admin@shop.example>", "Subject: TenantDesk on "]
    {
        assert!(mail.contains(line), "{line}: {mail}");
    }
    assert!(script.wait().unwrap().success());

    let mut script = alert("backup-done");
    let push = hear_request(&listener);
    assert!(push.starts_with("GET /alive "), "{push}");
    assert!(script.wait().unwrap().success());
    assert!(listener.accept().is_err(), "a push is no alert");

    let script = Command::new(example("alert/tenantdesk-alert")).arg("test").output().unwrap();
    assert_eq!(script.status.code(), Some(1), "no address is set");
    assert!(String::from_utf8(script.stderr).unwrap().contains("set ALERT_POST"));
}

/// systemd would take a wrapped comment for a setting that it does not know.
#[test]
fn each_line_of_the_alerts_settings_is_a_comment_or_a_variable() {
    let readme = read_to_string(example("alert/README.md")).unwrap();
    let settings = readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    for line in settings.lines() {
        assert!(line.starts_with("# ") || line.starts_with("AL") && line.contains('='), "{line}");
    }
    assert!(settings.contains("\nALERT_POST="));
}
