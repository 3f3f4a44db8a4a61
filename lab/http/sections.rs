//! What is measured.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::load::Outcome;
use crate::records::{self, Random};
use crate::server::Server;
use crate::table::Figure;
use crate::{Measure, Settings};

/// The connections of a load that looks for the highest rate.
const CONNECTIONS: usize = 32;

/// The number of the next customer that is created, unique in a run.
static NUMBERS: AtomicU64 = AtomicU64::new(10_000_000);

/// The next customer, as a client sends it: with an idempotency key.
fn create(server: &Server, tenant: usize, record: fn(u64) -> Value) -> Vec<u8> {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let header = format!("Idempotency-Key: {}\r\n", uuid::Uuid::new_v4());
    let body = record(number).to_string();
    server.request(tenant, "POST", "/customers.php", &header, &body)
}

/// The highest rate, the slowest hundredth, and the server's processor time for each request.
fn speed(name: &str, (outcome, each): &(Outcome, f64)) -> Vec<Figure> {
    let mut figures = vec![Figure::new(name, outcome.rate(), "/s")];
    figures.extend(Figure::latencies(name, outcome, [("p99", 0.99), ("worst", 1.0)]));
    figures.push(Figure::new(format!("{name}, processor time"), *each, "µs"));
    figures
}

/// GET one record, and a page.
pub(crate) fn get(settings: &Settings, binary: &Path) -> io::Result<Measure> {
    const RECORDS: u64 = 1000;
    let (server, time) = (Server::start(binary, 1)?, settings.time);
    server.fill(0, RECORDS)?;
    Ok(Box::new(move || {
        let mut random = Random(1);
        let mut one =
            || Some(server.get(0, &format!("/customers.php?id={}", 1 + random.below(RECORDS))));
        let mut figures = speed("GET one", &server.load(CONNECTIONS, time, 200, &mut one)?);
        let mut page = || Some(server.get(0, "/customers.php"));
        figures.extend(speed("GET page", &server.load(CONNECTIONS, time, 200, &mut page)?));
        Ok(figures)
    }))
}

/// POST into one tenant and into 200.
pub(crate) fn post(settings: &Settings, binary: &Path) -> io::Result<Measure> {
    const TENANTS: usize = 200;
    let (server, time) = (Server::start(binary, TENANTS)?, settings.time);
    Ok(Box::new(move || {
        let mut figures = Vec::new();
        for (name, tenants) in [("POST, one tenant", 1), ("POST, 200 tenants", TENANTS)] {
            let mut tenant = 0;
            let mut next = || {
                tenant = (tenant + 1) % tenants;
                Some(create(&server, tenant, records::customer))
            };
            figures.extend(speed(name, &server.load(CONNECTIONS, time, 201, &mut next)?));
        }
        Ok(figures)
    }))
}

/// More tenants than a server has open: a start, GETs evenly over all, and the memory after them.
pub(crate) fn tenants(settings: &Settings, binary: &Path) -> io::Result<Measure> {
    const TENANTS: usize = 400;
    let (server, time) = (Server::start(binary, TENANTS)?, settings.time);
    let mut all = 0..TENANTS;
    let mut next = || Some(create(&server, all.next()?, records::customer));
    server.load(1, Duration::MAX, 201, &mut next)?;
    Ok(Box::new(move || {
        let start = server.restart()?;
        let mut figures = vec![Figure::new("start, 400 tenants", start, "ms")];
        let mut random = Random(1);
        let mut next =
            || Some(server.get(random.below(TENANTS as u64) as usize, "/customers.php?id=1"));
        let outcome = server.load(CONNECTIONS, time, 200, &mut next)?;
        figures.extend(speed("GET, 400 tenants", &outcome));
        figures.push(Figure::new("memory, 400 tenants", server.memory(), "MB"));
        Ok(figures)
    }))
}

