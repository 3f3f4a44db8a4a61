//! Faults inside the service: panics, workers that hang; and an orderly stop.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use http::HeaderMap;
use serde_json::json;
use tenantdesk::api::{Admission, Job, Lane};
use tenantdesk::clock::Clock;
use tenantdesk::http::{ApiError, Method, Request, Responder, Response};
use tenantdesk::model::{CUSTOMER, KeyId, TenantId, Value};
use tenantdesk::server::{App, Application, Probe};
use tenantdesk::store::{
    Actor, Change, ChangeContext, ChangeKind, DatabaseError, Deadline, KeyLabel, Mutation, Outcome,
    Reading,
};
use uuid::Uuid;

use crate::edge_server::EdgeServer;
use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{self, get, request};
use crate::support::{ALL, InProcess, database, until, uuid};

/// A read ends early then (contract section 4).
#[test]
fn a_handler_knows_that_its_client_has_gone() {
    let server = EdgeServer::start();
    let clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    let mut clients = clients.into_iter();
    for client in clients.as_mut_slice() {
        client.send(get("/held"));
    }
    server.holds(3);
    assert_eq!(server.abandoned(), [false; 3]);
    clients.next().unwrap().reset();
    drop(clients.next());
    until("two have gone", || {
        (server.abandoned().iter().filter(|gone| **gone).count() == 2).then_some(())
    });
    server.release();
    assert_eq!(clients.next().unwrap().answer().status, 200);
}

/// A mutation that panics once it has written.
fn insert_and_panic(responder: Responder) -> Mutation {
    let values = vec![(&CUSTOMER.fields[0], Value::Text("Half made".into()))];
    let key = KeyLabel { id: KeyId(1), name: "a key".into(), prefix: "tdk_test".into() };
    let actor = Actor::Key { key, request_id: Uuid::nil() };
    Mutation {
        changes: vec![Change::new(&CUSTOMER, ChangeKind::Create, values)],
        idempotency_key: None,
        context: ChangeContext { at: Clock::system().now().timestamp(), actor },
        since: Instant::now(),
        answer: Box::new(|_| panic!("in the middle of a mutation")),
        send: Box::new(move |outcome| {
            let Outcome::Failed(error) = outcome else { panic!("{outcome:?}") };
            responder.send(ApiError::from(error).into());
        }),
    }
}

/// The application, except that a DELETE of `/panic` writes and panics, and a GET of it reads and
/// panics.
struct Panicking(Arc<App>);

impl Application for Panicking {
    fn probe(&self, method: &Method, path: &str) -> Option<Probe> {
        self.0.probe(method, path)
    }

    fn ready(&self) -> Response {
        self.0.ready()
    }

    fn max_body(&self, path: &str, headers: &HeaderMap) -> usize {
        self.0.max_body(path, headers)
    }

    fn admit(&self, request: &Request, responder: &mut Responder) -> Admission {
        match request.path.as_str() {
            "/panic" => Admission::Wait(Lane::Tenant(TenantId(1)), Job::Panel),
            _ => self.0.admit(request, responder),
        }
    }

    fn run(&self, job: Job, request: &Request, responder: Responder) {
        let tenant = self.0.tenants.open(TenantId(1)).unwrap();
        match (request.path.as_str(), &request.method) {
            ("/panic", &Method::DELETE) => tenant.mutate(insert_and_panic(responder)),
            ("/panic", _) => {
                let read = |_: &Reading<'_>| -> Result<(), DatabaseError> {
                    panic!("in the middle of a read")
                };
                let _ = tenant.read(Deadline::new(&Arc::default()), read);
            }
            _ => self.0.run(job, request, responder),
        }
    }

    fn overloaded(&self, job: Job) -> Response {
        self.0.overloaded(job)
    }
}

/// The log of this process.
fn log() -> &'static Mutex<Vec<u8>> {
    static LOG: OnceLock<Mutex<Vec<u8>>> = OnceLock::new();
    struct Writer;
    impl Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            log().lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    LOG.get_or_init(|| {
        tracing_subscriber::fmt().with_ansi(false).with_writer(|| Writer).init();
        Mutex::default()
    })
}

fn logged(what: &str) -> String {
    until(&format!("{what:?} is logged"), || {
        let log = String::from_utf8(log().lock().unwrap().clone()).unwrap();
        log.lines().find(|line| line.contains(what)).map(str::to_owned)
    })
}

#[test]
fn a_panic_is_undone_and_logged_and_the_worker_and_writer_live_on() {
    log();
    let server = InProcess::made_of(|app| Arc::new(Panicking(app)));
    let api = server.tenant("acme").with_scopes(ALL);
    let first = api.customer("Before");
    // More often than there are workers or connections for reads.
    for _ in 0..40 {
        let id = uuid();
        api.call("DELETE", "/panic")
            .header("X-Request-Id", &id)
            .send()
            .fails_with(500, "internal_error");
        let id = uuid();
        let reply = api.call("GET", "/panic").header("X-Request-Id", &id).send();
        let message = reply.fails_with(500, "internal_error").message();
        assert!(!message.contains("in the middle"), "no detail of the cause: {message}");
        logged(&format!("a request was dropped without a response request_id={id}"));
    }
    logged("a mutation panicked and is undone");
    assert_eq!(api.total("/customers.php"), 1);
    assert_eq!(api.customer("After"), first + 1, "no id was used up");
}

#[test]
#[ignore = "takes 30 s; `make proof` runs it"]
fn proof_workers_that_take_no_request_for_half_a_minute_end_the_server() {
    let server = EdgeServer::start();
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/stuck")));
    assert_eq!(server.failure(), "no worker has received a request for 30 seconds");
}

#[test]
fn a_signal_ends_what_waits_and_answers_what_is_under_way() {
    ends_in_order("TERM");
    ends_in_order("INT");
}

fn ends_in_order(signal: &str) {
    let mut fixture = Fixture::new();
    let address = fixture.server.address();
    let begin = |bytes: &str| {
        let mut client = raw::Client::connect(address);
        client.send(bytes);
        client
    };
    let mut idle: Vec<raw::Client> = (0..100).map(|_| begin(&get("/readyz"))).collect();
    idle.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    let silent = raw::Client::connect(address);
    let half = begin("GET /readyz HTTP/1.1\r\nHost: ");
    let body = json!({"name": "Under way"}).to_string();
    let post = request("POST", RECORDS, &fixture.key, "Content-Type: application/json\r\n", &body);
    let locked = database(&fixture.tenant.file());
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut under_way: Vec<raw::Client> = (0..20).map(|_| begin(&post)).collect();
    assert_eq!(fixture.ask(RECORDS).status, 200, "those before it are with the service");

    fixture.server.signal(signal);
    until("it stops listening", || TcpStream::connect(address).is_err().then_some(()));
    for mut client in idle.into_iter().chain([silent, half]) {
        assert!(client.is_closed());
    }
    assert!(under_way.iter().all(|client| !client.is_answered()), "they wait for the lock");
    locked.execute_batch("COMMIT").unwrap();
    for client in &mut under_way {
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (201, "close"));
        assert!(client.is_closed());
    }
    assert_eq!(fixture.server.ended().code(), Some(0));
    // The last connection would empty the write-ahead log, so this one stays open.
    assert_eq!(fixture.tenant.files()[1].metadata().unwrap().len(), 0, "the log is empty");
    let kept: i64 =
        locked.query_row("SELECT count(*) FROM customers", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 20, "nothing acknowledged is lost");
}
