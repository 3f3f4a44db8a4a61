//! Contract section 6: every code can be reached. The client checks code, status, headers and
//! members on every response.

use std::sync::{Arc, Condvar, Mutex};

use serde_json::json;
use tenantdesk::api::errors;
use tenantdesk::http::ErrorCode;

use crate::support::client::{exchange, parse};
use crate::support::{ALL, Api, InProcess, Reply, Tenant, TestServer, until, uuid};

const RECORDS: &str = "/customers.php";

/// A server with a tenant that has a customer, an employee of this customer and a laptop of this
/// employee.
struct Fixture {
    server: TestServer,
    tenant: Tenant,
    api: Api,
}

impl Fixture {
    fn new() -> Fixture {
        let server = TestServer::start();
        let tenant = server.tenant("acme");
        let api = tenant.with_scopes(ALL);
        let employee = api.employee(api.customer("Needed"));
        api.create("/hardware.php", json!({"name": "Laptop", "employee_id": employee}));
        Fixture { server, tenant, api }
    }
}

/// Makes the service answer with this code. There is no `_` arm: a new code needs a way to be
/// reached.
fn provoke(code: ErrorCode, Fixture { server, tenant, api }: &Fixture) -> Reply {
    let tenant_of_its_own = |name: &str| {
        let tenant = server.tenant(name);
        let api = tenant.with_scopes(ALL);
        (tenant, api)
    };
    match code {
        ErrorCode::MissingAuthorization => server.anonymous().get(RECORDS),
        ErrorCode::MalformedApiKey => server.with_key("tdk_short").get(RECORDS),
        ErrorCode::InvalidApiKey => {
            server.with_key(&format!("tdk_{}", "x".repeat(43))).get(RECORDS)
        }
        ErrorCode::RevokedApiKey => {
            let key = tenant.key(ALL);
            tenant.key_command("revoke", &key);
            server.with_key(&key.key).get(RECORDS)
        }
        ErrorCode::ExpiredApiKey => {
            let key = tenant.key(ALL);
            tenant.replace_key(&key, "0");
            server.with_key(&key.key).get(RECORDS)
        }
        ErrorCode::TenantInactive => {
            let (suspended, api) = tenant_of_its_own("suspended");
            suspended.ask("suspend", &[]);
            api.get(RECORDS)
        }
        ErrorCode::TenantUnavailable => {
            let (lost, api) = tenant_of_its_own("lost");
            std::fs::remove_file(lost.file()).unwrap();
            api.get(RECORDS)
        }
        ErrorCode::InsufficientScope => tenant.with_scopes(&["customers:read"]).delete(RECORDS),
        ErrorCode::RateLimited => {
            let busy = tenant.with_scopes(ALL);
            (0..=100).map(|_| busy.get(RECORDS)).last().unwrap()
        }
        ErrorCode::MethodNotAllowed => api.call("PATCH", RECORDS).send(),
        ErrorCode::InvalidJson => api.post_bytes(RECORDS, "{"),
        ErrorCode::NotFound => api.get("/customers.php?id=99"),
        ErrorCode::MissingId => api.delete(RECORDS),
        ErrorCode::NoUpdatableFields => api.put("/customers.php?id=1", json!({})),
        ErrorCode::BadRequest => api.get("/customers.php?limit=0"),
        ErrorCode::ValidationFailed => api.post(RECORDS, json!({})),
        ErrorCode::CustomerNotFound => api.put("/employees.php?id=1", json!({"customer_id": 99})),
        ErrorCode::EmployeeNotFound => api.put("/hardware.php?id=1", json!({"employee_id": 99})),
        ErrorCode::HasDependents => api.delete("/employees.php?id=1"),
        ErrorCode::AmbiguousRecord => {
            for _ in 0..2 {
                api.customer("Twins");
            }
            api.post("/customers.php?update_by=name", json!({"name": "Twins"}))
        }
        ErrorCode::EndpointNotFound => server.anonymous().get("/nowhere"),
        ErrorCode::UnsupportedMediaType => api.call("POST", RECORDS).body("{}").send(),
        ErrorCode::PayloadTooLarge => api.post_bytes(RECORDS, " ".repeat(65_537)),
        ErrorCode::MalformedRequest => two_hosts(server),
        ErrorCode::InvalidIdempotencyKey => api.call("POST", RECORDS).key("7").send(),
        ErrorCode::IdempotencyKeyReused => {
            let key = uuid();
            api.call("POST", RECORDS).key(&key).json(&json!({"name": "One"})).send().is(201);
            api.call("POST", RECORDS).key(&key).json(&json!({"name": "Two"})).send()
        }
        ErrorCode::InternalError => panic_in_a_handler(),
        ErrorCode::Overloaded => more_than_it_can_hold(),
        ErrorCode::NotReady => without_a_data_directory(server),
        ErrorCode::ChangesGone => {
            let (other, _) = tenant_of_its_own("other");
            let cursor =
                other.with_scopes(ALL).get("/changes.php?cursor=now").found()["next_cursor"]
                    .clone();
            api.get(&format!("/changes.php?cursor={}", cursor.as_str().unwrap()))
        }
        ErrorCode::PreconditionFailed => {
            let call = api.call("PUT", "/customers.php?id=1").header("If-Match", "\"1\"");
            call.json(&json!({"name": "Lost"})).send()
        }
    }
}

