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

/// The client makes 205 customers, changes one, reads all page by page, meets an error, and deletes
/// one. `tests/clients/table.py` does so with the others.
fn check_client(api: &Api, said: &str) {
    assert_eq!(
        said.trim(),
        "205 active, 1 renamed, 404 not_found, 422 validation_failed name",
        "{said}"
    );
    assert_eq!(api.total("/customers.php"), 204);
    assert_eq!(api.total("/customers.php?name=Renamed"), 1);
}

/// A program that runs a client of `examples/clients`, and how each script begins.
struct Language {
    program: &'static str,
    /// The arguments in front of the script.
    arguments: &'static [&'static str],
    start: &'static str,
}

const PYTHON: Language = Language {
    program: "python3",
    arguments: &["-B", "-c"],
    start: r#"
import os
from tenantdesk import Desk, DeskError

desk = Desk(os.environ["TENANTDESK_URL"], os.environ["TENANTDESK_KEY"])
def error(call):
    try:
        call()
    except DeskError as error:
        return error
def said(error):
    return f"{error.status} {error.code}"
"#,
};

const NODE: Language = Language {
    program: "node",
    arguments: &["--input-type=module", "-e"],
    start: r#"
import { deepEqual, equal, notEqual } from "node:assert/strict";
import { Desk } from "./tenantdesk.mjs";
const desk = new Desk(process.env.TENANTDESK_URL, process.env.TENANTDESK_KEY);
const error = (promise) => promise.then(() => null, (error) => error);
const said = (error) => `${error.status} ${error.code}`;
"#,
};

/// The script runs in a directory of its own.
const SHELL: Language = Language {
    program: "sh",
    arguments: &["-c"],
    start: r#"
set -eu
directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
cp tenantdesk.sh "$directory"
cd "$directory"
. ./tenantdesk.sh
"#,
};

/// Runs a script with a client, and checks what it did and printed.
fn run_client(language: &Language, script: &str, check: fn(&Api, &str)) {
    let Language { program, arguments, start } = language;
    let (server, tenant) = TestServer::with_unlimited_tenant();
    let key = tenant.key(ALL).key;
    let script = format!("{start}{script}");
    let said = run(&server, &key, program, &[*arguments, &[&script]].concat(), "");
    check(&server.with_key(&key), &said);
}

#[test]
fn the_functions_for_the_shell() {
    let script = r#"
first=$(desk POST /customers.php '{"name": "Shop"}' | jq .id)
desk PUT "/customers.php?id=$first" '{"name": "Renamed"}' > /dev/null
for n in $(seq 204); do
  printf '{"method": "POST", "path": "/customers.php", "body": {"name": "Shop %s"}}\n' "$n"
done > operations
for start in 1 101 201; do tail -n "+$start" operations | head -n 100 | desk_batch > /dev/null; done
desk_all '/customers.php?status=active' > all
active=$(wc -l < all)
renamed=$(grep -c '"Renamed"' all)
rm all
desk DELETE "/customers.php?id=$((first + 1))"
gone=$(desk GET "/customers.php?id=$((first + 1))" 2>&1 | cut -d: -f1)
wrong=$(desk POST /customers.php '{"name": ""}' 2>&1 | grep -o '^422 [a-z_]*\|: "name"' | tr -d ':"\n')
printf '%s active, %s renamed, %s, %s\n' "$active" "$renamed" "$gone" "$wrong"
"#;
    run_client(&SHELL, script, check_client);
}

/// Checks these steps of a client: it follows three changes from a cursor that it kept. It sends an
/// old version. It changes a record while another client changes the record.
fn check_follower(api: &Api, said: &str) {
    let expected = "created 1 updated 1 deleted 1, 412 precondition_failed, 412 precondition_failed, theirs and mine";
    assert_eq!(said.trim(), expected, "{said}");
    let kept = api.get("/customers.php?id=2").found();
    assert_eq!(
        (&kept["city"], &kept["notes"]),
        (&Value::from("Bremen"), &Value::from("theirs and mine"))
    );
    let cities = api.get("/changes.php?resource=customers&id=2").found();
    let fields: Vec<&Value> =
        cities["data"].as_array().unwrap().iter().map(|entry| &entry["fields"]).collect();
    assert_eq!(
        fields[1..],
        [&json!(["city"]), &json!(["notes"]), &json!(["notes"])],
        "what was refused changed nothing"
    );
}

