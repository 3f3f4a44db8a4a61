//! Measures what a confirmed copy costs: acknowledged writes a second, and how long one takes. It cannot fail, so it is ignored by
//! default:
//!
//! ```text
//! cargo test --release --test standby -- --ignored --nocapture confirmed_cost
//! ```
//!
//! `CONFIRMED_TENANTS=1,100,1000`, `CONFIRMED_CLIENTS=1,8,32`, `CONFIRMED_ROUNDS=3` and `CONFIRMED_SECONDS=10` are the defaults.
//! Each round takes every variant: without a copy, with one to a directory, and with one over SFTP. `CONFIRMED_SYNCED=DIR` adds a
//! copy over SFTP to a folder in DIR that is written at once (`chattr +S`).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cost::{figure, median, seconds};
use crate::load::{self, Known};
use crate::machines::{Copy, Machine, equipped};
use crate::rounds::number;
use crate::support::DataDir;

/// The maximum number of tenants that clients write to.
const ACTIVE: usize = 100;

#[test]
#[ignore = "a measurement that takes an hour"]
fn confirmed_cost() {
    if !equipped() {
        return;
    }
    eprintln!("| tenants | clients | copy | writes/s | p50 ms | p99 ms | files in the copy |");
    let list = |variable: &str, otherwise: &str| -> Vec<usize> {
        let list = std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned());
        list.split(',').map(|number| number.parse().unwrap()).collect()
    };
    for tenants in list("CONFIRMED_TENANTS", "1,100,1000") {
        let (data_dir, known) = prepare(tenants);
        for clients in list("CONFIRMED_CLIENTS", "1,8,32") {
            measure(&data_dir, &known, tenants, clients);
        }
    }
}

/// Tenants that clients write to, and files of others that are only copied.
fn prepare(tenants: usize) -> (Arc<DataDir>, Vec<Known>) {
    let active = tenants.min(ACTIVE);
    let data_dir = DataDir::new(false);
    let known = load::tenants(&data_dir, active);
    let folder = data_dir.data().join("tenants");
    for id in active + 1..=tenants {
        fs::copy(folder.join("1.db"), folder.join(format!("{id}.db"))).unwrap();
    }
    (data_dir, known)
}

type Variant = (&'static str, Box<dyn Fn() -> Option<Copy>>);

fn variants() -> Vec<Variant> {
    let mut variants: Vec<Variant> = vec![
        ("none", Box::new(|| None)),
        ("directory", Box::new(|| Some(Copy::to_directory()))),
        ("SFTP", Box::new(|| Some(Copy::to_second_host()))),
    ];
    if let Ok(synced) = std::env::var("CONFIRMED_SYNCED") {
        let make = move || {
            let copy = Copy::to_second_host_in(Path::new(&synced));
            fs::create_dir(copy.directory()).unwrap();
            assert!(Command::new("chattr").arg("+S").arg(copy.directory()).status().unwrap().success());
            Some(copy)
        };
        variants.push(("SFTP, synced", Box::new(make)));
    }
    variants
}

/// Begins each round with another variant, so that other load and the growth of the files affect all alike.
fn measure(data_dir: &Arc<DataDir>, known: &[Known], tenants: usize, clients: usize) {
    let variants = variants();
    let mut seen: Vec<Vec<Seen>> = variants.iter().map(|_| Vec::new()).collect();
    for round in 0..number("CONFIRMED_ROUNDS", 3) {
        for n in (0..variants.len()).map(|n| (n + round) % variants.len()) {
            seen[n].push(once(data_dir, known, clients, variants[n].1().as_ref()));
        }
    }
    for ((name, _), seen) in variants.iter().zip(&seen) {
        let of = |figure: fn(&Seen) -> f64| median(seen.iter().map(figure));
        eprintln!(
            "| {tenants} | {clients} | {name} | {:.0} | {:.2} | {:.2} | {:.0} |",
            of(|seen| seen.writes),
            of(|seen| seen.median),
            of(|seen| seen.slow),
            of(|seen| seen.files)
        );
    }
}

struct Seen {
    writes: f64,
    /// In milliseconds.
    median: f64,
    /// The 99th percentile, in milliseconds.
    slow: f64,
    files: f64,
}

fn once(data_dir: &Arc<DataDir>, known: &[Known], clients: usize, copy: Option<&Copy>) -> Seen {
    crate::cost::forget_copies(&data_dir.data());
    assert!(Command::new("sync").status().unwrap().success());
    let mut copying = copy.map(|copy| copy.begin(data_dir));
    let mut machine = match copy {
        Some(copy) => {
            copy.await_begun_within(Duration::from_secs(600), known.iter().map(|tenant| tenant.id));
            Machine::confirmed(Arc::clone(data_dir), copy)
        }
        None => Machine::first(Arc::clone(data_dir)),
    };
    let deadline = Instant::now() + seconds("CONFIRMED_SECONDS", 10);
    let began = Instant::now();
    let mut times: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..clients).map(|client| scope.spawn(move || write(data_dir, known, client, deadline))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let took = began.elapsed().as_secs_f64();
    machine.kill();
    if let Some(copying) = &mut copying {
        copying.kill();
    }
    times.sort();
    let milliseconds = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1_000.0;
    Seen {
        writes: figure(times.len()) / took,
        median: milliseconds(50),
        slow: milliseconds(99),
        files: copy.map_or(0.0, |copy| figure(files(&copy.directory()))),
    }
}

/// How long each write of one client took.
fn write(data_dir: &Arc<DataDir>, known: &[Known], client: usize, deadline: Instant) -> Vec<Duration> {
    let apis: Vec<_> = known.iter().map(|tenant| data_dir.with_key(&tenant.key)).collect();
    let mut times = Vec::new();
    for n in client.. {
        let began = Instant::now();
        if began >= deadline {
            break;
        }
        apis[n % apis.len()].post("/customers.php", json!({"name": "A customer of the measurement"})).is(201);
        times.push(began.elapsed());
    }
    times
}

fn files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}
