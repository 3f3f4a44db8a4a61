//! `docs/guide.md`, which is the first part of `/docs`: its requests and scripts run in their order
//! for a new tenant, and each response in it is the response to its request.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Api, TestServer};

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide.md")
}

/// The values that differ in each run, and what the guide has in their place. Each version and each
/// cursor has a value of its own, so a request can repeat what a response had.
#[derive(Default)]
struct StandIns {
    pairs: Vec<(String, String)>,
}

impl StandIns {
    fn for_version(&mut self, version: &str) -> String {
        let number = self.pairs.len();
        self.stand_in(version, format!("{}", 8_412_350_017 + number))
    }

    fn for_cursor(&mut self, cursor: &str) -> String {
        let number = self.pairs.len();
        self.stand_in(cursor, format!("bQ7kT1hPz0{number:02}"))
    }

    fn stand_in(&mut self, real: &str, new: String) -> String {
        if let Some((_, known)) = self.pairs.iter().find(|(known, _)| known == real) {
            return known.clone();
        }
        self.pairs.push((real.to_owned(), new.clone()));
        new
    }

    /// A request of the guide as the server understands it.
    fn sent(&self, text: &str) -> String {
        self.pairs.iter().fold(text.to_owned(), |text, (real, known)| text.replace(known, real))
    }

    /// A header of a response as the guide has it.
    fn printed(&mut self, name: &str, value: &str) -> String {
        if name.eq_ignore_ascii_case("etag") {
            return format!("\"{}\"", self.for_version(value.trim_matches('"')));
        }
        self.pairs.iter().fold(value.to_owned(), |text, (real, known)| text.replace(real, known))
    }

    /// A body as the guide has it: without members of a record that are null, empty or times.
    fn body(&mut self, body: &[u8]) -> String {
        let mut body: Value = serde_json::from_slice(body).unwrap();
        self.fix("", &mut body);
        format!("{body:#}")
    }

    fn fix(&mut self, name: &str, value: &mut Value) {
        match (name, &mut *value) {
            (_, Value::Object(members)) => {
                if members.contains_key("etag") && members.contains_key("updated_at") {
                    members.retain(|name, member| {
                        let is_time = name == "created_at" || name == "updated_at";
                        !is_time && !member.is_null() && *member != json!({})
                    });
                }
                members.iter_mut().for_each(|(name, member)| self.fix(name, member));
            }
            (_, Value::Array(items)) => items.iter_mut().for_each(|item| self.fix("", item)),
            (_, Value::Null) => {}
            ("created_at" | "updated_at" | "at", _) => *value = json!("2026-11-20T19:30:00Z"),
            ("etag", Value::String(tag)) => *tag = self.printed("etag", tag),
            ("seq", seq) => *seq = self.for_version(&seq.to_string()).parse().unwrap(),
            ("next_cursor", Value::String(cursor)) => *cursor = self.for_cursor(cursor),
            ("request_id", _) => *value = json!("b1f0c7de-7a8e-4f0a-9d53-0c1d5a1e6f42"),
            ("prefix", _) => *value = json!("tdk_Ab3d"),
            ("server", _) => *value = json!(env!("CARGO_PKG_VERSION")),
            _ => {}
        }
    }
}

/// Sends the request of a block, and returns the response in the form of the block `expected`: with
/// the same headers.
fn exchange(api: &Api, request: &str, expected: &str, stand_ins: &mut StandIns) -> String {
    let request = stand_ins.sent(request);
    let (head, body) = request.split_once("\n\n").unwrap_or((&request, ""));
    let mut lines = head.lines();
    let first = lines.next().unwrap().strip_suffix(" HTTP/1.1").unwrap();
    let (method, target) = first.split_once(' ').unwrap();
    let mut call = api.call(method, target);
    for (name, value) in lines.map(|line| line.split_once(": ").unwrap()) {
        call = call.header(name, value);
    }
    if !body.is_empty() {
        call = call.header("Content-Type", "application/json").body(body);
    }
    let reply = call.send();
    let body = stand_ins.body(&reply.body);
    let (head, _) = expected.split_once("\n\n").unwrap_or((expected, ""));
    let mut lines = head.lines();
    let status = lines.next().unwrap();
    let begin = format!("HTTP/1.1 {} ", reply.status);
    assert!(status.starts_with(&begin), "{request}\n{reply}");
    let mut printed = status.to_owned();
    for name in lines.map(|line| line.split_once(':').unwrap().0) {
        let value = stand_ins.printed(name, reply.header(name).unwrap_or_default());
        printed += &format!("\n{name}: {value}");
    }
    printed + "\n\n" + &body
}

/// Runs a script beside the served clients, and returns its standard output.
fn run(server: &TestServer, key: &str, program: &str, arguments: &[&str], script: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    for client in ["tenantdesk.py", "tenantdesk.mjs"] {
        let text = server.anonymous().get(&format!("/docs/{client}")).is(200).body;
        std::fs::write(directory.path().join(client), text).unwrap();
    }
    std::fs::write(directory.path().join(".curlrc"), "silent\nshow-error\nfail\n").unwrap();
    let url = format!("http://{}", server.address());
    let script = script.replace("http://127.0.0.1:8080", &url).replace("tdk_…", key);
    std::fs::write(directory.path().join("script.mjs"), &script).unwrap();
    let output = Command::new(program)
        .args(arguments)
        .args((program != "node").then_some(&script))
        .current_dir(directory.path())
        .env("CURL_HOME", directory.path())
        .envs([("TENANTDESK_URL", url.as_str()), ("TENANTDESK_KEY", key)])
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{script}: {output:?}");
    output.stdout
}

/// `UPDATE_GOLDEN=1 cargo test --test examples guide` records the responses.
#[test]
fn the_examples_of_the_guide_run_in_their_order() {
    let server = TestServer::start();
    let _ = server.tenant("acme");
    let key = ["--json", "key", "create", "acme", "--name", "Web shop", "--scope", "all"];
    let key = server.cli(&key).done().json()["key"].as_str().unwrap().to_owned();
    let api = server.with_key(&key);
    let text = std::fs::read_to_string(file()).unwrap();
    let (mut stand_ins, mut recorded) = (StandIns::default(), String::new());
    let (mut output, mut request) = (Vec::new(), None);
    // Text and blocks alternate. After a request follows its response.
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 0 {
            recorded += part;
            continue;
        }
        let (language, block) = part.split_once('\n').unwrap();
        let block = block.trim_end();
        let mut printed = block.to_owned();
        match (language, request.take()) {
            ("sh", _) => output = run(&server, &key, "sh", &["-e", "-c"], block),
            ("json", _) => printed = stand_ins.body(&output),
            ("python", _) => _ = run(&server, &key, "python3", &["-B", "-c"], block),
            ("js", _) => _ = run(&server, &key, "node", &["script.mjs"], block),
            ("http", None) => request = Some(block),
            ("http", Some(request)) => printed = exchange(&api, request, block, &mut stand_ins),
            _ => {}
        }
        recorded += &format!("```{language}\n{printed}\n```");
    }
    assert!(request.is_none() && recorded.matches("```http").count() > 20);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(file(), &recorded).unwrap();
    }
    let differ = text.lines().zip(recorded.lines()).find(|(old, new)| old != new);
    assert_eq!(differ, None, "UPDATE_GOLDEN=1 cargo test --test examples guide");
}
