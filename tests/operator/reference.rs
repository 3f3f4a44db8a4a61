//! The examples of the page `/docs` succeed as printed, in the order of the page. Each printed
//! response is the response to its request.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::TestServer;

/// A request of the page, and the response below it: the status, and the body if there is one.
struct Example {
    command: String,
    response: String,
}

fn examples(page: &str) -> Vec<Example> {
    let code = |html: &str| {
        let (_, rest) = html.split_once("<code>")?;
        let text = rest.split_once("</code>")?.0.replace("&#60;", "<").replace("&#62;", ">");
        Some(text.replace("&#34;", "\"").replace("&#39;", "'").replace("&#38;", "&"))
    };
    let figures = page.split(r#"<figure class="code request">"#).skip(1);
    let example = |figure: &str| {
        let (_, response) = figure.split_once("<figcaption>Response ").unwrap();
        let (response, _) = response.split_once("</figure>").unwrap();
        let body = code(response).map_or(String::new(), |body| format!("\n{body}"));
        Example { command: code(figure).unwrap(), response: format!("{}{body}", &response[..3]) }
    };
    figures.map(example).collect()
}

/// The response with fixed values in place of times, versions, cursors and ids of requests.
fn recorded(printed: &str) -> String {
    fn fix(name: &str, value: &mut Value) {
        match (name, &mut *value) {
            (_, Value::Object(members)) => {
                members.iter_mut().for_each(|(name, one)| fix(name, one))
            }
            (_, Value::Array(items)) => items.iter_mut().for_each(|one| fix("", one)),
            (_, Value::Null) => {}
            ("created_at" | "updated_at" | "at", _) => *value = json!("2026-11-20T19:30:00Z"),
            ("etag", _) => *value = json!("\"8412350017\""),
            ("seq", _) => *value = json!(8_412_350_017_i64),
            ("next_cursor", _) => *value = json!("AXJ0ZW5hbnRkZQAAAAAAAAABaQAAAAAAAAABJ3y5cPzGmQ4"),
            ("request_id", _) => *value = json!("6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d"),
            ("prefix", _) => *value = json!("tdk_Ab3d"),
            ("server", _) => *value = json!("0.4.0"),
            _ => {}
        }
    }
    let (body, status) = printed.trim_end().rsplit_once('\n').unwrap_or(("", printed));
    let Ok(mut body) = serde_json::from_str(body) else { return status.to_owned() };
    fix("", &mut body);
    format!("{status}\n{body:#}")
}

/// A directory with the programs that the page may use, and curl's settings for this test.
fn tools(directory: &Path) {
    for name in ["curl", "cat", "cut", "grep"] {
        let program = Path::new("/usr/bin").join(name);
        std::os::unix::fs::symlink(program, directory.join(name)).unwrap();
    }
    let settings = "silent\nshow-error\nwrite-out = \"\\n%{http_code}\"\n";
    std::fs::write(directory.join(".curlrc"), settings).unwrap();
}

/// `UPDATE_GOLDEN=1 cargo test --test operator reference` records the responses.
#[test]
fn the_examples_of_the_reference_run_as_printed() {
    let server = TestServer::start();
    let _ = server.tenant("acme");
    let key = ["--json", "key", "create", "acme", "--name", "Web shop", "--scope", "all"];
    let key = server.cli(&key).done().json()["key"].as_str().unwrap().to_owned();
    let url = format!("http://{}", server.address());
    let home = tempfile::tempdir().unwrap();
    tools(home.path());
    let examples = examples(&server.anonymous().get("/docs").text());
    let first = &examples.first().unwrap().command;
    assert!(
        first.starts_with("export TENANTDESK_URL=http://127.0.0.1:8080\nexport TENANTDESK_KEY=")
    );
    let mut responses = Vec::new();
    for Example { command, response } in examples {
        let command = command.replace("http://127.0.0.1:8080", &url).replace("tdk_…", &key);
        let output = Command::new("/bin/sh")
            .args(["-e", "-c", &command])
            .env_clear()
            .envs([("TENANTDESK_URL", &url), ("TENANTDESK_KEY", &key)])
            .envs([("PATH", home.path()), ("CURL_HOME", home.path())])
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{command}: {output:?}");
        let answered = recorded(&String::from_utf8(output.stdout).unwrap());
        let may_differ = std::env::var_os("UPDATE_GOLDEN").is_some();
        assert!(may_differ || answered == response, "{command}\n{answered}\nis not\n{response}");
        assert!(answered.starts_with('2'), "{command}\n{answered}");
        responses.push(answered);
    }
    assert!(responses.len() > 20, "the page has its examples");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        record(&responses);
    }
}

/// Writes the responses into the file from which the page takes its examples.
fn record(responses: &[String]) {
    let file: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reference/docs/examples.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (mut new, old) = text.split_once("\nResponse ").map(|(a, b)| (a.to_owned(), b)).unwrap();
    for (response, old) in responses.iter().zip(old.split("\nResponse ")) {
        let rest = old.find("\n##").map_or("\n", |at| &old[at..]);
        new += &match response.split_once('\n') {
            Some((status, body)) => format!("\nResponse {status}\n\n```json\n{body}\n```\n{rest}"),
            None => format!("\nResponse {response}\n{rest}"),
        };
    }
    std::fs::write(file, new.trim_end().to_owned() + "\n").unwrap();
}
