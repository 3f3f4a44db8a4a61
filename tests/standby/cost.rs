//! Measures the cost of the copy for the table of the example's README, with and without a copy. It
//! cannot fail, so it is ignored by default:
//!
//! ```text
//! cargo test --release --test standby -- --ignored --nocapture cost
//! ```
//!
//! `COST_TENANTS=1,100,1000`, `COST_ROUNDS=3`, `COST_SETTLES=75` and `COST_SECONDS=30` are the
//! defaults: so many rounds, each without a copy and with one. The copy settles for 75 s. It is
//! then measured for 30 s without and for 30 s with writes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::load::{self, Change, Known, Load};
use crate::machines::{Copy, Machine, equipped, litestream};
use crate::rounds::{Records, is_there, number};
use crate::support::process_stats::ProcessStats;
use crate::support::{DataDir, database, uuid};

const CLIENTS: usize = 16;

/// The maximum number of tenants that clients write to.
const ACTIVE: usize = 10;

/// How often Litestream looks at each file: its default, and what the README advises where tenants
/// are many.
const INTERVALS: [&str; 2] = ["1s", "10s"];

#[test]
#[ignore = "a measurement that takes an hour"]
fn cost() {
    if !equipped() {
        return;
    }
    eprintln!(
        "| tenants | looked at every | writes/s without, with | TenantDesk without, with | Litestream, writing | at rest \
         | its memory, descriptors | all copied after | lost, median and most |"
    );
    let tenants = std::env::var("COST_TENANTS").unwrap_or_else(|_| "1,100,1000".to_owned());
    for tenants in tenants.split(',') {
        measure(tenants.parse().unwrap());
    }
}

/// Measurements while clients wrote.
#[derive(Clone, Copy)]
struct Written {
    /// Acknowledged changes a second.
    writes: f64,
    /// Of TenantDesk, in per cent of a core.
    busy: f64,
    /// Of TenantDesk, in MiB.
    memory: f64,
}

/// The same with a copy, and measurements of Litestream.
#[derive(Clone, Copy)]
struct Copied {
    written: Written,
    /// In per cent of a core, while clients wrote and while nobody did.
    busy: f64,
    at_rest: f64,
    /// In MiB.
    memory: f64,
    descriptors: f64,
    /// Seconds from its start until the copy had begun for every file.
    begun_after: f64,
    /// Seconds from the oldest acknowledged change that was not in the copy to Litestream's sudden
    /// end.
    lost: f64,
}

/// Measures each variant in each round, and begins each round with another variant, so that other
/// load and the growth of the files affect all variants alike.
fn measure(tenants: usize) {
    let active = tenants.min(ACTIVE);
    let data_dir = DataDir::new(false);
    let known = load::tenants(&data_dir, active);
    let directory = data_dir.data().join("tenants");
    // They exist in the rounds without a copy, too. They need no row: Litestream copies every file,
    // and TenantDesk does not open them.
    let idle: Vec<i64> = (active + 1..=tenants).map(|n| i64::try_from(n).unwrap()).collect();
    for id in &idle {
        fs::copy(directory.join("1.db"), directory.join(format!("{id}.db"))).unwrap();
    }
    let machine = Machine::first(data_dir);
    let mut without = Vec::new();
    let mut with = INTERVALS.map(|_| Vec::new());
    let variants = INTERVALS.len() + 1;
    for round in 0..number("COST_ROUNDS", 3) {
        for variant in (0..variants).map(|n| (n + round) % variants) {
            match variant.checked_sub(1) {
                None => without.push(uncopied(&machine, &known)),
                Some(n) => with[n].push(copied(&machine, &known, &idle, INTERVALS[n])),
            }
        }
    }
    let of_all = |figure: fn(&Written) -> f64| median(without.iter().map(figure));
    for (interval, with) in INTERVALS.iter().zip(&with) {
        let of = |figure: fn(&Copied) -> f64| median(with.iter().map(figure));
        eprintln!(
            "| {tenants} | {interval} | {:.0}, {:.0} | {:.0} % {:.0} MiB, {:.0} % {:.0} MiB | {:.0} % | {:.1} % | {:.0} MiB, {:.0} \
             | {:.1} s | {:.1} s, {:.1} s |",
            of_all(|seen| seen.writes),
            of(|seen| seen.written.writes),
            of_all(|seen| seen.busy),
            of_all(|seen| seen.memory),
            of(|seen| seen.written.busy),
            of(|seen| seen.written.memory),
            of(|seen| seen.busy),
            of(|seen| seen.at_rest),
            of(|seen| seen.memory),
            of(|seen| seen.descriptors),
            of(|seen| seen.begun_after),
            of(|seen| seen.lost),
            with.iter().map(|seen| seen.lost).fold(0.0, f64::max),
        );
    }
}

pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[half - 1], sorted[half])
    } else {
        sorted[half]
    }
}

/// Measures without a copy.
fn uncopied(machine: &Machine, known: &[Known]) -> Written {
    let load = begin(machine, known);
    let began = Instant::now();
    let [busy] = busy([machine.pid()]);
    let ended = Instant::now();
    Written::new(&load.end(), began, ended, machine, busy)
}

