//! The messages of errors, as clients get them, compared with a golden file for review. A message
//! names the field or parameter, the fault and the remedy.
//!
//! `UPDATE_GOLDEN=1 cargo test --test contract messages` updates `tests/golden/messages.txt`.

use std::collections::HashSet;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tenantdesk::clock::Clock;
use tenantdesk::config::Config;
use tenantdesk::http::request::{MAX_BATCH_BODY, MAX_BODY};
use tenantdesk::http::{ApiError, ErrorCode};
use tenantdesk::model;
use tenantdesk::model::RecordId;
use tenantdesk::server::Server;
use tenantdesk::store::{Rejection, StoreCode, StoreError};

use crate::support::in_process::{open, serve};
use crate::support::raw::{Client, request};
use crate::support::{ALL, DataDir, until};

const JSON: &str = "Content-Type: application/json";

#[test]
fn messages_match_the_golden_file() {
    let mut messages = Messages::start();
    keys(&mut messages);
    records(&mut messages);
    headers_and_bodies(&mut messages);
    syntax(&mut messages);
    parameters(&mut messages);
    lists(&mut messages);
    change_log(&mut messages);
    batches(&mut messages);
    fields(&mut messages);
    http(&mut messages);
    service(&mut messages);
    for code in ErrorCode::all() {
        let code = code.describe().code;
        assert!(messages.text.contains(&format!("\n    {code}: ")), "{code} has no message");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/messages.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &messages.text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == messages.text,
        "a message has changed; UPDATE_GOLDEN=1 cargo test --test contract messages shows the diff"
    );
    messages.service.stop().unwrap();
}

/// A service with a tenant, and the text with the messages that the service has sent.
struct Messages {
    data_dir: Arc<DataDir>,
    service: Server,
    key: String,
    text: String,
}

impl Messages {
    /// The clock stands, so that a message with a time is the same in each run.
    fn start() -> Messages {
        let data_dir = DataDir::new(false);
        let config = Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            rate_limit: NonZeroU32::MAX,
            ..Config::new(data_dir.data())
        };
        let clock = Clock::manual("2200-01-01T00:00:00Z".parse().unwrap());
        let app = open(&config, clock.clone()).unwrap();
        let service = serve(app, &config, clock).unwrap();
        let key = data_dir.tenant("acme").key(ALL).key;
        let text = "The messages of errors, as clients get them. See tests/contract/messages.rs.\n";
        Messages { data_dir, service, key, text: text.to_owned() }
    }

    fn title(&mut self, title: &str) {
        let _ = writeln!(self.text, "\n# {title}\n");
    }

    /// Adds the error in the body of a response, with the errors of its fields.
    fn add(&mut self, situation: &str, body: &Value) {
        let _ = writeln!(self.text, "{situation}");
        let of_fields = body["errors"].as_object().into_iter().flat_map(|errors| errors.values());
        for error in [&body["error"]].into_iter().chain(of_fields) {
            let _ = writeln!(self.text, "    {}", line_of(error));
        }
    }

    fn request(&self, method: &str, target: &str, headers: &[&str], body: &str) -> String {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        request(method, target, &self.key, &headers, body)
    }

    /// Sends bytes on a connection of their own. Returns the body of the response.
    fn send(&self, bytes: impl AsRef<[u8]>) -> Value {
        let mut client = Client::connect(self.service.address);
        client.send(bytes);
        client.answer().json()
    }

    /// Sends a request that succeeds. Returns the body of the response.
    fn succeed(&self, method: &str, target: &str, body: &str) -> Value {
        let done = self.send(self.request(method, target, &[JSON], body));
        assert!(done.get("error").is_none(), "{method} {target}: {done}");
        done
    }

    /// Adds the error of a request.
    fn fail(&mut self, situation: &str, method: &str, target: &str, headers: &[&str], body: &str) {
        let answer = self.send(self.request(method, target, headers, body));
        self.add(situation, &answer);
    }

    /// Adds the error of a request whose method, target and body say what is wrong.
    fn fail_at(&mut self, method: &str, target: &str, body: &str) {
        let shown: String = body.chars().take(120).collect();
        let situation = format!("{method} {target} {}", shown.replace('\n', "\\n"));
        self.fail(situation.trim_end(), method, target, &[JSON], body);
    }
}

