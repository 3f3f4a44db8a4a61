//! What breaks inside is mended; what is asked to stop ends well.

use std::os::fd::BorrowedFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{SockAddr, SockRef, Socket};
use tenantdesk::service::Service;

use crate::desk::Desk;
use crate::support::raw::{Client, get};

#[test]
fn a_panic_is_a_500_and_the_workers_live_on() {
    let desk = Desk::start();
    let mut client = desk.connect();
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
    let desk = Desk::start();
    for _ in 0..300 {
        let mut client = desk.connect();
        client.send(get("/a"));
        client.reset();
    }
    assert_eq!(desk.ask(get("/a")).status, 200);
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
    let desk = Desk::start();
    let mut kept = desk.connect();
    kept.send(get("/a"));
    assert_eq!(kept.answer().status, 200);
    assert_eq!(shut_private_listeners(), 1);
    let started = Instant::now();
    let mut clients: Vec<Client> = (0..40).map(|_| desk.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/slow?100")));
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    kept.send(get("/a"));
    assert_eq!(kept.answer().status, 200);
}

/// Ends every private listener of this process behind its back.
fn shut_private_listeners() -> usize {
    let mut shut = 0;
    for number in 3..4096 {
        // SAFETY: the descriptor is only looked at, and one that is not open is an error.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let socket = SockRef::from(&descriptor);
        let private = |address: &SockAddr| {
            address.as_pathname().is_some_and(|path| path.to_string_lossy().contains("/tenantdesk-"))
        };
        if socket.is_listener().unwrap_or(false) && socket.local_addr().is_ok_and(|address| private(&address)) {
            Socket::shutdown(&socket, std::net::Shutdown::Both).unwrap();
            shut += 1;
        }
    }
    shut
}

#[test]
fn stopping_answers_what_is_under_way_and_closes_the_rest() {
    let desk = Desk::start();
    let address = desk.address;
    let mut idle = desk.connect();
    idle.send(get("/a"));
    assert_eq!(idle.answer().status, 200);
    let mut silent = desk.connect();
    let mut half = desk.connect();
    half.send("GET /a HTTP/1.1\r\n");
    let mut busy = desk.connect();
    busy.send(get("/slow?1000"));
    thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    let stopping = thread::spawn(move || desk.stop());
    assert_eq!(busy.answer().status, 200);
    assert!(busy.is_closed());
    assert!(idle.is_closed());
    assert!(silent.is_closed());
    half.rest();
    stopping.join().unwrap();
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_port_that_is_taken_is_said() {
    let desk = Desk::start();
    let options = tenantdesk::service::Options { listen: desk.address, ..Default::default() };
    let problem = Service::start_with(std::sync::Arc::new(|_, _| {}), &options).err().unwrap().to_string();
    assert!(problem.starts_with(&format!("cannot listen on {}", desk.address)), "{problem}");
}
