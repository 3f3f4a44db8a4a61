//! `examples/monitoring`: the alerts pass their tests, and the queries of the dashboard are ones of
//! Prometheus that name metrics of the server. `examples/alert` sends its message to each address.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use super::metrics::{metrics_address, samples};
use crate::support::{ALL, Setup, example, until};

/// The metrics of `prometheus-node-exporter` that the alerts use.
const OF_THE_MACHINE: [&str; 2] =
    ["node_systemd_timer_last_trigger_seconds", "node_systemd_unit_state"];

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
#[ignore = "needs promtool; `make proof` runs it"]
fn proof_the_alerts_pass_their_tests() {
    for arguments in [
        &["check", "config", "prometheus.yml"][..],
        &["check", "rules", "tenantdesk.rules.yml"],
        &["test", "rules", "tenantdesk.test.yml"],
    ] {
        let mut command = Command::new("promtool");
        let output = command.args(arguments).current_dir(example("monitoring")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    // A query of the dashboard must also be one that a rule may have.
    let rule = |query: String| json!({"record": "query", "expr": query});
    let rules: Vec<Value> = queries().into_iter().map(rule).collect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dashboard.rules.yml");
    let groups = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    std::fs::write(&file, groups.to_string()).unwrap();
    let check = ["check", "rules", "--lint=none"];
    let output = Command::new("promtool").args(check).arg(&file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_server_has_every_metric_that_the_alerts_and_the_dashboard_use() {
    let server =
        Setup::without_rate_limit().option("--metrics-listen").option("127.0.0.1:0").start();
    let metrics = metrics_address(&server);
    server.tenant("acme").with_scopes(ALL).customer("Shop");
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
#[ignore = "needs curl; `make proof` runs it"]
fn proof_an_alert_goes_to_each_address_and_a_push_to_the_dead_mans_switch() {
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
