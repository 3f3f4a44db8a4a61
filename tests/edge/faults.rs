//! What breaks inside is mended; what is asked to stop ends well.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{SockAddr, SockRef, Socket};
use tenantdesk::app::App;
use tenantdesk::http::workers::Handler;
use tenantdesk::http::{ApiError, Method};
use tenantdesk::model::{CUSTOMER, Value};
use tenantdesk::server::Service;
use tenantdesk::store::{DatabaseError, MutationError, StoreError, Writing};

use crate::edge_server::EdgeServer;
use crate::support::raw::{Client, get};
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

#[test]
fn clients_that_reset_harm_nobody() {
    let server = EdgeServer::start();
    for _ in 0..300 {
        let mut client = server.connect();
        client.send(get("/a"));
        client.reset();
    }
    assert_eq!(server.ask(get("/a")).status, 200);
}

/// Makes a customer and panics.
fn insert_and_panic(writing: &Writing<'_>) -> Result<(), MutationError<()>> {
    let mut values = vec![Value::Null; CUSTOMER.fields.len()];
    values[0] = Value::Text("Half made".into());
    values[8] = Value::Text("active".into());
    writing.insert(&CUSTOMER, values, "2026-01-01T00:00:00Z")?;
    panic!("in the middle of a mutation");
}

/// The pipeline, except that a DELETE of `/panic` writes and panics, and a GET of it reads and panics.
fn pipeline_that_panics(app: Arc<App>) -> Handler {
    Arc::new(move |request, reply| match (request.path.as_str(), request.method) {
        ("/panic", Method::Delete) => {
            let done = |outcome: Result<_, StoreError>| reply.send(ApiError::from(outcome.unwrap_err()).into());
            app.tenants.open(1).unwrap().mutate(insert_and_panic, done);
        }
        ("/panic", _) => {
            let tenant = app.tenants.open(1).unwrap();
            let _ = tenant.read(|_| -> Result<(), DatabaseError> { panic!("in the middle of a read") });
        }
        _ => app.respond(&request, reply),
    })
}

/// Everything that this process logs, for tests that look for a line of their own.
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
fn a_panic_is_undone_logged_with_its_place_and_the_worker_and_writer_live_on() {
    log();
    let server = InProcess::made_of(pipeline_that_panics);
    let api = server.tenant("acme").with_scopes(ALL);
    let first = api.customer("Before");
    // More often than there are workers, or connections to read with.
    for _ in 0..40 {
        let id = uuid();
        api.call("DELETE", "/panic").header("X-Request-Id", &id).send().fails_with(500, "internal_error");
        let id = uuid();
        api.call("GET", "/panic").header("X-Request-Id", &id).send().fails_with(500, "internal_error");
        assert!(logged(&format!("a handler panicked request_id={id}")).contains("tests/gate/faults.rs:"));
    }
    let undone = logged("a mutation panicked and is undone");
    assert!(undone.contains("tests/gate/faults.rs:") && undone.contains("in the middle of a mutation"), "{undone}");
    assert_eq!(api.total("/customers.php"), 1);
    assert_eq!(api.customer("After"), first + 1, "no id was used up");
}

/// In a process of its own: it breaks every line there.
#[test]
fn a_line_that_broke_is_opened_again() {
    let this = std::env::current_exe().unwrap();
    let child = Command::new(this).args(["--exact", "--ignored", "faults::broken_and_reopened"]).output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
#[ignore = "run by the test above"]
fn broken_and_reopened() {
    let server = EdgeServer::start();
    let mut client = server.connect();
    for _ in 0..20 {
        client.send(get("/a"));
        assert_eq!(client.answer().status, 200);
        // Some lines are busy, some are idle; the first that are used after this are new.
        client.send(get("/slow?1000"));
        thread::sleep(Duration::from_millis(100));
        assert!(shut_private_sockets(|socket| !socket.is_listener().unwrap_or(true)) > 0);
        client.answer().fails_with(500, "internal_error");
        client.send(get("/a"));
        assert_eq!(client.answer().status, 200);
    }
}

/// tiny_http's accept loop ends at the first error, without a word. In a process of its own: it hits every server there.
#[test]
fn a_server_that_went_deaf_is_replaced() {
    let this = std::env::current_exe().unwrap();
    let child = Command::new(this).args(["--exact", "--ignored", "faults::deaf_and_mended"]).output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
#[ignore = "run by the test above"]
fn deaf_and_mended() {
    let server = EdgeServer::start();
    let mut kept = server.connect();
    kept.send(get("/a"));
    assert_eq!(kept.answer().status, 200);
    assert_eq!(shut_private_sockets(|socket| socket.is_listener().unwrap_or(false)), 1);
    let started = Instant::now();
    let mut clients: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/slow?100")));
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    kept.send(get("/a"));
    assert_eq!(kept.answer().status, 200);
}

#[expect(unsafe_code, reason = "a descriptor that is not this test's own is only borrowed to be looked at")]
/// Ends private sockets of this process behind its back, those that `which` says.
fn shut_private_sockets(which: impl Fn(&Socket) -> bool) -> usize {
    let mut shut = 0;
    for number in 3..4096 {
        // SAFETY: the descriptor is only looked at, and one that is not open is an error.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let socket = SockRef::from(&descriptor);
        let private = |address: &SockAddr| {
            address.as_pathname().is_some_and(|path| path.to_string_lossy().contains("/tenantdesk-"))
        };
        if socket.local_addr().is_ok_and(|address| private(&address)) && which(&socket) {
            Socket::shutdown(&socket, std::net::Shutdown::Both).unwrap();
            shut += 1;
        }
    }
    shut
}

#[test]
fn stopping_answers_what_is_under_way_and_closes_the_rest() {
    let server = EdgeServer::start();
    let address = server.address;
    let mut idle = server.connect();
    idle.send(get("/a"));
    assert_eq!(idle.answer().status, 200);
    let mut silent = server.connect();
    let mut half = server.connect();
    half.send("GET /a HTTP/1.1\r\n");
    let mut busy = server.connect();
    busy.send(get("/slow?1000"));
    thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    let stopping = thread::spawn(move || server.stop());
    assert_eq!(busy.answer().status, 200);
    assert!(busy.is_closed());
    assert!(idle.is_closed());
    assert!(silent.is_closed());
    half.rest();
    stopping.join().unwrap();
    assert!(started.elapsed() < Duration::from_secs(8), "what is idle was waited for");
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_port_that_is_taken_is_said() {
    let server = EdgeServer::start();
    let options = tenantdesk::server::Options { listen: server.address, ..Default::default() };
    let problem = Service::start_with(std::sync::Arc::new(|_, _| {}), &options).err().unwrap().to_string();
    assert!(problem.starts_with(&format!("cannot listen on {}", server.address)), "{problem}");
}
