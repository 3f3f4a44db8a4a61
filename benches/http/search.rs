//! Searches that cannot use an index alone, and what they cost the clients of another tenant.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::Settings;
use crate::load::{Outcome, connect, expect, one_by_one};
use crate::prepared::{Prepared, SMALL};
use crate::process::Process;
use crate::sections::{get, latency, milliseconds, scattered};
use crate::table::{Bar, Table, median, thousands};

/// How long a search may take, in microseconds.
const LONGEST: f64 = 100_000.0;

/// How long the other tenant is read in each round.
const ROUND: Duration = Duration::from_secs(2);

/// What is searched, as it stands in a query.
const WORDS: [(&str, &str); 5] = [
    ("a word of nearly all", "with"),
    ("a word of a quarter", "lenovo"),
    ("two letters of none", "qx"),
    ("one letter of none", "%D0%B6"),
    ("a word of none, of frequent parts", "stationed"),
];

const LISTS: [(&str, &str); 3] =
    [("", ""), (", by serial number", "&sort=-serial_number"), (", with total", "&total=true")];

pub(crate) fn search(settings: &Settings, table: &mut Table) -> io::Result<()> {
    for records in &settings.records {
        let prepared = Prepared::copy(*records)?;
        let server = prepared.serve()?;
        let size = thousands(*records as f64);
        let mut requests = Vec::new();
        for (word, q) in WORDS {
            for (list, parameters) in LISTS {
                let request =
                    get(&prepared.data.keys[0], &format!("/hardware.php?q={q}{parameters}"));
                // The first reads the file into the caches.
                latency(&server, &request, 1)?;
                let spent = latency(&server, &request, settings.rounds)?;
                let figure = format!("q, {word}{list}, {size} records");
                table.add(
                    &figure,
                    milliseconds(spent),
                    "100 ms",
                    spent / LONGEST,
                    Bar::AtMost(1.0),
                );
                requests.push(request);
            }
        }
        neighbour(settings, table, &prepared, &server, &requests)?;
    }
    Ok(())
}

/// The second tenant's GETs without and with a client of the first that searches in a loop,
/// alternately.
fn neighbour(
    settings: &Settings,
    table: &mut Table,
    prepared: &Prepared,
    server: &Process,
    searches: &[Vec<u8>],
) -> io::Result<()> {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        alone.push(read(prepared, server)?.percentile(0.99));
        beside.push(while_searching(server, searches, || read(prepared, server))?.percentile(0.99));
    }
    let ratio = median(beside.iter().zip(&alone).map(|(beside, alone)| beside / alone).collect());
    let figure = format!(
        "another tenant's GET beside searches, p99, {} records",
        thousands(prepared.records as f64)
    );
    let against = format!("without {}", milliseconds(median(alone)));
    table.add(&figure, milliseconds(median(beside)), against, ratio, Bar::AtMost(2.0));
    Ok(())
}

/// One client of the second tenant.
fn read(prepared: &Prepared, server: &Process) -> io::Result<Outcome> {
    let mut id = scattered(SMALL as usize);
    let mut next = || Some(get(&prepared.data.keys[1], &format!("/hardware.php?id={}", 1 + id())));
    one_by_one(server.address, 200, ROUND, &mut next)
}

fn while_searching<T>(
    server: &Process,
    searches: &[Vec<u8>],
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let searching = scope.spawn(|| {
            let mut stream = connect(server.address)?;
            let mut turns = searches.iter().cycle().take_while(|_| !done.load(Ordering::Relaxed));
            turns.try_for_each(|request| expect(&mut stream, request, 200))
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        searching.join().map_err(|_| io::Error::other("the search panicked"))??;
        result
    })
}
