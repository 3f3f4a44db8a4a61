//! systemd's protocol of readiness and watchdog, as the supervisor receives it; help texts, and the
//! version.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::support::{DEADLINE, DataDir, Setup, TestServer, uninterrupted, until};

/// The supervisor's interval, in which a ping has to come.
const WATCHDOG: Duration = Duration::from_secs(9);

/// The next message.
fn receive(socket: &UnixDatagram) -> String {
    receive_within(socket, DEADLINE).unwrap()
}

/// The next message, which has to come within `time`.
fn receive_within(socket: &UnixDatagram, time: Duration) -> io::Result<String> {
    socket.set_read_timeout(Some(time))?;
    let mut message = [0; 4096];
    let length = uninterrupted(|| socket.recv(&mut message))?;
    Ok(String::from_utf8(message[..length].to_vec()).unwrap().trim_end().to_owned())
}

#[test]
fn a_supervisor_is_notified_of_readiness_reloading_and_stopping() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut server = Setup::plain().variable("NOTIFY_SOCKET", path.to_str().unwrap()).start();
    let expected = format!("READY=1\nSTATUS=listening on http://{}", server.address());
    assert_eq!(receive(&socket), expected);
    server.signal("HUP");
    let reloading = receive(&socket);
    let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(time.parse::<u64>().unwrap() > 0);
    assert_eq!(receive(&socket), expected, "the reload has ended");
    assert!(!server.log().contains("reloaded"), "there is no certificate");
    server.signal("TERM");
    assert!(receive(&socket).starts_with("STOPPING=1"));
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
#[ignore = "takes 11 s; `make proof` runs it"]
fn proof_watchdog_pings_come_until_the_process_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut server = Setup::plain()
        .variable("NOTIFY_SOCKET", path.to_str().unwrap())
        .variable("WATCHDOG_USEC", &WATCHDOG.as_micros().to_string())
        .start();
    assert!(receive(&socket).starts_with("READY=1"));
    assert_eq!(receive(&socket), "WATCHDOG=1");
    assert_eq!(receive_within(&socket, WATCHDOG).unwrap(), "WATCHDOG=1");
    server.signal("STOP");
    // A ping may have been sent before it stopped.
    while receive_within(&socket, WATCHDOG / 100).is_ok() {}
    let ping = receive_within(&socket, WATCHDOG / 2);
    assert_eq!(
        ping.map_err(|error| error.kind()),
        Err(io::ErrorKind::WouldBlock),
        "a stopped process sends no ping"
    );
    server.signal("CONT");
    server.signal("TERM");
    let last = until("it stops", || Some(receive(&socket)).filter(|text| text != "WATCHDOG=1"));
    assert!(last.starts_with("STOPPING=1"), "{last}");
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn a_missing_socket_does_not_keep_the_server_from_serving() {
    let server = Setup::plain().variable("NOTIFY_SOCKET", "/nowhere/notify").start();
    server.anonymous().get("/healthz").is(200);
    until("the warning", || server.log().contains("NOTIFY_SOCKET").then_some(()));
}

#[test]
fn the_help_of_a_command_has_its_options_and_examples() {
    let help = DataDir::new(false).cli(&["backup", "--help"]).done().stdout;
    let examples = "\nExamples:\n  tenantdesk backup ";
    assert!(help.contains("--keep <") && help.contains(examples), "{help}");
}

#[test]
fn the_version_names_the_release_and_sqlite() {
    let server = TestServer::start();
    let printed = server.cli(&["--version"]).done().stdout;
    let (release, rest) = printed.trim_end().split_once(" (").unwrap();
    assert_eq!(release, concat!("tenantdesk ", env!("CARGO_PKG_VERSION")));
    assert!(rest.contains("SQLite 3."), "{printed}");
}