#[test]
fn the_client_for_python_follows_and_loses_no_update() {
    let script = r#"
def follow(cursor="now"):
    return desk.follow(cursor, wait=0.01, resource="customers")
entries, cursor = next(follow())
assert entries == []
shop = desk.create("customers", name="Shop")
desk.update("customers", shop["id"], city="Köln")
desk.delete("customers", shop["id"])
seen = []
for entries, cursor in follow(cursor):
    seen += entries
    if len(seen) >= 3 and not entries:
        break
assert next(follow(cursor))[0] == []

old = desk.create("customers", name="Kept")
id = old["id"]
assert desk.get("customers", id)["etag"] == old["etag"]
assert desk.update("customers", id, if_match=old["etag"], city="Bremen")["etag"] != old["etag"]
update = said(error(lambda: desk.update("customers", id, if_match=old["etag"], city="Kiel")))
delete = said(error(lambda: desk.delete("customers", id, if_match=old["etag"])))
assert said(error(lambda: desk.update("customers", id, citty="Kiel"))) == "400 bad_request"
def edit(record):
    if record["notes"] is None:
        desk.update("customers", id, notes="theirs")
    return {"notes": f"{record['notes']} and mine"}
notes = desk.change("customers", id, edit)["notes"]
print(" ".join(f"{entry['action']} {entry['id']}" for entry in seen), update, delete, notes, sep=", ")
"#;
    run_client(&PYTHON, script, check_follower);
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
assert desk.create_or_update("hardware", "serial_number", name="PC", serial_number="S-1")["id"] == 1
for placeholder in ["Default string", "To be filled by O.E.M.", "System Serial Number", "Not Specified", "0", "None", "", "123456789"]:
    try:
        register(desk, "C-3", "E-2", "bob@mueller.example", placeholder)
    except SystemExit as refusal:
        assert repr(placeholder) in refusal.code and "no serial number" in refusal.code
    else:
        raise AssertionError(placeholder)
"#;
    let node = r#"
import { equal } from "node:assert/strict";
import { Desk } from "./tenantdesk.mjs";
const desk = new Desk(process.env.TENANTDESK_URL, process.env.TENANTDESK_KEY);
const fields = { name: "PC", serial_number: "S-1" };
equal((await desk.createOrUpdate("hardware", "serial_number", fields)).id, 1);
"#;
    for (program, arguments, input) in
        [("python3", ["-B", "-c", python], ""), ("node", ["--input-type=module", "-", ""], node)]
    {
        run(&server, &key, program, &arguments, input);
    }
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
fn the_client_for_node_follows_and_loses_no_update() {
    let script = r#"
const follow = (cursor) => desk.follow(cursor, { wait: 0.01, resource: "customers" });
const first = (await follow().next()).value;
deepEqual(first.entries, []);
const shop = await desk.create("customers", { name: "Shop" });
await desk.update("customers", shop.id, { city: "Köln" });
await desk.delete("customers", shop.id);
const seen = [];
let last;
for await (const { entries, cursor } of follow(first.cursor)) {
  seen.push(...entries);
  last = cursor;
  if (seen.length >= 3 && entries.length === 0) break;
}
deepEqual((await follow(last).next()).value.entries, []);

const old = await desk.create("customers", { name: "Kept" });
const { id, etag } = old;
deepEqual({ ...old }, JSON.parse(JSON.stringify(old)));
equal((await desk.get("customers", id)).etag, etag);
notEqual((await desk.update("customers", id, { city: "Bremen" }, { ifMatch: etag })).etag, etag);
const update = said(await error(desk.update("customers", id, { city: "Kiel" }, { ifMatch: etag })));
const deletion = said(await error(desk.delete("customers", id, { ifMatch: etag })));
const changed = await desk.change("customers", id, async (record) => {
  if (record.notes === null) await desk.update("customers", id, { notes: "theirs" });
  return { notes: `${record.notes} and mine` };
});
const actions = seen.map((entry) => `${entry.action} ${entry.id}`).join(" ");
console.log([actions, update, deletion, changed.notes].join(", "));
"#;
    run_client(&NODE, script, check_follower);
}

#[test]
fn the_functions_for_the_shell_follow_and_lose_no_update() {
    let script = r#"
TENANTDESK_WAIT=0.01
collect() { jq -r '"\(.action) \(.id)"' >> seen; }
# follow_until CONDITION COMMAND…: ends the follower once the condition holds.
follow_until() {
  condition=$1
  shift
  desk_follow cursor "$@" &
  for _ in $(seq 3000); do
    if eval "$condition"; then kill $!; wait $! || return 0; fi
    sleep 0.01
  done
  exit 1
}
follow_until '[ -s cursor ]' false
shop=$(desk POST /customers.php '{"name": "Shop"}' | jq .id)
desk PUT "/customers.php?id=$shop" '{"city": "Köln"}' > /dev/null
desk DELETE "/customers.php?id=$shop" > /dev/null
before=$(cat cursor)
! desk_follow cursor false || exit 1
[ "$(cat cursor)" = "$before" ]
follow_until '[ "$(cat cursor)" != "$before" ]' collect
[ "$(desk GET "/changes.php?cursor=$(cat cursor)" | jq '.data | length')" = 0 ]

id=$(desk POST /customers.php '{"name": "Kept"}' | jq .id)
etag=$(desk GET "/changes.php?resource=customers&id=$id" | jq '.data[-1].seq | tostring')
desk PUT "/customers.php?id=$id" '{"city": "Bremen"}' "$etag" > /dev/null
refused() { "$@" 2> error > /dev/null && exit 1; [ $? -eq 12 ] && cut -d: -f1 error; }
update=$(refused desk PUT "/customers.php?id=$id" '{"city": "Kiel"}' "$etag")
delete=$(refused desk DELETE "/customers.php?id=$id" '' "$etag")
# Between the first reading and its writing comes another change.
jq() {
  if [ "$2" = "$edit" ] && [ ! -e raced ]; then
    touch raced
    desk PUT "/customers.php?id=$id" '{"notes": "theirs"}' > /dev/null
  fi
  command jq "$@"
}
edit='{notes: "\(.notes) and mine"}'
notes=$(desk_change "/customers.php?id=$id" "$edit" 2> /dev/null | command jq -r .notes)
printf '%s, %s, %s, %s
' "$(tr '
' ' ' < seen | sed 's/ $//')" "$update" "$delete" "$notes"
"#;
    run_client(&SHELL, script, check_follower);
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
