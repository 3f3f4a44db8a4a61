//! Contract section 12: whoever follows the change log has the present state, whatever happens
//! meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::imports::{ROWS, start_import, succeeds, write_rows};
use crate::support::{ALL, Api, Reply, TestServer, until};

const PATHS: [&str; 3] = ["/customers.php", "/employees.php", "/hardware.php"];

/// A copy of a tenant's records, made from the change log alone.
struct Follower {
    api: Api,
    limit: usize,
    cursor: String,
    records: BTreeMap<(String, i64), Value>,
    last_seq: i64,
}

impl Follower {
    fn new(api: &Api, limit: usize) -> Follower {
        let cursor =
            api.get("/changes.php?cursor=now").found()["next_cursor"].as_str().unwrap().to_owned();
        Follower { api: api.clone(), limit, cursor, records: BTreeMap::new(), last_seq: 0 }
    }

    /// Takes the next page. Returns whether it had an entry; a server that is away has none.
    fn step(&mut self, reconnects: bool) -> bool {
        if reconnects {
            self.api = self.api.clone();
        }
        let target = format!("/changes.php?limit={}&cursor={}", self.limit, self.cursor);
        let Some(page) = read(&self.api, &target) else { return false };
        self.cursor = page["next_cursor"].as_str().unwrap().to_owned();
        let entries = page["data"].as_array().unwrap();
        for entry in entries {
            let seq = entry["seq"].as_i64().unwrap();
            assert!(seq > self.last_seq, "each entry once and in order");
            self.last_seq = seq;
            let key =
                (entry["resource"].as_str().unwrap().to_owned(), entry["id"].as_i64().unwrap());
            match &entry["record"] {
                Value::Null => drop(self.records.remove(&key)),
                record => drop(self.records.insert(key, record.clone())),
            }
        }
        !entries.is_empty()
    }
}

/// What a GET found; `None` where the server is away.
fn read(api: &Api, target: &str) -> Option<Value> {
    let reply = api.call("GET", target).try_send().ok()?;
    (reply.status != 503).then(|| reply.found())
}

/// Creates, changes and deletes records until `count` were acknowledged.
fn write(api: &Api, writer: usize, count: usize, acknowledged: &AtomicUsize) {
    let mut own: Vec<(usize, i64)> = Vec::new();
    let mut done = 0;
    for n in 0.. {
        if done == count {
            return;
        }
        let sent = match (n % 4, own.last().copied()) {
            (0 | 1, _) | (_, None) => post(api, writer, n),
            (2, Some((path, id))) => api
                .call("PUT", &format!("{}?id={id}", PATHS[path]))
                .json(&json!({"notes": format!("{writer} {n}")}))
                .try_send(),
            (_, Some((path, id))) => {
                own.pop();
                api.call("DELETE", &format!("{}?id={id}", PATHS[path])).try_send()
            }
        };
        let Ok(reply) = sent else {
            thread::yield_now();
            continue;
        };
        if reply.status == 201 {
            own.push((
                PATHS.iter().position(|path| reply.asked.path() == *path).unwrap(),
                reply.json()["id"].as_i64().unwrap(),
            ));
        }
        if reply.status < 300 {
            done += 1;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn post(api: &Api, writer: usize, n: usize) -> std::io::Result<Reply> {
    let (path, body) = match n % 3 {
        1 => (
            "/employees.php",
            json!({"customer_id": 1, "email": format!("w{writer}n{n}@shop.example")}),
        ),
        2 => ("/hardware.php", json!({"name": format!("Device {writer} {n}")})),
        _ => ("/customers.php", json!({"name": format!("Customer {writer} {n}")})),
    };
    api.call("POST", path).json(&body).try_send()
}

/// The records of all lists.
fn present(api: &Api) -> BTreeMap<(String, i64), Value> {
    let mut records = BTreeMap::new();
    for path in PATHS {
        let plural = path.trim_start_matches('/').trim_end_matches(".php");
        for record in api.all(&format!("{path}?limit=200")) {
            records.insert((plural.to_owned(), record["id"].as_i64().unwrap()), record);
        }
    }
    records
}

#[test]
fn followers_have_exactly_what_the_lists_give() {
    let mut server = TestServer::without_rate_limit();
    let api = server.tenant("acme").with_scopes(ALL);
    let followers = [(200, false), (7, true), (50, false)]
        .map(|(limit, reconnects)| (Follower::new(&api, limit), reconnects));
    api.customer("The first");
    let rows: String = (0..500).map(|n| format!("Imported {n}\n")).collect();
    std::fs::write(server.home().join("c.csv"), format!("name\n{rows}")).unwrap();
    let (acknowledged, written) = (AtomicUsize::new(0), AtomicBool::new(false));
    let followers = thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (api, acknowledged) = (api.clone(), &acknowledged);
                scope.spawn(move || write(&api, writer, 60, acknowledged))
            })
            .collect();
        let following = followers.map(|(mut follower, reconnects)| {
            let written = &written;
            scope.spawn(move || {
                loop {
                    let is_last = written.load(Ordering::SeqCst);
                    if !follower.step(reconnects) && is_last {
                        return follower;
                    }
                }
            })
        });
        for (restart, count) in [60, 160, 260, 360].into_iter().enumerate() {
            until("some writes are acknowledged", || {
                (acknowledged.load(Ordering::Relaxed) >= count).then_some(())
            });
            if restart == 1 {
                server.cli(&["import", "acme", "customers", "c.csv"]).done();
            } else {
                server.restart();
            }
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        written.store(true, Ordering::SeqCst);
        following.map(|follower| follower.join().unwrap())
    });
    let expected = present(&api);
    assert!(expected.len() > 500);
    for follower in followers {
        assert_eq!(follower.records.len(), expected.len());
        assert!(follower.records == expected, "a follower has another state than the lists");
    }
    server.cli(&["check"]).done();
}

