//! Clients of several addresses, in a network namespace: loopback addresses have no share.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;

use socket2::{Domain, Socket, Type};

use super::can;
use super::raw::Client;

pub(crate) const GREEDY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const MODEST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Runs an ignored test of this binary in a network that has these addresses. If this user or
/// container cannot make one, nothing is run.
#[track_caller]
pub(crate) fn run_in_own_network(test: &str) {
    if !can("unshare -n ip link set lo up") {
        return;
    }
    let script = format!(
        "ip link set lo up; ip addr add {GREEDY}/32 dev lo; ip addr add {MODEST}/32 dev lo;
         exec \"$0\" --exact --ignored --nocapture {test}"
    );
    let this = std::env::current_exe().unwrap();
    let child =
        Command::new("unshare").args(["-n", "sh", "-ec", &script]).arg(&this).output().unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let said = format!("{output}{}", String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{said}");
    assert!(output.contains("1 passed"), "{test} was not run: {said}");
    eprint!("{said}");
}

/// A connection whose peer address is `address`.
pub(crate) fn from(address: Ipv4Addr, server: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&server.into()).unwrap();
    Client::over(TcpStream::from(socket))
}
