//! What tiny_http alone did not survive, sent to the shipped binary.

use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::fixture::{RECORDS, Scene};
use crate::support::raw::{Client, get};
use crate::support::{Desk, Setup, until};

#[test]
fn sixty_bytes_that_announce_a_hundred_gigabytes() {
    let scene = Scene::new();
    let bytes = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000000\r\n\r\n";
    assert_eq!(bytes.len(), 60 - 2);
    for round in 0..100 {
        let mut client = scene.connect();
        client.send(bytes);
        match round % 3 {
            0 => assert_eq!(client.answer().status, 405),
            1 => client.reset(),
            _ => drop(client),
        }
    }
    scene.is_served();
    assert!(scene.vitals().peak_memory < 100 * 1024, "{:?}", scene.vitals());
}

#[test]
fn two_hundred_keep_alive_connections_at_once_twenty_times_from_a_fresh_start() {
    let mut scene = Scene::new();
    for _ in 0..20 {
        let mut clients: Vec<Client> = (0..200).map(|_| scene.connect()).collect();
        for _ in 0..2 {
            clients.iter_mut().for_each(|client| client.send(scene.get(RECORDS)));
            clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
        }
        drop(clients);
        scene.desk.restart();
    }
}

#[test]
fn three_thousand_resets_after_a_whole_request() {
    let scene = Scene::new();
    let before = scene.settled();
    for _ in 0..3_000 {
        let mut client = scene.connect();
        client.send(scene.get(RECORDS));
        client.reset();
    }
    scene.is_served();
    scene.is_back_at(before);
}

#[test]
fn a_hundred_heads_without_end() {
    let scene = Scene::new();
    let lines = "X-Endless: and one more line of it\r\n".repeat(100);
    let mut clients: Vec<Client> = (0..100).map(|_| scene.connect()).collect();
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: desk\r\n"));
    for _ in 0..20 {
        // Those that were refused meanwhile take no more.
        clients.iter_mut().for_each(|client| _ = client.try_send(&lines));
    }
    scene.is_served();
    assert!(scene.vitals().peak_memory < 100 * 1024, "{:?}", scene.vitals());
    let refused = clients.iter_mut().filter_map(|client| client.try_answer(false));
    assert!(refused.inspect(|answer| assert_eq!(answer.status, 431)).count() > 0);
}

#[test]
fn more_connections_than_descriptors() {
    // A tenth of a usual limit: for some 50 connections, the lines behind the gate, and the databases.
    let scene = Scene::with(Setup::roomy().limited_to("-n 100"));
    let mut clients: Vec<Client> = (0..300).map(|_| scene.connect()).collect();
    let bytes = scene.get(RECORDS);
    let served = clients.iter_mut().filter_map(|client| {
        let sent = client.try_send(&bytes);
        let answer = sent.then(|| client.try_answer(false)).flatten()?;
        assert!([200, 503].contains(&answer.status), "{answer:?}");
        (answer.status == 200).then_some(())
    });
    assert!(served.count() >= 40);
    drop(clients);
    until("all are served again", || ask_once(&scene).filter(|status| *status == 200));
    scene.is_served();
}

/// Lets the process open so many descriptors more, of those that it has not now.
fn leave_descriptors(desk: &Desk, more: usize) {
    let taken = std::fs::read_dir(format!("/proc/{}/fd", desk.pid())).unwrap();
    let taken: Vec<u64> = taken.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let limit = (0..).filter(|number| !taken.contains(number)).nth(more).unwrap();
    set_descriptor_limit(desk, limit);
}

fn set_descriptor_limit(desk: &Desk, number: u64) {
    let pid = Pid::from_raw(i32::try_from(desk.pid()).unwrap());
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(number), maximum: Some(number.max(4_096)) }).unwrap();
}

