//! Faults inside the service: panics, a tiny_http that fails; and an orderly stop.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use socket2::{SockAddr, SockRef, Socket};
use tenantdesk::app::App;
use tenantdesk::clock::Clock;
use tenantdesk::http::{ApiError, Handler, Method};
use tenantdesk::model::{CUSTOMER, Field, KeyId, TenantId, Value};
use tenantdesk::store::{
    Actor, ChangeContext, DatabaseError, Deadline, KeyLabel, MutationError, MutationSize,
    StoreError, Writing,
};
use uuid::Uuid;

use crate::edge_server::EdgeServer;
use crate::support::raw::get;
use crate::support::{ALL, InProcess, until, uuid};

#[test]
fn a_panic_is_a_500_and_the_workers_live_on() {
    let server = EdgeServer::start();
    let mut client = server.connect();
    for _ in 0..100 {
        client.send(get("/panic"));
        client.answer().fails_with(500, "internal_error");
    }
    client.send(get("/forgotten"));
    client.answer().fails_with(500, "internal_error");
    client.send(get("/a"));
    assert_eq!(client.answer().status, 200);
}

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

/// Inserts a customer and panics.
fn insert_and_panic(writing: &Writing<'_>) -> Result<(), MutationError<()>> {
    let mut values: Vec<Value> = CUSTOMER.fields.iter().map(Field::default_value).collect();
    values[0] = Value::Text("Half made".into());
    let key = KeyLabel { id: KeyId(1), name: "a key".into(), prefix: "tdk_test".into() };
    let actor = Actor::Key { key, request_id: Uuid::nil() };
    let context = ChangeContext { at: Clock::system().now().timestamp(), actor };
    writing.insert(&CUSTOMER, None, values, &context)?;
    panic!("in the middle of a mutation");
}

/// The pipeline, except that a DELETE of `/panic` writes and panics, and a GET of it reads and
/// panics.
fn pipeline_that_panics(app: Arc<App>) -> Handler {
    Arc::new(move |request, responder| match (request.path.as_str(), &request.method) {
        ("/panic", &Method::DELETE) => {
            let done = |outcome: Result<_, StoreError>| {
                responder.send(ApiError::from(outcome.unwrap_err()).into())
            };
            let size = MutationSize { operations: 1, frees_space: false };
            app.tenants.open(TenantId(1)).unwrap().mutate(size, insert_and_panic, done);
            None
        }
        ("/panic", _) => {
            let tenant = app.tenants.open(TenantId(1)).unwrap();
            let _ = tenant.read(Deadline::new(Arc::default()), |_| -> Result<(), DatabaseError> {
                panic!("in the middle of a read")
            });
            None
        }
        _ => app.admit(request, responder),
    })
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
    let server = InProcess::made_of(pipeline_that_panics);
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
        logged(&format!("a handler panicked request_id={id}"));
    }
    logged("a mutation panicked and is undone");
    assert_eq!(api.total("/customers.php"), 1);
    assert_eq!(api.customer("After"), first + 1, "no id was used up");
}

/// In processes of their own, because they break every private socket of the process.
#[test]
fn a_tiny_http_that_fails_ends_the_server() {
    let this = std::env::current_exe().unwrap();
    for test in ["faults::its_connection_ends", "faults::it_accepts_nothing"] {
        let child = Command::new(&this).args(["--exact", "--ignored", test]).output().unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    }
}

#[test]
#[ignore = "run by the test above"]
fn its_connection_ends() {
    let server = EdgeServer::start();
    assert_eq!(server.ask(get("/a")).status, 200);
    assert!(shut_private_sockets(|socket| !socket.is_listener().unwrap_or(true)) > 0);
    assert_eq!(server.failure(), "tiny_http has stopped serving: its connection has ended");
}

#[test]
#[ignore = "run by the test above"]
fn it_accepts_nothing() {
    let server = EdgeServer::start();
    assert_eq!(shut_private_sockets(|socket| socket.is_listener().unwrap_or(false)), 1);
    assert_eq!(server.failure(), "tiny_http has stopped serving: its connection has ended");
}

#[test]
#[ignore = "takes 30 s; .ci/run runs it"]
fn long_workers_that_take_no_request_for_half_a_minute_end_the_server() {
    let server = EdgeServer::start();
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/stuck")));
    assert_eq!(
        server.failure(),
        "tiny_http has stopped serving: no worker received the watchdog's request"
    );
}

#[expect(
    unsafe_code,
    reason = "a descriptor that is not this test's own is only borrowed to be looked at"
)]
/// Shuts down the private sockets of this process for which `which` holds, and returns their
/// number.
fn shut_private_sockets(which: impl Fn(&Socket) -> bool) -> usize {
    let mut shut = 0;
    for number in 3..4096 {
        // SAFETY: the descriptor is only inspected, and one that is not open is an error.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let socket = SockRef::from(&descriptor);
        let private = |address: &SockAddr| {
            address
                .as_pathname()
                .is_some_and(|path| path.to_string_lossy().contains("/tenantdesk-"))
        };
        if socket.local_addr().is_ok_and(|address| private(&address)) && which(&socket) {
            Socket::shutdown(&socket, std::net::Shutdown::Both).unwrap();
            shut += 1;
        }
    }
    shut
}
