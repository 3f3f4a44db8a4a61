//! The parts of the table.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Settings;
use crate::ceilings;
use crate::data::{self, Customer, Data};
use crate::load::{Load, Outcome, connect, exchange, once};
use crate::process::Process;
use crate::table::{Bar, Table, median, thousands};

/// The connections of every figure without another number.
pub(crate) const CONNECTIONS: usize = 32;

/// The number of the next customer, unique in a run, so that no row is inserted twice.
static NUMBERS: AtomicU64 = AtomicU64::new(1_000_000);

/// A directory on the disk of the build. A temporary directory may be in memory, where an fsync
/// costs nothing.
pub(crate) fn data_dir() -> io::Result<TempDir> {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
}

/// The file of the tenant `id`.
pub(crate) fn tenant_file(data: &Data, id: usize) -> PathBuf {
    data::tenant_file(&data.dir, id)
}

/// A GET request.
pub(crate) fn get(key: &str, target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: desk.example\r\nAuthorization: Bearer {key}\r\nAccept: */*\r\n\r\n")
        .into_bytes()
}

/// The next customer as a POST with an idempotency key.
pub(crate) fn post(key: &str, out: &mut Vec<u8>) {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let body = Customer::nth(number).json();
    let id = uuid::Uuid::from_bytes(data::idempotency_key(number));
    let head = format!(
        "POST /customers.php HTTP/1.1\r\nHost: desk.example\r\nAuthorization: Bearer {key}\r\nIdempotency-Key: {id}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(body.as_bytes());
}

/// A fast pseudo-random sequence of numbers below `below`.
pub(crate) fn scattered(below: usize) -> impl FnMut() -> usize {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    }
}

/// Loads a process with GETs, which cycle through `requests`.
pub(crate) fn load_gets(
    process: &Process,
    connections: usize,
    time: Duration,
    requests: &[Vec<u8>],
) -> io::Result<Outcome> {
    let mut next = requests.iter().cycle();
    let load = Load { address: process.address, connections, time, status: 200 };
    let outcome =
        load.run(&mut |out| out.extend_from_slice(next.next().map_or(&[][..], Vec::as_slice)))?;
    complete(outcome)
}

/// Fails if a response had an unexpected status.
fn complete(outcome: Outcome) -> io::Result<Outcome> {
    match outcome.others {
        0 => Ok(outcome),
        others => Err(io::Error::other(format!("{others} responses had an unexpected status"))),
    }
}

fn load_posts(process: &Process, keys: &[String], time: Duration) -> io::Result<Outcome> {
    let mut next = keys.iter().cycle();
    let load = Load { address: process.address, connections: CONNECTIONS, time, status: 201 };
    complete(load.run(&mut |out| post(next.next().map_or("", String::as_str), out))?)
}

pub(crate) fn body_length(answer: &[u8]) -> usize {
    answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| answer.len() - at - 4)
}

/// Several rounds of a load on two processes alternately.
struct Duel {
    ours: Vec<Outcome>,
    theirs: Vec<Outcome>,
}

impl Duel {
    fn fight(
        settings: &Settings,
        ours: &Process,
        theirs: &Process,
        requests: &[Vec<u8>],
    ) -> io::Result<Duel> {
        let mut duel = Duel { ours: Vec::new(), theirs: Vec::new() };
        for _ in 0..settings.rounds {
            duel.ours.push(load_gets(ours, CONNECTIONS, settings.time, requests)?);
            duel.theirs.push(load_gets(theirs, CONNECTIONS, settings.time, requests)?);
        }
        Ok(duel)
    }

    /// The median of each side, and of the rounds' ratios.
    fn compare(&self, figure: impl Fn(&Outcome) -> f64) -> (f64, f64, f64) {
        let all = |side: &[Outcome]| side.iter().map(&figure).collect::<Vec<f64>>();
        let (ours, theirs) = (all(&self.ours), all(&self.theirs));
        let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        (median(ours), median(theirs), median(ratios))
    }
}

pub(crate) fn per_second(rate: f64) -> String {
    format!("{}/s", thousands(rate))
}

pub(crate) fn milliseconds(microseconds: f64) -> String {
    format!("{:.2} ms", microseconds / 1e3)
}

/// GET one record and a page of 50.
pub(crate) fn reads(settings: &Settings, table: &mut Table) -> io::Result<()> {
    let data_dir = data_dir()?;
    let data = Data::make(&data_dir.path().join("one"), 1, 1000)?;
    let server = Process::serve(&data.dir)?;
    let one: Vec<Vec<u8>> =
        (1..=997).map(|id| get(&data.keys[0], &format!("/customers.php?id={id}"))).collect();
    let edge = Process::bare_edge(body_length(&once(server.address, &one[0])?))?;
    let duel = Duel::fight(settings, &server, &edge, &one)?;
    let (ours, theirs, ratio) = duel.compare(Outcome::rate);
    table.add(
        "GET one record",
        per_second(ours),
        format!("bare edge {}", per_second(theirs)),
        ratio,
        Bar::AtLeast(0.75),
    );
    let (ours, theirs, ratio) = duel.compare(|outcome| outcome.percentile(0.99));
    let ceiling = format!("bare edge {}", milliseconds(theirs));
    table.add("GET one record, p99", milliseconds(ours), ceiling, ratio, Bar::AtMost(1.5));

    let page = [get(&data.keys[0], "/customers.php")];
    let page_edge = Process::bare_edge(body_length(&once(server.address, &page[0])?))?;
    let duel = Duel::fight(settings, &server, &page_edge, &page)?;
    let (ours, theirs, ratio) = duel.compare(Outcome::rate);
    table.add(
        "GET a page of 50",
        per_second(ours),
        format!("bare edge {}", per_second(theirs)),
        ratio,
        Bar::AtLeast(0.5),
    );

    for (figure, process, requests) in [
        ("bare edge", &edge, &one[..]),
        ("GET one record", &server, &one[..]),
        ("GET a page of 50", &server, &page[..]),
    ] {
        stages(settings, table, figure, process, requests)?;
    }
    Ok(())
}

/// Processor time for a request, by stage.
fn stages(
    settings: &Settings,
    table: &mut Table,
    figure: &str,
    process: &Process,
    requests: &[Vec<u8>],
) -> io::Result<()> {
    let before = process.processor_time();
    let outcome = load_gets(process, CONNECTIONS, settings.time, requests)?;
    let spent = process.processor_time().since(before);
    let [edge, tiny_http, workers] =
        [spent.edge, spent.tiny_http, spent.workers].map(|spent| each(spent, &outcome));
    let text = format!("{edge:.0} µs edge, {tiny_http:.0} µs tiny_http, {workers:.0} µs workers");
    table.note(&format!("processor time of {figure}"), text);
    Ok(())
}

/// Microseconds for each response.
pub(crate) fn each(spent: Duration, outcome: &Outcome) -> f64 {
    spent.as_secs_f64() * 1e6 / outcome.total as f64
}

/// POST into one tenant and into 200.
pub(crate) fn writes(settings: &Settings, table: &mut Table) -> io::Result<()> {
    let data_dir = data_dir()?;
    table.note("one fsync of 4 KiB", milliseconds(ceilings::fsync(data_dir.path())?));
    for (tenants, threads, bar) in [(1, 1, 1.0), (200, 8, 0.6)] {
        let ours = Data::make(&data_dir.path().join(format!("ours-{tenants}")), tenants, 200)?;
        let theirs = Data::make(&data_dir.path().join(format!("theirs-{tenants}")), tenants, 200)?;
        let files: Vec<PathBuf> = (1..=tenants).map(|id| tenant_file(&theirs, id)).collect();
        let server = Process::serve(&ours.dir)?;
        load_posts(&server, &ours.keys, settings.time / 2)?;
        let (mut rates, mut ceilings, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let (mut medians, mut slowest) = (Vec::new(), Vec::new());
        for _ in 0..settings.rounds {
            let outcome = load_posts(&server, &ours.keys, settings.time)?;
            let ceiling = ceilings::commit_each(&files, threads, settings.time, &NUMBERS);
            rates.push(outcome.rate());
            ceilings.push(ceiling);
            ratios.push(outcome.rate() / ceiling);
            medians.push(outcome.percentile(0.5));
            slowest.push(outcome.percentile(1.0));
        }
        let name =
            if tenants == 1 { "one tenant".to_owned() } else { format!("{tenants} tenants") };
        let ceiling = format!("commit-each, {threads} threads {}", per_second(median(ceilings)));
        table.add(
            &format!("POST, {name}, durable"),
            per_second(median(rates)),
            ceiling,
            median(ratios),
            Bar::AtLeast(bar),
        );
        let ratio = median(
            slowest.iter().zip(&medians).map(|(slowest, median)| slowest / median).collect(),
        );
        let ceiling = format!("median {}", milliseconds(median(medians)));
        let figure = format!("slowest POST, {name}");
        table.add(&figure, milliseconds(median(slowest)), ceiling, ratio, Bar::AtMost(20.0));
    }
    Ok(())
}

/// Requests to a thousand, and to all, of ten thousand tenants.
pub(crate) fn tenants(settings: &Settings, table: &mut Table) -> io::Result<()> {
    const RECORDS: u64 = 20;
    let data_dir = data_dir()?;
    let few = Data::make(&data_dir.path().join("few"), 10, RECORDS)?;
    let many = Data::make(&data_dir.path().join("many"), 10_000, RECORDS)?;
    rustix::fs::sync();
    let (few_server, many_server) = (Process::serve(&few.dir)?, Process::serve(&many.dir)?);
    let of = |keys: &[String]| {
        let mut record = scattered(RECORDS as usize);
        let mut key = scattered(keys.len());
        let requests =
            (0..20_000).map(|_| get(&keys[key()], &format!("/customers.php?id={}", record() + 1)));
        requests.collect::<Vec<_>>()
    };
    let (ten, active, all) = (of(&few.keys), of(&many.keys[..1000]), of(&many.keys));
    let touch = |keys: &[String], seconds: u64| {
        let one_each: Vec<_> = keys.iter().map(|key| get(key, "/customers.php?id=1")).collect();
        load_gets(&many_server, 4, Duration::from_secs(seconds), &one_each)
    };
    // The first request to a tenant creates its write-ahead log, which stays.
    touch(&many.keys, 12)?;
    touch(&many.keys[..1000], 3)?;
    // The ceiling is measured again for each figure, alternately with it, because the speed of a
    // machine varies.
    let mut add = |figure: &str, requests: &[Vec<u8>], bar: f64| -> io::Result<()> {
        let (mut few, mut many) = (Vec::new(), Vec::new());
        for _ in 0..settings.rounds {
            few.push(load_gets(&few_server, CONNECTIONS, settings.time, &ten)?.rate());
            many.push(load_gets(&many_server, CONNECTIONS, settings.time, requests)?.rate());
        }
        let (few, many) = (median(few), median(many));
        table.add(
            figure,
            per_second(many),
            format!("10 tenants {}", per_second(few)),
            many / few,
            Bar::AtLeast(bar),
        );
        Ok(())
    };
    add("GET, 1,000 of 10,000 tenants", &active, 0.5)?;
    let memory = many_server.memory();
    add("GET, evenly over 10,000 tenants", &all, 0.07)?;
    table.add(
        "memory with 1,000 of 10,000",
        format!("{memory:.0} MB"),
        "150 MB",
        memory / 150.0,
        Bar::AtMost(1.0),
    );
    table.note("memory after all 10,000", format!("{:.0} MB", many_server.memory()));
    Ok(())
}

/// The time from the start of the process to the first response.
pub(crate) fn start(settings: &Settings, table: &mut Table) -> io::Result<()> {
    let data_dir = data_dir()?;
    let one = Data::make(&data_dir.path().join("one"), 1, 20)?;
    let many = Data::make(&data_dir.path().join("many"), 10_000, 0)?;
    rustix::fs::sync();
    let first_answer = |data: &Data| -> io::Result<f64> {
        let process = Process::serve(&data.dir)?;
        once(process.address, &get(&data.keys[0], "/customers.php"))?;
        Ok(process.started.elapsed().as_secs_f64() * 1e6)
    };
    let (mut ones, mut manys) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds.max(5) {
        ones.push(first_answer(&one)?);
        manys.push(first_answer(&many)?);
    }
    let (ones, manys) = (median(ones), median(manys));
    let figure = "start to first response, 10,000 tenants";
    table.add(
        figure,
        milliseconds(manys),
        format!("1 tenant {}", milliseconds(ones)),
        manys / ones,
        Bar::AtMost(2.0),
    );
    table.add(figure, milliseconds(manys), "100 ms", manys / 100_000.0, Bar::AtMost(1.0));
    Ok(())
}

/// The median latency of many requests on one connection, in microseconds.
pub(crate) fn latency(process: &Process, request: &[u8], times: usize) -> io::Result<f64> {
    let mut stream = connect(process.address)?;
    let mut costs = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        exchange(&mut stream, request)?;
        costs.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(costs))
}

/// The latencies of two requests, measured alternately, and their ratio: medians of all rounds.
fn in_turn(
    settings: &Settings,
    server: &Process,
    [one, other]: [&[u8]; 2],
    times: usize,
) -> io::Result<(f64, f64, f64)> {
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        ones.push(latency(server, one, times)?);
        others.push(latency(server, other, times)?);
    }
    let ratio = median(ones.iter().zip(&others).map(|(one, other)| one / other).collect());
    Ok((median(ones), median(others), ratio))
}

/// The cursor of the next page in a response.
fn cursor(answer: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(answer).ok()?;
    let (_, rest) = text.rsplit_once("\"next_cursor\":\"")?;
    rest.split('"').next()
}

/// The records of the lists' figures.
pub(crate) const RECORDS: u64 = 100_000;

/// A tenant of 100,000 customers, as many employees and pieces of hardware.
fn large_tenant(data_dir: &TempDir) -> io::Result<Data> {
    let data = Data::make(&data_dir.path().join("large"), 1, 0)?;
    data::fill(&tenant_file(&data, 1), 0, RECORDS).map_err(io::Error::other)?;
    data::fill_others(&tenant_file(&data, 1), RECORDS).map_err(io::Error::other)?;
    rustix::fs::sync();
    Ok(data)
}

/// Pages, searches and filters over 100,000 records.
pub(crate) fn lists(settings: &Settings, table: &mut Table) -> io::Result<()> {
    let data_dir = data_dir()?;
    let data = large_tenant(&data_dir)?;
    let server = Process::serve(&data.dir)?;
    let key = &data.keys[0];
    let (mut worst, mut at) = ((0.0, 0.0, 0.0), String::new());
    for sort in SORTS.iter().flat_map(|name| [(*name).to_owned(), format!("-{name}")]) {
        let first = get(key, &format!("/customers.php?sort={sort}"));
        let deep = get(
            key,
            &format!("/customers.php?sort={sort}&cursor={}", thousandth(&server, key, &sort)?),
        );
        let found = in_turn(settings, &server, [&deep, &first], 40)?;
        if found.2 > worst.2 {
            (worst, at) = (found, sort);
        }
    }
    let (deep, first, ratio) = worst;
    let figure = format!("page 1,000 of 100,000, worst sort ({at})");
    table.add(
        &figure,
        milliseconds(deep),
        format!("page 1 {}", milliseconds(first)),
        ratio,
        Bar::AtMost(1.3),
    );
    searches(settings, table, &server, key)?;
    filters(settings, table, &server, key)
}

/// Every sort of customers.
#[rustfmt::skip]
const SORTS: [&str; 13] = [
    "id", "name", "customer_number", "email", "phone", "street", "postal_code", "city", "country",
    "status", "customer_since", "created_at", "updated_at",
];

/// The cursor that leads to page 1,000.
fn thousandth(server: &Process, key: &str, sort: &str) -> io::Result<String> {
    let mut stream = connect(server.address)?;
    let mut next = None;
    // 1,000 pages of 50 in steps of 200.
    for _ in 0..999 * 50 / 200 {
        let from = next.map_or(String::new(), |cursor| format!("&cursor={cursor}"));
        let answer = exchange(
            &mut stream,
            &get(key, &format!("/customers.php?limit=200&sort={sort}{from}")),
        )?;
        next = cursor(&answer).map(str::to_owned);
    }
    next.ok_or_else(|| io::Error::other("the list ended early"))
}

fn searches(settings: &Settings, table: &mut Table, server: &Process, key: &str) -> io::Result<()> {
    let list = get(key, "/customers.php");
    // Words in every eighth record, in few, in one, and in none.
    for word in ["bakery", "juniperweg+17", "c-0077777", "zzyzx"] {
        let request = get(key, &format!("/customers.php?q={word}"));
        let (found, listed, ratio) = in_turn(settings, server, [&request, &list], 30)?;
        let ceiling = format!("a list of 50 {}", milliseconds(listed));
        table.add(
            &format!("q={word} over 100,000"),
            milliseconds(found),
            ceiling,
            ratio,
            Bar::AtMost(5.0),
        );
    }
    Ok(())
}

fn filters(settings: &Settings, table: &mut Table, server: &Process, key: &str) -> io::Result<()> {
    let one = get(key, "/customers.php?id=777");
    for target in [
        "/customers.php?status=active",
        "/employees.php?customer_id=777",
        "/hardware.php?employee_id=777",
    ] {
        let request = get(key, target);
        let (filtered, single, ratio) = in_turn(settings, server, [&request, &one], 50)?;
        let ceiling = format!("GET one record {}", milliseconds(single));
        table.add(
            &format!("{target} of 100,000"),
            milliseconds(filtered),
            ceiling,
            ratio,
            Bar::AtMost(5.0),
        );
    }
    Ok(())
}
