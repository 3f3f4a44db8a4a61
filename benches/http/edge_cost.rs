//! The cost of the edge: the same handler, workers and log entry behind the edge and behind
//! tiny_http alone, alternately.

use std::io;
use std::time::Duration;

use crate::Settings;
use crate::data::Data;
use crate::load::{Outcome, once};
use crate::process::{Edge, Process, ProcessorTime};
use crate::sections::{
    CONNECTIONS, body_length, data_dir, each, get, latency, load_gets, milliseconds, per_second,
};
use crate::table::{Bar, Table, median};

/// One load on one of the two processes.
struct Round {
    outcome: Outcome,
    spent: ProcessorTime,
    /// The median latency on one connection, in microseconds.
    alone: f64,
}

pub(crate) fn edge_cost(settings: &Settings, table: &mut Table) -> io::Result<()> {
    let data_dir = data_dir()?;
    let data = Data::make(&data_dir.path().join("one"), 1, 20)?;
    let request = get(&data.keys[0], "/customers.php?id=1");
    let size = body_length(&once(Process::serve(&data.dir)?.address, &request)?);
    let (edge, without) = (Process::edge(Edge::Bare, size)?, Process::edge(Edge::TinyHttp, size)?);
    answers_are_alike(&once(edge.address, &request)?, &once(without.address, &request)?)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        ours.push(round(settings, &edge, &request)?);
        theirs.push(round(settings, &without, &request)?);
    }
    let mut compare = |figure: &str, of: &dyn Fn(&Round) -> f64, show: &dyn Fn(f64) -> String| {
        let (ours, theirs): (Vec<f64>, Vec<f64>) =
            (ours.iter().map(of).collect(), theirs.iter().map(of).collect());
        let ratio = median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect());
        let ceiling = format!("tiny_http alone {}", show(median(theirs)));
        table.add(&format!("bare edge{figure}"), show(median(ours)), ceiling, ratio, Bar::None);
    };
    let microseconds = |spent: f64| format!("{spent:.1} µs");
    compare("", &|round| round.outcome.rate(), &per_second);
    compare(", p99", &|round| round.outcome.percentile(0.99), &milliseconds);
    compare(", one connection", &|round| round.alone, &milliseconds);
    compare(
        ", processor time of a request",
        &|round| each(round.spent.sum(), &round.outcome),
        &microseconds,
    );
    let more = |stage: &dyn Fn(&ProcessorTime) -> Duration| {
        let of = |round: &Round| each(stage(&round.spent), &round.outcome);
        median(ours.iter().zip(&theirs).map(|(ours, theirs)| of(ours) - of(theirs)).collect())
    };
    let text = format!(
        "{:+.1} µs: {:+.1} µs edge, {:+.1} µs tiny_http, {:+.1} µs workers",
        more(&|spent| spent.sum()),
        more(&|spent| spent.edge),
        more(&|spent| spent.tiny_http),
        more(&|spent| spent.workers),
    );
    table.note("cost of the edge, processor time of a request", text);
    log_entry(settings, table, &edge, &request, size)
}

fn round(settings: &Settings, process: &Process, request: &[u8]) -> io::Result<Round> {
    let before = process.processor_time();
    let outcome = load_gets(process, CONNECTIONS, settings.time, &[request.to_vec()])?;
    let spent = process.processor_time().since(before);
    Ok(Round { outcome, spent, alone: latency(process, request, 500)? })
}

/// The cost of the log entry, which both write.
fn log_entry(
    settings: &Settings,
    table: &mut Table,
    edge: &Process,
    request: &[u8],
    size: usize,
) -> io::Result<()> {
    let silent = Process::edge(Edge::Silent, size)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        ours.push(load_gets(edge, CONNECTIONS, settings.time, &[request.to_vec()])?.rate());
        theirs.push(load_gets(&silent, CONNECTIONS, settings.time, &[request.to_vec()])?.rate());
    }
    let ratio = median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect());
    let ceiling = format!("without it {}", per_second(median(theirs)));
    table.add("bare edge, its log entry", per_second(median(ours)), ceiling, ratio, Bar::None);
    Ok(())
}

/// Checks that both send the same response, except for the date that the edge adds and the request
/// id.
fn answers_are_alike(ours: &[u8], theirs: &[u8]) -> io::Result<()> {
    let essence = |answer: &[u8]| {
        let text = String::from_utf8_lossy(answer).to_lowercase();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let (status, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let other = |line: &&str| !line.starts_with("date:") && !line.starts_with("x-request-id:");
        let mut headers: Vec<String> = headers.lines().filter(other).map(str::to_owned).collect();
        headers.sort();
        (status.get(..12).map(str::to_owned), headers, body.to_owned())
    };
    let (ours, theirs) = (essence(ours), essence(theirs));
    match ours == theirs {
        true => Ok(()),
        false => Err(io::Error::other(format!("the responses differ: {ours:?} and {theirs:?}"))),
    }
}
