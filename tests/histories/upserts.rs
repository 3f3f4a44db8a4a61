//! POST with `update_by` under load and kill -9: each number has one record, and one request created
//! it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use crate::support::random::{Random, seed};
use crate::support::{ALL, Api, Setup, until};

const CLIENTS: usize = 32;
const NUMBERS: usize = 50;
const REQUESTS: usize = 10_000;

#[test]
fn each_number_has_one_record_whatever_happens() {
    let mut server = Setup::without_rate_limit().start();
    let api = server.tenant("acme").with_scopes(ALL);
    // The statuses of each number. 0: there was no answer.
    let answered: Mutex<BTreeMap<usize, Vec<u16>>> = Mutex::default();
    let sent = AtomicUsize::new(0);
    let seed = seed("HISTORY_SEED");
    let work = |api: Api, mut random: Random| {
        while sent.fetch_add(1, Ordering::SeqCst) < REQUESTS {
            let number = random.below(NUMBERS);
            let phone = random.below(100).to_string();
            let body =
                json!({"name": "One", "customer_number": number.to_string(), "phone": phone});
            let call = api.call("POST", "/customers.php?update_by=customer_number");
            let status = call.json(&body).try_send().map_or(0, |reply| reply.status);
            answered.lock().unwrap().entry(number).or_default().push(status);
            if status == 0 {
                until("the server is back", || {
                    api.call("GET", "/healthz").try_send().is_ok().then_some(())
                });
            }
        }
    };
    thread::scope(|scope| {
        for n in 0..CLIENTS {
            let (api, work) = (api.clone(), &work);
            scope.spawn(move || work(api, Random::new(seed.wrapping_add(n as u64))));
        }
        for share in [50, 10, 2] {
            until("the clients are at work", || {
                (sent.load(Ordering::SeqCst) >= REQUESTS / share).then_some(())
            });
            server.kill();
            server.restart();
        }
    });
    let answered = answered.into_inner().unwrap();
    assert_eq!(answered.len(), NUMBERS);
    for (number, statuses) in answered {
        let count = |status| statuses.iter().filter(|other| **other == status).count();
        let (created, updated, unknown) = (count(201), count(200), count(0));
        assert_eq!(created + updated + unknown, statuses.len(), "{number}: {statuses:?}");
        assert!(created == 1 || created == 0 && unknown > 0, "{number}: {statuses:?}");
    }
    assert_eq!(api.total("/customers.php"), NUMBERS as i64);
    server.cli(&["check"]).done();
}