#[test]
fn no_descriptor_to_be_had_for_a_while() {
    let scene = Scene::new();
    let mut kept = scene.connect();
    let ask = |client: &mut Client| {
        client.send(scene.get(RECORDS));
        client.answer().status
    };
    assert_eq!(ask(&mut kept), 200);
    leave_descriptors(&scene.desk, 0);
    let mut waiting = scene.connect();
    waiting.send(scene.get(RECORDS));
    // Longer than the inner server is left alone.
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        assert_eq!(ask(&mut kept), 200, "{}", scene.desk.log());
        thread::sleep(Duration::from_millis(100));
    }
    assert!(scene.desk.log().contains("a connection could not be accepted"));
    set_descriptor_limit(&scene.desk, 4_096);
    assert_eq!(waiting.answer().status, 200);
    scene.is_served();
}

/// One more for the gate to ask for a new line, and the one that tiny_http waits with for a connection; that it wants a
/// second for it ends its accept loop, and there are none for a new server either.
#[test]
fn no_new_server_to_be_had_ends_the_process_with_a_message() {
    let mut desk = Desk::start();
    leave_descriptors(&desk, 2);
    let started = Instant::now();
    // tiny_http panics where it has no descriptor for a connection, which the log may say.
    let status = desk.ended_whatever_it_said();
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(status.code(), Some(1));
    let log = desk.log();
    assert!(log.lines().last().unwrap().contains("the server behind the gate stopped answering"), "{log}");
}

fn threads_of_nobody() -> usize {
    let processes =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let processes = processes.filter_map(|name| std::fs::read_to_string(format!("/proc/{name}/status")).ok());
    let number = |status: &str, name: &str| -> Option<usize> {
        status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let its = processes.filter(|status| number(status, "Uid:") == Some(65_534));
    its.map(|status| number(&status, "Threads:").unwrap_or(0)).sum()
}

#[test]
fn more_work_than_threads() {
    threads_run_out(|| threads_of_nobody() + 6);
}

#[test]
fn no_thread_to_be_had() {
    threads_run_out(|| 0);
}

/// Only root can set a user apart whose threads are counted alone.
fn threads_run_out(limit: fn() -> usize) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut scene = Scene::with(Setup::roomy().unprivileged());
    scene.is_served();
    let mut prlimit = Command::new("prlimit");
    prlimit.args([format!("--pid={}", scene.desk.pid()), format!("--nproc={}:", limit())]);
    // Root would need a capability for another user's process.
    scene.desk.as_its_user(&mut prlimit);
    assert!(prlimit.status().unwrap().success());
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..60 {
            scope.spawn(|| ask_for(&scene, Duration::from_secs(3)));
        }
    });
    // Either it found a way, or its supervisor has to know.
    if ask_once(&scene).is_none() {
        let status = scene.desk.ended_whatever_it_said();
        let log = scene.desk.log();
        assert_eq!(status.code(), Some(1), "{status}: {log}");
        assert!(log.contains("error: the server behind the gate stopped answering"), "{log}");
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        scene.desk.restart();
    }
    scene.is_served();
    scene.desk.kill();
}

/// The status of one request on a connection of its own, where there is an answer.
fn ask_once(scene: &Scene) -> Option<u16> {
    let stream = TcpStream::connect(scene.desk.address()).ok()?;
    let mut client = Client::over(stream);
    let sent = client.try_send(scene.get(RECORDS));
    sent.then(|| client.try_answer(false)).flatten().map(|answer| answer.status)
}

/// Asks again and again for so long, or until there is nobody to be asked.
fn ask_for(scene: &Scene, time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time && ask_once(scene).is_some() {}
}

#[test]
fn a_hundred_thousand_pipelined_requests_whose_answers_nobody_reads() {
    let scene = Scene::new();
    let mut flood = scene.connect();
    flood.socket().set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // The kernels of both sides take megabytes of it.
    let _ = flood.try_send(get("/openapi.json").repeat(100_000));
    for _ in 0..20 {
        scene.is_served();
    }
    assert!(scene.desk.log().matches("/openapi.json").count() < 1_000, "its answers are not made before they are read");
    assert!(scene.vitals().peak_memory < 100 * 1024, "{:?}", scene.vitals());
    drop(flood);
    scene.is_served();
}
