//! What a disk and SQLite can do without the service: the ceilings of the writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use crate::data::{self, Customer};

/// The median cost of a write of 4 KiB and its fsync, in microseconds.
pub(crate) fn fsync(directory: &Path) -> io::Result<f64> {
    let file =
        OpenOptions::new().create(true).truncate(true).write(true).open(directory.join("fsync"))?;
    file.write_all_at(&[0; 4096 * 64], 0)?;
    file.sync_all()?;
    let mut costs = Vec::new();
    for n in 0..200 {
        let begun = Instant::now();
        file.write_all_at(&[1; 4096], n % 64 * 4096)?;
        file.sync_data()?;
        costs.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    costs.sort_by(f64::total_cmp);
    Ok(costs[costs.len() / 2])
}

/// Writes and syncs 4 KiB every 10 ms while `work` runs. Returns its result and the longest of
/// these syncs in microseconds.
pub(crate) fn longest_fsync_beside<T>(
    directory: &Path,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<(T, f64)> {
    let file =
        OpenOptions::new().create(true).truncate(true).write(true).open(directory.join("fsync"))?;
    file.write_all_at(&[0; 4096 * 64], 0)?;
    file.sync_all()?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let probe = scope.spawn(|| longest_fsync(&file, &done));
        let result = work();
        done.store(true, Ordering::Relaxed);
        let longest = probe.join().map_err(|_| io::Error::other("the probe panicked"))??;
        Ok((result?, longest.as_secs_f64() * 1e6))
    })
}

fn longest_fsync(file: &File, done: &AtomicBool) -> io::Result<Duration> {
    let mut longest = Duration::ZERO;
    for n in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        file.write_all_at(&[1; 4096], n % 64 * 4096)?;
        file.sync_data()?;
        longest = longest.max(begun.elapsed());
        thread::sleep(Duration::from_millis(10));
    }
    Ok(longest)
}

/// Commit-each: `threads` loops that write the rows that the load sends, with their idempotency
/// rows, one commit a row, each thread into its own share of `files`. Rows a second.
pub(crate) fn commit_each(
    files: &[PathBuf],
    threads: usize,
    time: Duration,
    numbers: &AtomicU64,
) -> f64 {
    let written = AtomicUsize::new(0);
    let begun = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let written = &written;
            scope.spawn(move || {
                let opened =
                    files.iter().skip(thread).step_by(threads).map(|file| data::open(file));
                let mut connections: Vec<Connection> =
                    opened.collect::<Result<_, _>>().expect("the files are there");
                while begun.elapsed() < time {
                    for connection in &mut connections {
                        write_one(connection, numbers.fetch_add(1, Ordering::Relaxed))
                            .expect("a row is written");
                        written.fetch_add(1, Ordering::Relaxed);
                        if begun.elapsed() >= time {
                            break;
                        }
                    }
                }
            });
        }
    });
    written.into_inner() as f64 / begun.elapsed().as_secs_f64()
}

fn write_one(connection: &mut Connection, n: u64) -> rusqlite::Result<()> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let customer = Customer::nth(n);
    let id = customer.insert(&transaction, "2026-11-20T19:30:00Z")?;
    data::index(&transaction, "customers", id, id)?;
    let body = customer.json();
    transaction
        .prepare_cached(
            "INSERT INTO idempotency (key, request, status, location, body, created_at) VALUES (?, ?, 201, ?, ?, 1800000000)",
        )?
        .execute(params![data::idempotency_key(n), [7_u8; 32], format!("/customers.php?id={id}"), body.as_bytes()])?;
    transaction.commit()
}
