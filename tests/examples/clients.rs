//! `examples/` is what users copy: here it runs against the real binary.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{ALL, Api, TestServer, example};

fn desk_with_a_key() -> (TestServer, Api, String) {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL).key;
    let api = server.with_key(&key);
    (server, api, key)
}

fn path_with_the_binary() -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_tenantdesk"));
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", binary.parent().unwrap().display())
}

/// Runs a program against the server and returns what it prints.
fn run(server: &TestServer, key: &str, program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .env("TENANTDESK_URL", format!("http://{}", server.address()))
        .env("TENANTDESK_KEY", key)
        .env("TENANTDESK_TENANT", "acme")
        .env("TENANTDESK_DATA_DIR", server.data())
        .env("PATH", path_with_the_binary())
        .current_dir(example("clients"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complained}");
    said.into_owned()
}

#[test]
fn the_walk_through_ends_as_it_should_and_leaves_nothing_behind() {
    let (server, api, key) = desk_with_a_key();
    let said = run(&server, &key, example("walkthrough.sh").to_str().unwrap(), &[], "");
    assert!(said.ends_with("All as it should be.\n"), "{said}");
    assert!(!said.contains(&key), "the key is not shown");
    for path in ["/customers.php", "/employees.php", "/hardware.php"] {
        assert_eq!(api.total(path), 0, "{path}");
    }
}

#[test]
fn the_mistake_in_the_readme_gets_the_answer_that_it_shows() {
    let readme = fs::read_to_string(example("../README.md")).unwrap();
    let (_, part) = readme.split_once("\n## The API\n").unwrap();
    let block = |language: &str| {
        let (_, text) = part.split_once(&format!("```{language}\n")).unwrap();
        text.split("```").next().unwrap()
    };
    let (head, request) = block("sh").split_once('\n').unwrap();
    assert!(head.starts_with("export TENANTDESK_URL="), "{head}");
    let (server, _, key) = desk_with_a_key();
    let said = run(&server, &key, "sh", &["-euc", &request.replace("curl ", "curl -sS ")], "");
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(parse(&said), parse(block("json")));
}

#[test]
fn clients_register_a_computer_twice_without_a_double() {
    let (server, api, key) = desk_with_a_key();
    let python = r#"
import os
from register import register
from tenantdesk import Desk
desk = Desk(os.environ["TENANTDESK_URL"], os.environ["TENANTDESK_KEY"])
made, again = [register(desk, "C-1", "E-1", "eva@mueller.example", "S-1") for _ in range(2)]
other = register(desk, "C-2", "E-1", "eva@other.example", "S-2")
assert other == [(resource, 2, True) for resource in ["customers", "employees", "hardware"]]
assert desk.get("hardware", 2)["employee_id"] == 2
resources = ["customers", "employees", "hardware"]
assert [made, again] == [[(resource, 1, is_new) for resource in resources] for is_new in [True, False]]
for placeholder in ["Default string", "To be filled by O.E.M.", "System Serial Number", "Not Specified", "0", "None", "", "123456789"]:
    try:
        register(desk, "C-3", "E-2", "bob@mueller.example", placeholder)
    except SystemExit as refusal:
        assert repr(placeholder) in refusal.code and "no serial number" in refusal.code
    else:
        raise AssertionError(placeholder)
"#;
    run(&server, &key, "python3", &["-B", "-c", python], "");
    assert_eq!(["/customers.php", "/hardware.php"].map(|list| api.total(list)), [2, 2]);
}

/// Runs `register.py` as a program. `arguments` follow the address.
fn run_register(server: &TestServer, key: &str, arguments: &[&str]) -> std::process::Output {
    let url = format!("http://{}", server.address());
    let mut command = Command::new("python3");
    command.args(["-B", "register.py"]).current_dir(example("clients"));
    command.args(arguments.first().map(|_| &url)).args(arguments);
    command.env("TENANTDESK_KEY", key).output().unwrap()
}

#[test]
fn a_computer_registers_itself_and_keeps_what_the_office_typed() {
    let (server, api, key) = desk_with_a_key();
    api.create("/customers.php", json!({"name": "Müller GmbH", "customer_number": "K-77"}));
    api.create(
        "/hardware.php",
        json!({"name": "Eva's laptop", "serial_number": "PF-900",
        "status": "in_repair", "type": "tablet", "custom": {"os": "BeOS", "room": "2.14"}}),
    );
    let customer = api.get("/customers.php?id=1").found();
    let arguments = ["K-77", "E-77", "eva@mueller.example", "PF-900"];
    let output = run_register(&server, &key, &arguments);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "found customers 1\ncreated employees 1\nfound hardware 1\n", "{output:?}");
    assert_eq!(api.get("/customers.php?id=1").found(), customer);
    assert_eq!(api.get("/employees.php?id=1").found()["customer_id"], 1);
    let laptop = api.get("/hardware.php?id=1").found();
    assert_ne!(laptop["custom"]["os"], "BeOS");
    assert_eq!(
        ["name", "status", "type", "employee_id"].map(|field| laptop[field].clone()),
        [json!("Eva's laptop"), json!("in_repair"), json!("tablet"), Value::Null],
    );
    assert_eq!(laptop["custom"]["room"], "2.14");
    run_register(&server, &key, &arguments);
    assert_eq!(api.get("/hardware.php?id=1").found(), laptop);
}