fn two_hosts(server: &TestServer) -> Reply {
    let bytes = b"GET /customers.php HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n";
    let reply = parse(&exchange(server.address(), bytes), "GET", RECORDS);
    reply.check();
    assert_eq!(reply.header("Connection"), Some("close"));
    reply
}

fn panic_in_a_handler() -> Reply {
    let server = InProcess::answering(Arc::new(|_, _| panic!("on purpose")));
    let id = uuid();
    let reply = server.anonymous().call("GET", RECORDS).header("X-Request-Id", &id).send();
    assert_eq!(reply.header("X-Request-Id"), Some(id.as_str()));
    assert!(!reply.message().contains("on purpose"), "no detail but the request id");
    server.anonymous().get("/readyz").is(500).fails_with(500, "internal_error");
    reply
}

/// Holds every request back until it is opened.
#[derive(Default)]
struct Dam(Mutex<bool>, Condvar);

impl Dam {
    fn wait(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

fn more_than_it_can_hold() -> Reply {
    let dam = Arc::new(Dam::default());
    let held = Arc::clone(&dam);
    let server = InProcess::answering(Arc::new(move |_, reply| {
        held.wait();
        reply.send(errors::unauthorized(ErrorCode::MissingAuthorization).into());
        None
    }));
    let api = server.anonymous();
    let mut waiting = Vec::new();
    let mut refused = None;
    // One after the other: a refusal comes at once, everything else waits behind the dam.
    while refused.is_none() && waiting.len() < 4_000 {
        let pending = api.call("GET", RECORDS).start();
        waiting.push(pending);
        if waiting.len() % 64 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let answered = waiting.iter().position(|pending| pending.is_answered());
            refused = answered.map(|at| (waiting.len(), waiting.remove(at).reply()));
        }
    }
    dam.open();
    let (held, reply) = refused.expect("4,000 requests wait and none is refused");
    assert!(held > 64, "never below 64 requests at once, but {held}");
    let (accepted, refused): (Vec<Reply>, Vec<Reply>) =
        waiting.into_iter().map(|pending| pending.reply()).partition(|reply| reply.status == 401);
    assert!(accepted.len() >= 64, "what was let in is answered: {}", accepted.len());
    assert!(refused.iter().all(|reply| reply.code() == "overloaded"));
    reply
}

fn without_a_data_directory(server: &TestServer) -> Reply {
    let aside = server.home().join("aside");
    std::fs::rename(server.data(), &aside).unwrap();
    let ask = || server.anonymous().get("/readyz");
    let reply =
        until("the service is not ready", || Some(ask()).filter(|reply| reply.status != 200));
    server.anonymous().get("/healthz").is(200);
    std::fs::rename(&aside, server.data()).unwrap();
    until("the service is ready", || (ask().status == 200).then_some(()));
    reply
}

#[test]
fn every_error_code_is_reached_with_its_status() {
    let fixture = Fixture::new();
    for code in ErrorCode::all() {
        let reply = provoke(code, &fixture);
        let described = code.describe();
        reply.fails_with(described.status, described.code);
    }
}

#[test]
fn a_failed_request_changes_nothing() {
    let fixture = Fixture::new();
    let before: Vec<_> = ["/customers.php", "/employees.php", "/hardware.php"]
        .map(|path| fixture.api.all(path))
        .into();
    let api = &fixture.api;
    api.put("/customers.php?id=1", json!({"name": "New", "email": "x"})).is(422);
    api.put("/employees.php?id=1", json!({"first_name": "New", "customer_id": 9})).is(422);
    api.put("/hardware.php?id=1", json!({"name": "New", "employee_id": 9})).is(422);
    api.put("/hardware.php?id=1", json!({"name": "New", "model": 5})).is(400);
    api.post("/employees.php", json!({"customer_id": 9, "email": "a@shop.example"})).is(422);
    api.delete("/customers.php?id=1").is(409);
    api.delete("/employees.php?id=1").is(409);
    let after: Vec<_> =
        ["/customers.php", "/employees.php", "/hardware.php"].map(|path| api.all(path)).into();
    assert_eq!(after, before);
}

#[test]
fn an_inactive_tenants_message_says_why() {
    let fixture = Fixture::new();
    fixture.tenant.ask("trial", &["2020-02-29"]);
    let over =
        fixture.api.get(RECORDS).fails_with(403, "tenant_inactive").saying("trial").message();
    fixture.tenant.ask("suspend", &[]);
    let suspended =
        fixture.api.get(RECORDS).fails_with(403, "tenant_inactive").saying("suspended").message();
    assert_ne!(over, suspended);
    assert!(!suspended.contains("trial"), "where both hold, the suspension is named");
}

#[test]
fn no_answer_echoes_what_could_split_a_header() {
    let fixture = Fixture::new();
    let target = "/customers.php?limit=1&q=%0D%0ASet-Cookie:%20a=b&x%0D%0AX-Evil:%201=2";
    let reply = fixture.api.get(target).fails_with(400, "bad_request");
    assert!(reply.header("Set-Cookie").is_none() && reply.header("X-Evil").is_none());
    let reply = fixture.api.get("/customers.php?limit=1&q=needed%0D%0A").is(200);
    assert!(reply.header("Link").is_none_or(|link| !link.contains('\n')));
}
