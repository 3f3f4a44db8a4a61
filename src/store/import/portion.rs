//! How many records a portion has, and the pause after it.

use std::thread;
use std::time::{Duration, Instant};

/// The time for which a portion locks the file. Larger portions take less time in all, because each writes nearly every page of the
/// indexes; contract section 10 has other writers wait for two seconds at most.
const PORTION_TIME: Duration = Duration::from_secs(1);

/// The file is unlocked for at least this time between two portions: longer than others sleep between two attempts to lock it
/// (`connection::wait_for_lock`), so that everyone who waits gets it.
const PAUSE: Duration = Duration::from_millis(40);

const FIRST_ROWS: usize = 1_000;
const MIN_ROWS: usize = 50;
const MAX_ROWS: usize = 40_000;

/// The memory of the records of a portion, in bytes. With their search terms and the pages that they change they take several times as
/// much.
const MAX_BYTES: usize = 10 << 20;

/// Adapts the portions to the speed of the machine.
#[derive(Debug)]
pub(super) struct Pace {
    rows: usize,
    started: Instant,
    /// When the file was unlocked.
    ended: Option<Instant>,
}

impl Pace {
    pub fn new() -> Pace {
        Pace { rows: FIRST_ROWS, started: Instant::now(), ended: None }
    }

    /// The records that the next portion should have.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns whether `rows` records of `bytes` in all are a portion.
    pub fn is_full(&self, rows: usize, bytes: usize) -> bool {
        rows >= self.rows || bytes >= MAX_BYTES
    }

    /// Sleeps until the file was unlocked long enough.
    pub fn pause(&self) {
        if let Some(ended) = self.ended {
            thread::sleep(PAUSE.saturating_sub(ended.elapsed()));
        }
    }

    /// The file is locked.
    pub fn begin(&mut self) {
        self.started = Instant::now();
    }

    /// The portion of `rows` records is stored, and the file is unlocked.
    pub fn end(&mut self, rows: usize) {
        self.rows = next_rows(self.rows, rows, self.started.elapsed());
        self.rest();
    }

    /// The file is unlocked.
    pub fn rest(&mut self) {
        self.ended = Some(Instant::now());
    }
}

/// The number of records that take about the time of a portion, by how long `rows` of them took. It at most doubles: larger
/// portions take less time for each record.
fn next_rows(before: usize, rows: usize, took: Duration) -> usize {
    let fitting = rows as f64 * PORTION_TIME.as_secs_f64() / took.as_secs_f64().max(1e-6);
    (fitting as usize).clamp(MIN_ROWS, before.saturating_mul(2).clamp(MIN_ROWS, MAX_ROWS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_grow_slowly_and_shrink_at_once() {
        let fast = Duration::from_millis(10);
        assert_eq!(next_rows(1_000, 1_000, fast), 2_000);
        assert_eq!(next_rows(40_000, 40_000, fast), MAX_ROWS);
        assert_eq!(next_rows(18_000, 18_000, Duration::from_secs(60)), 300);
        assert_eq!(next_rows(1_000, 1_000, Duration::from_secs(600)), MIN_ROWS);
        assert_eq!(next_rows(8_000, 8_000, PORTION_TIME), 8_000);
    }

    #[test]
    fn records_with_long_texts_make_a_smaller_portion() {
        let pace = Pace::new();
        assert!(!pace.is_full(999, 1_000));
        assert!(pace.is_full(1_000, 1_000));
        assert!(pace.is_full(10, MAX_BYTES));
    }
}
