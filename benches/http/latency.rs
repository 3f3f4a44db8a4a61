//! Whether writes stall: the latencies of one client that sends one mutation at a time, and what a
//! checkpoint adds to one.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::Settings;
use crate::ceilings::longest_fsync_beside;
use crate::device;
use crate::load::{Outcome, connect, expect, one_by_one};
use crate::prepared::Prepared;
use crate::process::Process;
use crate::sections::{milliseconds, scattered, tenant_file};
use crate::table::{Bar, Table, thousands};

/// How much longer than the longest sync a mutation may take, in microseconds.
const BEYOND_FSYNC: f64 = 50_000.0;

/// The mutations, in the order in which they run: DELETE removes what POST added.
#[derive(Clone, Copy, Debug)]
enum Mutation {
    Post,
    Put(&'static str, fn(u64) -> String),
    Delete,
}

const MUTATIONS: [(&str, Mutation); 4] = [
    ("POST", Mutation::Post),
    ("PUT of notes", Mutation::Put("notes", device::notes)),
    ("PUT of name", Mutation::Put("name", device::name)),
    ("DELETE", Mutation::Delete),
];

/// Every mutation at every size.
pub(crate) fn latency(settings: &Settings, table: &mut Table) -> io::Result<()> {
    let mut medians = Vec::new();
    for records in &settings.records {
        let prepared = Prepared::copy(*records)?;
        let server = prepared.serve()?;
        let mut row = Vec::new();
        for (name, mutation) in MUTATIONS {
            let directory = prepared.directory.path();
            let work = || mutation.run(&prepared, &server, settings.long_time);
            let (outcome, fsync) = longest_fsync_beside(directory, work)?;
            show(
                table,
                &format!("{name}, {} records", thousands(*records as f64)),
                &outcome,
                fsync,
            );
            row.push(outcome.percentile(0.5));
        }
        medians.push(row);
    }
    show_growth(settings, table, &medians);
    Ok(())
}

impl Mutation {
    fn run(self, prepared: &Prepared, server: &Process, time: Duration) -> io::Result<Outcome> {
        let mut id = scattered(prepared.records as usize);
        let mut number = 0;
        match self {
            Mutation::Post => one_by_one(server.address, 201, time, &mut || Some(prepared.post())),
            Mutation::Put(field, text) => one_by_one(server.address, 200, time, &mut || {
                number += 1;
                Some(prepared.put(1 + id() as u64, field, &text(number)))
            }),
            Mutation::Delete => {
                let first = prepared.records + 1;
                let mut ids: Vec<u64> = (first..first + prepared.posted()).collect();
                let mut next = || {
                    (!ids.is_empty()).then(|| prepared.delete(ids.swap_remove(id() % ids.len())))
                };
                one_by_one(server.address, 204, time, &mut next)
            }
        }
    }
}

/// Median, p99, p999 and the longest.
pub(crate) fn spread(outcome: &Outcome) -> String {
    let [median, p99, p999, worst] =
        [0.5, 0.99, 0.999, 1.0].map(|part| milliseconds(outcome.percentile(part)));
    let count = thousands(outcome.answered as f64);
    format!(
        "median {median}, p99 {p99}, p999 {p999}, worst {worst}, {count} in {:.1} s",
        outcome.seconds
    )
}

fn show(table: &mut Table, figure: &str, outcome: &Outcome, fsync: f64) {
    let [median, p999, worst] = [0.5, 0.999, 1.0].map(|part| outcome.percentile(part));
    table.note(figure, spread(outcome));
    let against = format!("median {}", milliseconds(median));
    table.add(
        &format!("{figure}, p999"),
        milliseconds(p999),
        against,
        p999 / median,
        Bar::AtMost(10.0),
    );
    let against = format!("longest fsync {} and 50 ms", milliseconds(fsync));
    let ratio = worst / (fsync + BEYOND_FSYNC);
    table.add(&format!("{figure}, worst"), milliseconds(worst), against, ratio, Bar::AtMost(1.0));
}

/// The medians at the last size beside those at the first.
fn show_growth(settings: &Settings, table: &mut Table, medians: &[Vec<f64>]) {
    let ([first, .., last], [few, .., many]) = (medians, &settings.records[..]) else { return };
    for ((name, _), (first, last)) in MUTATIONS.iter().zip(first.iter().zip(last)) {
        let [few, many] = [few, many].map(|records| thousands(*records as f64));
        let against = format!("{few} records {}", milliseconds(*first));
        let figure = format!("{name}, median, {many} records");
        table.add(&figure, milliseconds(*last), against, last / first, Bar::AtMost(1.5));
    }
}

/// POSTs during which the tenant's file was written, beside the others. In WAL mode only a
/// checkpoint writes to it.
pub(crate) fn checkpoint(settings: &Settings, table: &mut Table) -> io::Result<()> {
    for records in &settings.records {
        let prepared = Prepared::copy(*records)?;
        let server = prepared.serve()?;
        let work = || checkpointing(&prepared, &server, settings.long_time);
        let ((with, without), fsync) = longest_fsync_beside(prepared.directory.path(), work)?;
        let size = thousands(*records as f64);
        table.note(&format!("POST with a checkpoint, {size} records"), spread(&with));
        table.note(&format!("POST without, {size} records"), spread(&without));
        let (slow, fast) = (with.percentile(0.5), without.percentile(0.5));
        let figure = format!("POST with a checkpoint, median, {size} records");
        table.add(
            &figure,
            milliseconds(slow),
            format!("without {}", milliseconds(fast)),
            slow / fast,
            Bar::None,
        );
        let worst = with.percentile(1.0);
        let figure = format!("POST with a checkpoint, worst, {size} records");
        let against = format!("longest fsync {} and 50 ms", milliseconds(fsync));
        table.add(
            &figure,
            milliseconds(worst),
            against,
            worst / (fsync + BEYOND_FSYNC),
            Bar::AtMost(1.0),
        );
    }
    Ok(())
}

fn checkpointing(
    prepared: &Prepared,
    server: &Process,
    time: Duration,
) -> io::Result<(Outcome, Outcome)> {
    let file = tenant_file(&prepared.data, 1);
    let mut stream = connect(server.address)?;
    expect(&mut stream, &prepared.post(), 201)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let (begun, mut written) = (Instant::now(), modified(&file)?);
    while begun.elapsed() < time {
        let request = prepared.post();
        let sent = Instant::now();
        expect(&mut stream, &request, 201)?;
        let latency = sent.elapsed();
        let before = std::mem::replace(&mut written, modified(&file)?);
        if written == before { &mut without } else { &mut with }.push(latency);
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok((Outcome::of(with, seconds), Outcome::of(without, seconds)))
}

fn modified(file: &Path) -> io::Result<SystemTime> {
    fs::metadata(file)?.modified()
}
