//! Runs scenarios with many schedules.

use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::str::FromStr;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

use crate::faults::Fault;

/// Schedules of each kind; `SCHEDULES` is another number.
const SCHEDULES: usize = 5_000;

/// The moments at which PCT prefers another thread, at most.
const PREEMPTIONS: usize = 3;

/// Runs `scenario` with random schedules, and with PCT, which finds an error that needs few
/// preemptions with a known probability. `SCHEDULE_SEED` repeats a run.
pub fn explore(scenario: fn()) {
    let seed = variable("SCHEDULE_SEED").unwrap_or_else(new_seed);
    let schedules = variable("SCHEDULES").unwrap_or(SCHEDULES);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        run(RandomScheduler::new_from_seed(seed, schedules), scenario);
        run(PctScheduler::new_from_seed(seed, PREEMPTIONS, schedules), scenario);
    }));
    if let Err(panic) = outcome {
        eprintln!("SCHEDULE_SEED={seed} SCHEDULES={schedules} repeats this");
        panic::resume_unwind(panic);
    }
}

/// Asserts that `scenario` fails with the fault.
pub fn finds(fault: Fault, scenario: fn()) {
    let outcome = std::thread::spawn(move || {
        fault.put_in();
        explore(scenario);
    });
    assert!(outcome.join().is_err(), "no schedule showed {fault:?}");
}

fn run(scheduler: impl Scheduler + 'static, scenario: fn()) {
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    config.failure_persistence = FailurePersistence::None;
    Runner::new(scheduler, config).run(scenario);
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

fn new_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