/// Measures with a new copy. Litestream is killed at a random time while clients write.
fn copied(machine: &Machine, known: &[Known], idle: &[i64], interval: &'static str) -> Copied {
    forget_copies(&machine.data_dir.data());
    let copy = Copy::looking_every(interval);
    let began = Instant::now();
    let mut copying = copy.begin(&machine.data_dir);
    for id in known.iter().map(|tenant| tenant.id).chain(idle.iter().copied()) {
        // Longer than `DEADLINE`: a thousand files take minutes.
        while !copy.has_begun(&format!("tenants/{id}.db")) {
            assert!(began.elapsed() < Duration::from_secs(600), "{}", copying.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let begun_after = began.elapsed().as_secs_f64();
    // Until its `checkpoint-interval` of a minute is over, it reads far more than afterwards.
    std::thread::sleep(seconds("COST_SETTLES", 75));
    let [at_rest] = busy([copying.pid()]);

    let load = begin(machine, known);
    let began = Instant::now();
    let [server, busy] = busy([machine.pid(), copying.pid()]);
    let ended = Instant::now();
    let stats = ProcessStats::of(copying.pid());
    let longest = if interval == "1s" { 1_000 } else { 10_000 };
    std::thread::sleep(Duration::from_millis(
        u64::from_str_radix(&uuid()[..8], 16).unwrap() % longest,
    ));
    let killed = Instant::now();
    copying.kill();
    let changes = load.end();
    Copied {
        written: Written::new(&changes, began, ended, machine, server),
        busy,
        at_rest,
        memory: mebibytes(stats),
        descriptors: figure(stats.descriptors),
        begun_after,
        lost: lost(&copy, known, &changes, killed).as_secs_f64(),
    }
}

/// Starts the clients after earlier writes have reached the disk.
fn begin(machine: &Machine, known: &[Known]) -> Load {
    assert!(Command::new("sync").status().unwrap().success());
    Load::begin(&machine.data_dir, known, CLIENTS, false)
}

impl Written {
    fn new(
        changes: &[Change],
        began: Instant,
        ended: Instant,
        machine: &Machine,
        busy: f64,
    ) -> Written {
        let counted =
            changes.iter().filter(|change| (began..ended).contains(&change.acknowledged)).count();
        let writes = figure(counted) / (ended - began).as_secs_f64();
        Written { writes, busy, memory: mebibytes(ProcessStats::of(machine.pid())) }
    }
}

/// Per cent of one core that each of these processes takes for a span.
fn busy<const N: usize>(processes: [u32; N]) -> [f64; N] {
    let (began, before) = (Instant::now(), processes.map(ticks));
    std::thread::sleep(seconds("COST_SECONDS", 30));
    let seconds = began.elapsed().as_secs_f64();
    let after = processes.map(ticks);
    // A tick is a hundredth of a second, wherever Linux runs.
    std::array::from_fn(|n| figure(after[n] - before[n]) / seconds)
}

pub fn seconds(variable: &str, otherwise: usize) -> Duration {
    Duration::from_secs(u64::try_from(number(variable, otherwise)).unwrap())
}

/// The processor time of a process so far.
fn ticks(process: u32) -> usize {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    // The fields after the state: utime and stime.
    fields[11].parse::<usize>().unwrap() + fields[12].parse::<usize>().unwrap()
}

fn mebibytes(stats: ProcessStats) -> f64 {
    figure(stats.memory) / 1024.0
}

pub fn figure(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap())
}

/// Removes Litestream's directories. With them it would continue an earlier copy.
pub fn forget_copies(data: &Path) {
    for entry in fs::read_dir(data).unwrap().chain(fs::read_dir(data.join("tenants")).unwrap()) {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().ends_with("-litestream") {
            fs::remove_dir_all(path).unwrap();
        }
    }
}

/// The age of the oldest acknowledged change that is not in the copy, at the time when Litestream
/// was killed.
fn lost(copy: &Copy, known: &[Known], changes: &[Change], killed: Instant) -> Duration {
    let directory = tempfile::tempdir().unwrap();
    let fetched: Vec<Records> =
        known.iter().map(|tenant| records(copy, tenant.id, directory.path())).collect();
    let lost = changes.iter().filter(|change| !is_there(&fetched[change.tenant], &change.what));
    lost.map(|change| killed.saturating_duration_since(change.acknowledged))
        .max()
        .unwrap_or_default()
}

/// A tenant's customers as the copy has them.
fn records(copy: &Copy, id: i64, directory: &Path) -> Records {
    let file = directory.join(format!("{id}.db"));
    let from = format!("file://{}/tenants/{id}.db", copy.directory().display());
    let fetched =
        Command::new(litestream()).arg("restore").arg("-o").arg(&file).arg(from).output().unwrap();
    assert!(fetched.status.success(), "{fetched:?}");
    let connection = database(&file);
    let mut statement = connection.prepare("SELECT id, name, notes FROM customers").unwrap();
    statement
        .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}