impl Follower {}

#[test]
fn a_follower_gets_all_entries_of_an_import_beside_those_of_others() {
    let server = TestServer::without_rate_limit();
    let api = server.tenant("acme").with_scopes(ALL);
    let mut follower = Follower::new(&api, 50);
    api.customer("The first");
    write_rows(&server, "c.csv", ROWS);
    let (acknowledged, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for writer in 0..2 {
            let (api, acknowledged, ended) = (api.clone(), &acknowledged, &ended);
            scope.spawn(move || {
                while !ended.load(Ordering::SeqCst) {
                    write(&api, writer, 1, acknowledged);
                }
            });
        }
        until("the follower has an entry of another writer", || {
            (follower.step(false) && follower.records.len() > 1).then_some(())
        });
        let mut import = start_import(&server, &["customers", "c.csv"]);
        while import.try_wait().unwrap().is_none() {
            follower.step(false);
        }
        succeeds(import);
        ended.store(true, Ordering::SeqCst);
    });
    while follower.step(false) {}
    assert!(follower.records == present(&api), "the follower has another state than the lists");
    let imported = api.all("/customers.php?q=imported&limit=200");
    assert_eq!(imported.len() as i64, ROWS);
    let id = &imported[0]["id"];
    let entry = &api.get(&format!("/changes.php?resource=customers&id={id}")).found()["data"][0];
    assert_eq!(entry["by"]["name"], "import", "{entry}");
    let tag = api.get(&format!("/customers.php?id={id}")).header("etag").unwrap().to_owned();
    assert_eq!(tag, format!("\"{}\"", entry["seq"]));
    server.cli(&["check"]).done();
}

#[test]
fn after_a_kill_a_change_and_its_entry_are_both_there_or_neither() {
    kill_while_following(8);
}

#[test]
#[ignore = "takes a minute"]
fn after_each_of_two_hundred_kills_a_change_and_its_entry_are_both_there_or_neither() {
    kill_while_following(200);
}

fn kill_while_following(rounds: usize) {
    let mut server = TestServer::without_rate_limit();
    let tenant = server.tenant("acme");
    let api = tenant.with_scopes(ALL);
    let mut follower = Follower::new(&api, 200);
    let mut total = 0;
    for _ in 0..rounds {
        let acknowledged = AtomicUsize::new(0);
        let moment = usize::from(uuid::Uuid::new_v4().as_bytes()[0]) / 4 + 1;
        thread::scope(|scope| {
            for writer in 0..8 {
                let (api, acknowledged) = (api.clone(), &acknowledged);
                scope.spawn(move || write_until_gone(&api, writer, acknowledged));
            }
            until("writes are acknowledged", || {
                (acknowledged.load(Ordering::Relaxed) >= moment).then_some(())
            });
            server.kill();
        });
        server.restart();
        total += acknowledged.into_inner();
        while follower.step(true) {}
        assert_eq!(
            follower.records,
            present(&api),
            "each change has its entry, and each entry its change"
        );
    }
    assert!(total > rounds);
    server.cli(&["check"]).done();
}

/// Creates and changes records until the server is gone.
fn write_until_gone(api: &Api, writer: usize, acknowledged: &AtomicUsize) {
    for n in 0.. {
        let name = format!("Writer {writer} number {n}");
        let Ok(reply) = api.call("POST", "/customers.php").json(&json!({"name": name})).try_send()
        else {
            return;
        };
        let target = format!("/customers.php?id={}", reply.is(201).json()["id"]);
        acknowledged.fetch_add(1, Ordering::Relaxed);
        let change = json!({"city": name});
        let sent = if n % 3 == 0 {
            api.call("DELETE", &target).try_send()
        } else {
            api.call("PUT", &target).json(&change).try_send()
        };
        if sent.is_err() {
            return;
        }
    }
}
