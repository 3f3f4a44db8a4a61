//! Power loss and faults of the disk: what was acknowledged is there afterwards, and
//! nothing is half done.
//!
//! The shipped binary runs with a small library (`shim.c`) that records what it changes in its data
//! directory, and makes calls fail. Without `CRASH_MOMENTS`, the number of moments at which the
//! power fails, a sample is tried of everything.

mod client;
mod command_faults;
mod disk;
mod disk_faults;
mod examination;
mod failed_syncs;
mod history;
mod operator;
mod power_loss;
mod recorder;
mod run;
#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

/// The threads that try faults at the same time.
const THREADS: usize = 4;

/// Runs `work` in each of the threads, with the number of the thread.
fn in_threads<T: Send>(work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS).map(|part| scope.spawn(move || work(part))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect()
    })
}

/// How many moments are tried. `None`: a sample of everything.
fn moments() -> Option<usize> {
    std::env::var("CRASH_MOMENTS").ok().map(|count| count.parse().unwrap())
}