#[test]
fn the_registration_of_a_computer_says_what_it_lacks() {
    let (server, _, key) = desk_with_a_key();
    let complete = ["K-1", "E-1", "eva@mueller.example", "PF-1"];
    let serial_number = Path::new("/sys/class/dmi/id/product_serial");
    for (key, arguments, expected) in [
        (&*key, &[][..], "usage: register.py"),
        ("", &complete, "TENANTDESK_KEY"),
        ("tdk_wrong", &complete, "401"),
        (&key, &complete[..3], "pass the serial number"),
    ] {
        if arguments.len() == 3 && fs::read(serial_number).is_ok() {
            continue;
        }
        let output = run_register(&server, key, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
        assert!(!said.contains("Traceback"), "{said}");
    }
}

#[test]
fn the_assistant_reads_records_and_says_why_it_cannot() {
    let (server, api, key) = desk_with_a_key();
    api.customer("Müller & Söhne GmbH");
    let call = |id: u8, tool: &str, arguments: Value| {
        let parameters = json!({"name": tool, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": parameters})
    };
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        call(3, "search", json!({"resource": "customers", "words": "müller"})),
        call(4, "select", json!({"resource": "customers", "filters": {"status": "active"}})),
        call(5, "get", json!({"resource": "customers", "id": 1})),
        call(6, "history", json!({"resource": "customers", "id": 1})),
        call(7, "get", json!({"resource": "customers", "id": 99})),
        call(8, "get", json!({"resource": "api_keys", "id": 1})),
        json!({"jsonrpc": "2.0", "id": 9, "method": "prompts/list"}),
    ];
    let input: String = messages.iter().map(|message| format!("{message}\n")).collect();
    let program = example("recipes/assistant.py");
    let said = run(&server, &key, "python3", &["-B", program.to_str().unwrap()], &input);
    let answers: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), messages.len() - 1, "a notification has no answer: {said}");
    assert_eq!(answers[1]["result"]["tools"].as_array().unwrap().len(), 4);
    let texts = answers[2..8].iter().map(|answer| answer["result"]["content"][0]["text"].as_str());
    let texts: Vec<&str> = texts.map(Option::unwrap).collect();
    for text in &texts[..3] {
        assert!(text.contains("Müller & Söhne GmbH"), "{text}");
    }
    assert!(texts[3].contains("created"), "{}", texts[3]);
    assert!(texts[4].contains("There is no customer with the id 99"), "{}", texts[4]);
    assert!(texts[5].contains("api_keys"), "only three resources: {}", texts[5]);
    let failed: Vec<&Value> =
        answers[2..8].iter().map(|answer| &answer["result"]["isError"]).collect();
    assert_eq!(failed, [false, false, false, false, true, true]);
    assert_eq!(answers[8]["error"]["code"], -32601);
}