fn keys(messages: &mut Messages) {
    messages.title("Keys and tenants");
    let data_dir = Arc::clone(&messages.data_dir);
    let tenant = |name: &str, command: &str, options: &[&str]| {
        let tenant = data_dir.tenant(name);
        let key = tenant.key(ALL).key;
        tenant.ask(command, options);
        key
    };
    let acme = |options: &[&str]| {
        let create = ["key", "create", "acme", "--name", "a test's", "--scope"];
        let made = data_dir.cli_json(&[&create, options].concat());
        (made["id"].to_string(), made["key"].as_str().unwrap().to_owned())
    };
    let (revoked_id, revoked) = acme(&["all"]);
    data_dir.cli(&["key", "revoke", "acme", &revoked_id]).done();
    let (_, expired) = acme(&["all", "--expires", "1d"]);
    let (_, limited) = acme(&["all", "--rate-limit", "1"]);
    let (_, reader) = acme(&["hardware:read"]);
    let (_, writer) = acme(&["hardware:write"]);
    let suspended = tenant("suspended", "suspend", &[]);
    let moving = tenant("moving", "suspend", &["--moving"]);
    let trial = tenant("trial", "trial", &["2020-01-31"]);
    let get = |key: &str| request("GET", "/customers.php", key, "", "");
    messages.send(get(&limited));
    let twice = request("GET", "/customers.php", "a", "Authorization: Bearer b\r\n", "");
    let wide = "/hardware.php?include=employee,customer";
    for (situation, bytes) in [
        ("no key", get("").replace("Bearer", "")),
        ("two keys", twice),
        ("a short key", get("tdk_7")),
        ("an unknown key", get(&format!("tdk_{}", "x".repeat(40)))),
        ("a revoked key", get(&revoked)),
        ("an expired key", get(&expired)),
        ("a suspended tenant", get(&suspended)),
        ("a tenant that moves", get(&moving)),
        ("a trial that is over", get(&trial)),
        ("GET /customers.php with hardware:read", get(&reader)),
        ("GET /changes.php with hardware:write", request("GET", "/changes.php", &writer, "", "")),
        ("GET with include and hardware:read", request("GET", wide, &reader, "", "")),
        ("the second request of a key with the limit 1", get(&limited)),
    ] {
        let answer = messages.send(bytes);
        messages.add(situation, &answer);
    }
}

