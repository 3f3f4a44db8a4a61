//! The shipped binary with more asked of it than it takes on.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::scene::{RECORDS, Scene};
use crate::support::raw::{Client, request};
use crate::support::{ALL, database};

const JSON: &str = "Content-Type: application/json\r\n";

/// Three tenants whose files do not answer, so that what is asked of them holds every line that one address may have,
/// and the rest waits until the queue is full.
#[test]
fn a_full_queue_refuses_the_greedy_at_once_and_serves_the_others() {
    let scene = Scene::new();
    let stuck: Vec<_> = ["one", "two", "three"].iter().map(|name| scene.desk.tenant(name)).collect();
    let posts: Vec<String> = stuck
        .iter()
        .map(|tenant| request("POST", RECORDS, &tenant.key(ALL).key, JSON, &json!({"name": "Late"}).to_string()))
        .collect();
    let locks: Vec<_> = stuck.iter().map(|tenant| database(&tenant.file())).collect();
    locks.iter().for_each(|lock| lock.execute_batch("BEGIN IMMEDIATE").unwrap());
    let begun = Instant::now();
    let mut holding: Vec<Client> = (0..90).map(|_| scene.connect()).collect();
    holding.iter_mut().zip(posts.iter().cycle()).for_each(|(client, post)| client.send(post));
    thread::sleep(Duration::from_millis(200));
    let mut waiting: Vec<Client> = (0..1_100).map(|_| scene.connect()).collect();
    let left = scene.get("/customers.php?id=999");
    waiting.iter_mut().for_each(|client| client.send(&left));
    let mut refused = scene.connect();
    refused.send(scene.get(RECORDS));
    let answer = refused.answer();
    answer.fails_with(503, "overloaded");
    assert_eq!((answer.header("retry-after"), answer.header("cache-control")), ("1", "no-store"));
    refused.send(scene.get("/healthz"));
    assert_eq!(refused.answer().status, 200, "on the same connection, which is good");

    let asked = Instant::now();
    let mut other = scene.connect();
    for _ in 0..10 {
        let post = request(
            "POST",
            RECORDS,
            &scene.key,
            &format!("{JSON}X-Forwarded-For: 198.51.100.7\r\n"),
            "{\"name\": \"Served\"}",
        );
        other.send(post);
        assert_eq!(other.answer().status, 201);
    }
    assert!(asked.elapsed() < Duration::from_secs(2), "another address waited {:?}", asked.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5), "too slow a machine to see it: {:?}", begun.elapsed());

    // Half of those that wait leave: what they asked is not done.
    let mut staying = waiting.split_off(550);
    drop(waiting);
    locks.iter().for_each(|lock| lock.execute_batch("COMMIT").unwrap());
    holding.iter_mut().for_each(|client| assert!([201, 503].contains(&client.answer().status)));
    let statuses: Vec<u16> = staying.iter_mut().map(|client| client.answer().status).collect();
    assert!(statuses.iter().all(|status| [404, 503].contains(status)), "{statuses:?}");
    scene.is_served();
    let done = scene.desk.log().lines().filter(|line| line.contains("status=404")).count();
    let expected = statuses.iter().filter(|status| **status == 404).count();
    assert!(done <= expected + 100, "{done} were done, {expected} of those who stayed");
}

#[test]
fn a_tenant_whose_file_is_locked_holds_up_nobody_else() {
    let scene = Scene::new();
    let stuck = scene.desk.tenant("stuck");
    let key = stuck.key(ALL).key;
    let locked = database(&stuck.file());
    locked.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT").unwrap();
    let gets = request("GET", RECORDS, &key, "", "");
    let post = request("POST", RECORDS, &key, JSON, "{\"name\": \"Late\"}");
    let mut held: Vec<Client> = (0..200).map(|_| scene.connect()).collect();
    held.iter_mut().zip([&gets, &post].iter().cycle()).for_each(|(client, bytes)| client.send(bytes));
    let started = Instant::now();
    for _ in 0..20 {
        scene.is_served();
        scene.api().customer("Served");
    }
    assert!(started.elapsed() < Duration::from_secs(4), "others waited {:?}", started.elapsed());
    drop(locked);
    held.iter_mut().for_each(|client| assert!([200, 201, 503].contains(&client.answer().status)));
}
