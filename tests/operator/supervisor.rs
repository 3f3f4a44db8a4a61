//! systemd's protocol of readiness and watchdog, as its other end hears it.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use crate::support::{DEADLINE, Setup, uuid};

fn hear(socket: &UnixDatagram) -> String {
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut message = [0; 4096];
    let length = socket.recv(&mut message).unwrap();
    String::from_utf8(message[..length].to_vec()).unwrap()
}

/// The next message that is no sign of life.
fn hear_news(socket: &UnixDatagram) -> String {
    loop {
        let message = hear(socket);
        if message != "WATCHDOG=1" {
            return message;
        }
    }
}

#[test]
fn a_supervisor_hears_of_readiness_reloading_and_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut server = Setup::plain().variable("NOTIFY_SOCKET", path.to_str().unwrap()).start();
    let ready = hear(&socket);
    let expected = format!("READY=1\nSTATUS=listening on http://{}", server.address());
    assert_eq!(ready, expected);
    server.signal("HUP");
    let reloading = hear(&socket);
    let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(time.parse::<u64>().unwrap() > 0);
    assert_eq!(hear(&socket), expected, "and it is over");
    server.signal("TERM");
    assert!(hear(&socket).starts_with("STOPPING=1"));
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn signs_of_life_come_over_an_abstract_socket_as_long_as_it_lives() {
    let name = format!("tenantdesk-test-{}", uuid());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let mut server =
        Setup::plain().variable("NOTIFY_SOCKET", &format!("@{name}")).variable("WATCHDOG_USEC", "15000000").start();
    assert!(hear(&socket).starts_with("READY=1"));
    assert_eq!(hear(&socket), "WATCHDOG=1");
    let started = Instant::now();
    assert_eq!(hear(&socket), "WATCHDOG=1");
    assert!(started.elapsed() < Duration::from_secs(15), "within the supervisor's patience");
    server.signal("STOP");
    socket.set_read_timeout(Some(Duration::from_secs(6))).unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err(), "who stands still gives no sign");
    server.signal("CONT");
    server.signal("TERM");
    assert!(hear_news(&socket).starts_with("STOPPING=1"));
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn a_socket_that_is_not_there_keeps_nobody_from_serving() {
    let server = Setup::plain().variable("NOTIFY_SOCKET", "/nowhere/notify").start();
    server.anonymous().get("/healthz").is(200);
    assert!(server.log().contains("NOTIFY_SOCKET"), "{}", server.log());
}