fn records(messages: &mut Messages) {
    messages.title("Records");
    for name in ["Ada", "Eva"] {
        let body = json!({"name": name, "customer_number": "7"}).to_string();
        messages.succeed("POST", "/customers.php", &body);
    }
    for email in ["ada@shop.example", "eva@shop.example"] {
        let body = json!({"customer_id": 1, "email": email}).to_string();
        messages.succeed("POST", "/employees.php", &body);
    }
    messages.succeed("POST", "/hardware.php", r#"{"name": "Laptop", "employee_id": 1}"#);
    let update_by = "/customers.php?update_by=customer_number";
    for (method, target, body) in [
        ("GET", "/customers.php?id=7", ""),
        ("DELETE", "/customers.php?id=7", ""),
        ("DELETE", "/customers.php?id=1", ""),
        ("POST", "/employees.php", r#"{"customer_id": 7, "email": "eva@shop.example"}"#),
        ("POST", "/hardware.php", r#"{"name": "Laptop", "employee_id": 7}"#),
        ("POST", "/hardware.php", r#"{"name": "Laptop", "employee_id": 1, "customer_id": 2}"#),
        ("POST", update_by, r#"{"name": "Eva", "customer_number": "7"}"#),
        ("POST", update_by, r#"{"name": "Eva"}"#),
        ("POST", "/customers.php?update_by=nmae", "{}"),
        ("POST", "/customers.php?id=1", "{}"),
        ("PATCH", "/customers.php", ""),
        ("POST", "/changes.php", ""),
        ("GET", "/costumers.php", ""),
        ("GET", "/v1/hardware.php/12", ""),
        ("GET", "/customers/1", ""),
        ("OPTIONS", "/customers.php", ""),
        ("PUT", "/customers.php?id=1&update_by=name", "{}"),
        ("GET", "/customers.php?id=1&status=active", ""),
        ("GET", "/hardware.php?id=1&limit=1", ""),
        ("GET", "/customers.php?id=1,2", ""),
    ] {
        messages.fail_at(method, target, body);
    }
    let body = r#"{"name": "Eva"}"#;
    for tag in ["If-Match: \"0\"", "If-Match: W/\"0\""] {
        messages.fail(&format!("PUT with {tag}"), "PUT", "/customers.php?id=1", &[JSON, tag], body);
    }
    let new = r#"{"name": "Eva", "customer_number": "8"}"#;
    let headers = [JSON, "If-Match: \"0\""];
    messages.fail("POST with update_by and If-Match", "POST", update_by, &headers, new);
    let headers = [JSON, "Idempotency-Key: 6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d"];
    messages.send(messages.request("POST", "/customers.php", &headers, body));
    messages.fail("the key of another request", "POST", "/customers.php", &headers, new);
}

fn headers_and_bodies(messages: &mut Messages) {
    messages.title("Headers and bodies");
    let (tag, key) = ("If-Match: 7", "Idempotency-Key: 7");
    for (method, target, headers) in [
        ("PUT", "/customers.php?id=1", &[JSON, tag][..]),
        ("PUT", "/customers.php?id=1", &[JSON, tag, tag]),
        ("POST", "/customers.php", &["Accept: */*"]),
        ("POST", "/customers.php", &["Content-Type: text/plain"]),
        ("POST", "/customers.php", &[JSON, JSON]),
        ("POST", "/customers.php", &[JSON, "Content-Encoding: gzip"]),
        ("POST", "/customers.php", &[JSON, key]),
        ("POST", "/customers.php", &[JSON, key, key]),
        ("POST", "/customers.php", &[JSON, "If-None-Match: *"]),
    ] {
        let situation = format!("{method} with {}", headers.join(", "));
        messages.fail(&situation, method, target, headers, r#"{"name": "Eva"}"#);
    }
    let unknown = r#"{"id": 7, "nmae": "A", "x\u202e": 1}"#;
    let strict = [JSON, "Prefer: handling=strict"];
    messages.fail("POST of unknown members, strict", "POST", "/customers.php", &strict, unknown);
    let large = "x".repeat(MAX_BODY + 1);
    messages.fail("a body that is too large", "POST", "/customers.php", &[JSON], &large);
    let many: serde_json::Map<String, Value> =
        (0..101).map(|number| (format!("a{number}"), json!("x"))).collect();
    for (method, target, body) in [
        ("PUT", "/customers.php?id=1", "{}"),
        ("PUT", "/customers.php?id=1", r#"{"stauts": "active"}"#),
        ("PUT", "/customers.php?id=1", r#"{"city": 10115}"#),
        ("PUT", "/customers.php?id=1", r#"{"city": "a\u0000b"}"#),
        ("PUT", "/customers.php?id=1", r#"{"custom": {"a": 7, "": "x"}}"#),
        ("PUT", "/customers.php?id=1", &json!({"custom": many}).to_string()),
        ("POST", "/customers.php", r#"{"email": "x", "status": "new"}"#),
        ("POST", "/customers.php", r#"{"name": "A", "email": "eva@shop.example"}"#),
        ("POST", "/customers.php", r#"{"data": {"name": "Eva"}}"#),
        ("PUT", "/customers.php?id=1", r#"{"email": "Eva <eva@shop.example>"}"#),
        ("PUT", "/hardware.php?id=1", r#"{"purchase_cost_cents": 1e3}"#),
    ] {
        messages.fail_at(method, target, body);
    }
}

fn syntax(messages: &mut Messages) {
    messages.title("JSON");
    for body in [
        "null",
        "[1]",
        "\"text\"",
        "{} {}",
        "{'name': 1}",
        "{\"name\": \"A\",}",
        "{\"name\" \"A\"}",
        "{\"name\": \"A\"",
        "{\n  \"name\": \"A\n\"}",
        "{\"name\": tru}",
        "{\"cost\": 01}",
        "{\"name\": \"\\ud800\"}",
        "{\"name\": \"\\x\"}",
    ] {
        messages.fail_at("POST", "/customers.php", body);
    }
    for body in [
        "[{\"name\": \"A\"}]",
        "[object Object]",
        "\"{\\\"name\\\": \\\"A\\\"}\"",
        "name=A&city=Kiel",
        "<!DOCTYPE html>",
        "'{name:",
        "{“name”: “A”}",
        "{{record}}",
        "{\"name\": \"A\", \"customer_id\": {{id}}}",
    ] {
        messages.fail_at("POST", "/customers.php", body);
    }
    let nested = format!("{{\"a\": {}{}}}", "[".repeat(128), "]".repeat(128));
    messages.fail("129 levels of nesting", "POST", "/customers.php", &[JSON], &nested);
    messages.fail("no body", "POST", "/customers.php", &[JSON], "");
    let headers = [JSON, "Content-Length: 13"];
    let mut bytes = messages.request("POST", "/customers.php", &headers, "").into_bytes();
    bytes.extend(b"{\"name\": \"\xff\"}");
    let answer = messages.send(bytes);
    messages.add("a byte that is not UTF-8", &answer);
}

fn parameters(messages: &mut Messages) {
    messages.title("Ids and unknown parameters");
    for query in
        ["", "id=", "id=0", "id=01", "id=-1", "id=x", "id=1&id=2", "id=1&name=A", "%ff=1", "id=%ff"]
    {
        messages.fail_at("DELETE", &format!("/customers.php?{query}"), "");
    }
}

fn lists(messages: &mut Messages) {
    messages.title("Lists");
    let filters: Vec<String> = (0..4).map(|number| format!("custom.{number}=x")).collect();
    for target in [
        "/customers.php?cutsomer_number=7",
        "/customers.php?page=2",
        "/customers.php?offset=20",
        "/customers.php?per_page=10",
        "/customers.php?search=eva",
        "/customers.php?order_by=name",
        "/customers.php?count=true",
        "/customers.php?fields=id,name",
        "/customers.php?customers=1",
        "/customers.php?custom=x",
        "/customers.php?custom[room]=2",
        "/customers.php?room=2",
        "/customers.php?filter[city]=Kiel",
        "/customers.php?filter=city",
        "/customers.php?include=hardware",
        "/customers.php?created_at_gte=2026-01-01",
        "/customers.php?updated_since=2026-01-01",
        "/customers.php?until=2026-01-01",
        "/customers.php?name_contains=eva",
        "/customers.php?city!=Kiel",
        "/customers.php?status_in=active,inactive",
        "/customers.php?city=Kiel&city=Bonn",
        "/customers.php?api_key=x",
        "/hardware.php?employee_number=E-1",
        "/customers.php?sort=name+desc",
        "/customers.php?sort=city,-name",
        "/customers.php?sort=custom.room",
        "/hardware.php?expand=employee",
        "/hardware.php?employee=1",
        "/customers.php?limit=0",
        "/customers.php?limit=201",
        "/customers.php?limit=ten",
        "/customers.php?at=yesterday",
        "/customers.php?at=2200-01-01T00:00:00Z",
        "/customers.php?id=1&at=9999-12-31",
        "/customers.php?total=yes",
        "/customers.php?sort=notes",
        "/customers.php?sort=-",
        "/customers.php?q=1+2+3+4+5+6+7+8+9+10+11+12+13+14+15+16+17+18+19+20+21",
        &format!("/customers.php?q={}", "a".repeat(201)),
        "/customers.php?cursor=x",
        "/customers.php?name=",
        "/customers.php?status=new",
        "/customers.php?status=+",
        "/customers.php?customer_since=2026-02-30",
        "/customers.php?customer_since_from=null",
        "/customers.php?created_at=2026-11-20",
        "/customers.php?created_at=2026-11-20T20:30:00+01:00",
        "/customers.php?created_at_to=yesterday",
        "/customers.php?email=eva+shop@ada.example",
        "/customers.php?include=customer",
        "/customers.php?custom.=x",
        "/customers.php?custom.a=",
        &format!("/customers.php?{}", filters.join("&")),
        "/employees.php?customer_id=x",
        "/employees.php?is_active=yes",
        "/employees.php?is_active=",
        "/hardware.php?type=car",
        "/hardware.php?customer_id=x",
        "/hardware.php?cutsomer_id=1",
        "/hardware.php?sort=customer",
        "/hardware.php?purchase_cost_cents=1.5",
        "/hardware.php?purchase_date_to=",
        "/hardware.php?include=customer,employe",
    ] {
        messages.fail_at("GET", target, "");
    }
    let page = messages.succeed("GET", "/customers.php?sort=name&limit=1", "");
    let cursor = page["next_cursor"].as_str().unwrap();
    let other = format!("/customers.php?sort=-name&cursor={cursor}");
    messages.fail("the cursor of another list", "GET", &other, &[], "");
    messages.add("a list of over 5 seconds", &body_of(&failure(StoreCode::TimedOut)));
}

fn failure(code: StoreCode) -> ApiError {
    StoreError::new(code, "").into()
}

fn change_log(messages: &mut Messages) {
    messages.title("Changes");
    for query in [
        "limit=0",
        "cursor=x",
        "resource=cars",
        "resource=",
        "id=7",
        "resource=customers&id=x",
        "ressource=customers",
        "since=2026-01-01",
        "page=2",
        "total=true",
    ] {
        messages.fail_at("GET", &format!("/changes.php?{query}"), "");
    }
    let page = messages.succeed("GET", "/customers.php?limit=1", "");
    let of_list = format!("/changes.php?cursor={}", page["next_cursor"].as_str().unwrap());
    messages.fail("the cursor of a list", "GET", &of_list, &[], "");
    let other = messages.data_dir.tenant("other").key(ALL).key;
    let page = messages.send(request("GET", "/changes.php?cursor=now", &other, "", ""));
    let of_other = format!("/changes.php?cursor={}", page["next_cursor"].as_str().unwrap());
    messages.fail("the cursor of another change log", "GET", &of_other, &[], "");
}

fn batches(messages: &mut Messages) {
    messages.title("Batches");
    let operation = |members: &str| format!(r#"{{"operations": [{{{members}}}]}}"#);
    let post = |body: &str| {
        operation(&format!(r#""method": "POST", "path": "/employees.php", "body": {body}"#))
    };
    for body in [
        "{}".to_owned(),
        r#"{"operations": {}}"#.to_owned(),
        r#"{"operations": []}"#.to_owned(),
        format!(r#"{{"operations": [{}0]}}"#, "0,".repeat(100)),
        r#"{"operations": [{}], "operation": []}"#.to_owned(),
        r#"{"operations": [7]}"#.to_owned(),
        operation(""),
        operation(r#""method": "POST""#),
        operation(r#""method": "POST", "path": "/changes.php""#),
        operation(r#""method": "POST", "path": "/customers/1""#),
        "[{}]".to_owned(),
        operation(r#""method": "POST", "paht": "/customers.php""#),
        operation(r#""method": "POST", "path": "/customers.php", "body": [], "if_match": 7"#),
        operation(r#""method": "POST", "path": "/customers.php", "body": []"#),
        operation(r#""method": "DELETE", "path": "/customers.php""#),
        post(r#"{"customer_id": {"result": 0}}"#),
        post(r#"{"customer_id": {"result": "0"}}"#),
        post(r#"{"customer_id": {"result": 0, "of": 1}}"#),
        post(r#"{"customer_id": {}, "email": "eva@shop.example"}"#),
        post(r#"{"customer_id": 1.5, "email": "x"}"#),
    ] {
        messages.fail_at("POST", "/batch.php", &body);
    }
    let large = "x".repeat(MAX_BATCH_BODY + 1);
    messages.fail("a batch that is too large", "POST", "/batch.php", &[JSON], &large);
}

/// Every field with every kind of invalid value. Of messages that differ in the field or in numbers
/// alone, the first.
fn fields(messages: &mut Messages) {
    messages.title("Fields");
    let long = format!("\"{}\"", "x".repeat(5001));
    let inputs = ["null", "\"\"", "\"x\"", "12.0", "true", "[]", "{}", &long];
    let mut shapes = HashSet::new();
    for resource in model::ALL {
        let mut requests = Vec::new();
        for field in resource.fields {
            if field.required {
                requests.push((field.name, "not sent", "POST", "{}".to_owned()));
            }
            for input in inputs {
                let shown = if input.len() < 10 { input } else { "5001 characters" };
                let body = format!(r#"{{"{}": {input}}}"#, field.name);
                requests.push((field.name, shown, "PUT", body));
            }
        }
        for (field, shown, method, body) in requests {
            let target = if method == "PUT" { "?id=999" } else { "" };
            let target = format!("{}{target}", resource.path);
            let answer = messages.send(messages.request(method, &target, &[JSON], &body));
            // If the value is valid, there is no such record.
            if answer["error"]["code"] == "not_found" {
                continue;
            }
            let line = line_of(answer["errors"].get(field).unwrap_or(&answer["error"]));
            let shape = line.replace(field, "").replace(|c: char| c.is_ascii_digit(), "");
            if shapes.insert(shape) {
                let _ = writeln!(messages.text, "{} {field} {shown}\n    {line}", resource.name);
            }
        }
    }
}

fn http(messages: &mut Messages) {
    messages.title("HTTP");
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: desk\r\n\r\n");
    let post = |lines: &str| format!("POST /a HTTP/1.1\r\nHost: desk\r\n{lines}\r\n\r\n");
    for (situation, bytes) in [
        ("a method of 33 bytes", get("/").replace("GET", &"A".repeat(33))),
        ("GET ftp://desk/a", get("ftp://desk/a")),
        ("a target of more than 8 KiB", get(&format!("/{}", "a".repeat(8 * 1024)))),
        ("Transfer-Encoding: gzip, chunked", post("Transfer-Encoding: gzip, chunked")),
        ("no Host", "GET / HTTP/1.1\r\n\r\n".to_owned()),
        (
            "a chunk that is longer than its length",
            messages.request("POST", "/customers.php", &["Transfer-Encoding: chunked"], "")
                + "2\r\nabc\r\n",
        ),
    ] {
        let answer = messages.send(bytes);
        messages.add(situation, &answer);
    }
}

/// The errors that need a slow or full machine are taken from the functions that make them.
fn service(messages: &mut Messages) {
    messages.title("The service");
    for (situation, error) in [
        ("too many requests", ApiError::overloaded()),
        ("a panic", ApiError::internal()),
        ("a tenant whose database is damaged", failure(StoreCode::Unavailable)),
        ("a tenant whose database an import writes", failure(StoreCode::Busy)),
        ("a change that takes too long", failure(StoreCode::Interrupted)),
        ("a tenant at its size limit", failure(StoreCode::SizeLimit)),
        ("a full disk", failure(StoreCode::DiskFull)),
        (
            "a move of more devices than a request may change",
            Rejection::TooManyDevices { employee: RecordId(7), devices: 1_200 }.into(),
        ),
    ] {
        messages.add(situation, &body_of(&error));
    }
    let registry = messages.data_dir.registry_file();
    std::fs::rename(&registry, registry.with_extension("gone")).unwrap();
    let ready = "GET /readyz HTTP/1.1\r\nHost: desk\r\n\r\n";
    let answer = until("the registry is missed", || {
        let answer = messages.send(ready);
        answer.get("error").is_some().then_some(answer)
    });
    messages.add("a registry that was moved away", &answer);
}

/// The code and the message of an error, or of the error of a field.
fn line_of(error: &Value) -> String {
    format!("{}: {}", error["code"].as_str().unwrap(), error["message"].as_str().unwrap())
}

fn body_of(error: &ApiError) -> Value {
    json!({"error": {"code": error.code().describe().code, "message": error.message()}})
}
