//! What the copy costs, beside the same without one. Not a test that can fail, so it is left out unless asked for:
//!
//! ```text
//! cargo test --release --test standby -- --ignored --nocapture cost
//! ```

use std::fs;
use std::time::{Duration, Instant};

use crate::load::{self, Known, Load};
use crate::machines::{Copy, Copying, Machine, equipped};
use crate::support::Place;

/// How long each figure is taken.
const SPAN: Duration = Duration::from_secs(8);

const CLIENTS: usize = 16;

#[test]
#[ignore = "it measures, and takes its time"]
fn cost() {
    if !equipped() {
        return;
    }
    eprintln!("tenants | writes/s without | with | Litestream: CPU under load | CPU idle | memory | all copied after");
    for (tenants, active) in [(1, 1), (100, 10), (1000, 10)] {
        measure(tenants, active);
    }
}

fn measure(tenants: usize, active: usize) {
    let place = Place::new(false);
    let known = load::tenants(&place, active);
    let folder = place.data().join("tenants");
    // To Litestream a file is a file: the idle ones need no row.
    let idle: Vec<i64> = (active + 1..=tenants).map(|n| i64::try_from(n).unwrap()).collect();
    for id in &idle {
        fs::copy(folder.join("1.db"), folder.join(format!("{id}.db"))).unwrap();
    }
    let machine = Machine::first(place);
    let without = writes(&machine, &known);

    let copy = Copy::to_directory();
    let began = Instant::now();
    let copying = copy.begin(&machine.place);
    for id in known.iter().map(|tenant| tenant.id).chain(idle) {
        // Longer than a test's patience: a thousand files take their time.
        let levels = copy.directory().join(format!("tenants/{id}.db/ltx/0"));
        while fs::read_dir(&levels).map_or(0, Iterator::count) == 0 {
            assert!(began.elapsed() < Duration::from_secs(300), "{}", copying.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let after = began.elapsed();
    std::thread::sleep(Duration::from_secs(10));
    let at_rest = busy(&copying, || std::thread::sleep(SPAN));
    let mut with = 0.0;
    let under_load = busy(&copying, || with = writes(&machine, &known));
    eprintln!(
        "{tenants} | {without:.0} | {with:.0} | {under_load:.0} % | {at_rest:.1} % | {} MiB | {:.1} s",
        memory(&copying),
        after.as_secs_f64()
    );
}

/// Acknowledged changes a second.
fn writes(machine: &Machine, known: &[Known]) -> f64 {
    let load = Load::begin(&machine.place, known, CLIENTS, false);
    let began = Instant::now();
    std::thread::sleep(SPAN);
    let changes = load.end();
    f64::from(u32::try_from(changes.len()).unwrap()) / began.elapsed().as_secs_f64()
}

/// Per cent of one core that Litestream takes meanwhile.
fn busy(copying: &Copying, meanwhile: impl FnOnce()) -> f64 {
    let (began, before) = (Instant::now(), ticks(copying));
    meanwhile();
    // A tick is a hundredth of a second, wherever Linux runs.
    f64::from(u32::try_from(ticks(copying) - before).unwrap()) / began.elapsed().as_secs_f64()
}

fn ticks(copying: &Copying) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", copying.pid())).unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    // Counted from the state on: utime and stime.
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// MiB.
fn memory(copying: &Copying) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", copying.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}
