//! systemd's protocol of readiness and watchdog, as the supervisor receives it; help texts, and the
//! version.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use crate::support::server::run;
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

/// The paths of the command `path` and all commands below it.
fn commands(path: &[String]) -> Vec<Vec<String>> {
    let help = help(path);
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    // A name is indented by two spaces, the continuation of a description by more.
    let names =
        listed.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let below = names.flat_map(|line| {
        let name = line.split_whitespace().next().unwrap().to_owned();
        commands(&[path, &[name]].concat())
    });
    std::iter::once(path.to_vec()).chain(below).collect()
}

fn help(path: &[String]) -> String {
    let data_dir = DataDir::new(false);
    let mut command: Command = data_dir.command();
    command.args(path).arg("--help");
    run(command, "").done().stdout
}

#[test]
fn every_command_has_examples_and_everything_has_a_description() {
    for path in commands(&[]) {
        let help = help(&path);
        let (before, examples) = help.split_once("\nExamples:\n").expect(&help);
        assert!(examples.starts_with("  ") && help.starts_with(char::is_uppercase), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        // The continuation of a description is indented by more.
        let names = before.lines().filter(|line| {
            let name = line.trim_start();
            match line.len() - name.len() {
                2 => true,
                6 => name.starts_with("--"),
                _ => false,
            }
        });
        for line in names {
            let description = line.trim_start().split_once("  ").map(|(_, rest)| rest.trim_start());
            assert!(description.is_some_and(|text| text.starts_with(char::is_uppercase)), "{line}");
        }
    }
}

#[test]
fn the_version_names_the_release_and_sqlite() {
    let server = TestServer::start();
    let printed = server.cli(&["--version"]).done().stdout;
    let (release, rest) = printed.trim_end().split_once(" (").unwrap();
    assert_eq!(release, concat!("tenantdesk ", env!("CARGO_PKG_VERSION")));
    assert!(rest.contains("SQLite 3."), "{printed}");
}