/// One client that sends one mutation at a time to a large tenant.
pub(crate) fn latency(settings: &Settings, binary: &Path) -> io::Result<Measure> {
    let (server, time, records) = (Server::start(binary, 1)?, settings.time, settings.records);
    server.fill(0, records)?;
    let mut next_id = records + 1;
    Ok(Box::new(move || {
        let mut figures = Vec::new();
        let mut add = |name: &str, outcome: &Outcome| {
            let parts = [("median", 0.5), ("p99", 0.99), ("p999", 0.999), ("worst", 1.0)];
            figures.extend(Figure::latencies(name, outcome, parts));
        };
        let mut next = || Some(create(&server, 0, records::wide_customer));
        let (posted, _) = server.load(1, time, 201, &mut next)?;
        add("POST alone", &posted);
        let mut random = Random(1);
        let mut next = || {
            let id = 1 + random.below(records);
            let body = json!({"notes": records::notes(random.0)}).to_string();
            Some(server.request(0, "PUT", &format!("/customers.php?id={id}"), "", &body))
        };
        add("PUT alone", &server.load(1, time, 200, &mut next)?.0);
        let last_id = next_id + posted.sent as u64;
        let mut ids = std::mem::replace(&mut next_id, last_id)..last_id;
        let mut next = || {
            let target = format!("/customers.php?id={}", ids.next()?);
            Some(server.request(0, "DELETE", &target, "", ""))
        };
        add("DELETE alone", &server.load(1, time, 204, &mut next)?.0);
        Ok(figures)
    }))
}

/// What is searched, as it stands in a query.
const SEARCHES: [(&str, &str); 4] = [
    ("q, a word of nearly all", "with"),
    ("q, a word of few", "rack"),
    ("q, two letters of none", "qx"),
    ("q, a word of none, of frequent parts", "stationed"),
];

const LISTS: [(&str, &str); 3] =
    [("", ""), (", by name", "&sort=-name"), (", with total", "&total=true")];

/// Searches in a large tenant, and another tenant's GET beside them.
pub(crate) fn search(settings: &Settings, binary: &Path) -> io::Result<Measure> {
    const TIMES: usize = 5;
    let (server, time) = (Server::start(binary, 2)?, settings.time);
    server.fill(0, settings.records)?;
    server.fill(1, 1)?;
    Ok(Box::new(move || {
        let (mut figures, mut searches) = (Vec::new(), Vec::new());
        for (word, q) in SEARCHES {
            for (list, parameters) in LISTS {
                let request = server.get(0, &format!("/customers.php?q={q}{parameters}"));
                // The first one is not measured.
                let mut next = std::iter::repeat_n(request.clone(), TIMES + 1);
                let (outcome, _) = server.load(1, Duration::MAX, 200, &mut || next.next())?;
                let name = format!("{word}{list}");
                figures.push(Figure::new(name, outcome.percentile(0.5), "ms"));
                searches.push(request);
            }
        }
        let name = "GET of another tenant beside searches";
        figures.extend(Figure::latencies(
            name,
            &beside(&server, time, &searches)?,
            [("p99", 0.99)],
        ));
        Ok(figures)
    }))
}

/// One client of the second tenant, while one of the first searches.
fn beside(server: &Server, time: Duration, searches: &[Vec<u8>]) -> io::Result<Outcome> {
    let done = AtomicBool::new(false);
    let searching = server.one_client(Duration::MAX);
    let get = server.get(1, "/customers.php?id=1");
    thread::scope(|scope| {
        let searcher = scope.spawn(|| {
            let mut requests = searches.iter().cycle();
            let is_done = || done.load(Ordering::Relaxed);
            searching.run(&mut || requests.next().filter(|_| !is_done()).cloned())
        });
        let outcome = server.one_client(time).run(&mut || Some(get.clone()));
        done.store(true, Ordering::Relaxed);
        searcher.join().map_err(|_| io::Error::other("the search panicked"))??;
        outcome
    })
}

/// The import of a file, and of the same file again with a tenth of the records changed, each round
/// into a new tenant.
pub(crate) fn import(settings: &Settings, binary: &Path) -> io::Result<Measure> {
    let server = Server::start(binary, settings.rounds)?;
    let (new, changed) =
        ["new.jsonl", "changed.jsonl"].map(|name| server.directory.path().join(name)).into();
    records::write(&new, settings.records, records::wide_customer)?;
    records::write(&changed, settings.records, |n| {
        let mut record = records::wide_customer(n);
        if n % 10 == 0 {
            record["city"] = "Kiel".into();
        }
        record
    })?;
    let mut tenants = 0..settings.rounds;
    Ok(Box::new(move || {
        let tenant = tenants.next().unwrap_or_default();
        let mut figures = Vec::new();
        let mut add = |name: &str, (seconds, peak): (f64, f64)| {
            figures.push(Figure::new(name, seconds, "s"));
            figures.push(Figure::new(format!("{name}, peak memory"), peak, "MB"));
        };
        add("import", server.import(tenant, &new, &[])?);
        // Earlier versions cannot update.
        if let Ok(updated) = server.import(tenant, &changed, &["--update-by", "customer_number"]) {
            add("import --update-by", updated);
        }
        Ok(figures)
    }))
}
