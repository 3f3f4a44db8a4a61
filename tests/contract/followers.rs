//! Contract section 12: whoever follows the change log has the present state, whatever happens
//! meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::{Api, Reply, TestServer, until};

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

/// The body of a GET. `None`: the server is away.
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
    let (mut server, api) = TestServer::with_unlimited_api();
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
