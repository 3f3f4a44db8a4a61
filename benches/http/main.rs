//! `cargo bench --bench http`: every figure is compared with a ceiling that is measured in the same
//! run.
//!
//! `cargo bench --bench http -- [SECTION…] [--seconds S] [--rounds N] [--records N,…]` with the
//! sections reads, writes, lists, start, tenants; and those that run only when they are named:
//! latency, open-loop, search, checkpoint, import-beside. `benches/README.md` has the results.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod ceilings;
mod data;
mod device;
mod import_beside;
mod latency;
mod load;
mod open_loop;
mod prepared;
mod process;
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/process_stats.rs"]
mod process_stats;
mod search;
mod sections;
mod table;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use table::Table;

/// The options of a run.
#[derive(Debug)]
pub struct Settings {
    /// The duration of one load.
    pub time: Duration,
    /// The duration of one load of the sections that look for stalls.
    pub long_time: Duration,
    /// The sizes of a tenant in the sections that look for stalls.
    pub records: Vec<u64>,
    /// How often each pair of loads is repeated; the median counts.
    pub rounds: usize,
    /// The sections to run; empty for all that run without being named.
    pub sections: Vec<String>,
}

/// One part of the table.
type Section = fn(&Settings, &mut Table) -> io::Result<()>;

const SECTIONS: [(&str, Section); 10] = [
    ("reads", sections::reads),
    ("writes", sections::writes),
    ("lists", sections::lists),
    ("start", sections::start),
    ("tenants", sections::tenants),
    ("latency", latency::latency),
    ("open-loop", open_loop::open_loop),
    ("search", search::search),
    ("checkpoint", latency::checkpoint),
    ("import-beside", import_beside::import_beside),
];

/// The sections that take minutes.
const ONLY_NAMED: [&str; 5] = ["latency", "open-loop", "search", "checkpoint", "import-beside"];

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            time: Duration::from_secs(2),
            long_time: Duration::from_secs(10),
            records: vec![1_000, 100_000],
            rounds: 5,
            sections: Vec::new(),
        }
    }
}

impl Settings {
    fn parse(arguments: &[String]) -> Result<Settings, String> {
        let mut settings = Settings::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{argument} wants a value"));
            match argument.as_str() {
                // Passed by cargo.
                "--bench" => (),
                "--seconds" => {
                    settings.time =
                        Duration::from_secs_f64(value()?.parse().map_err(|_| "no number")?);
                    settings.long_time = settings.time;
                }
                "--records" => {
                    let numbers = value()?.split(',').map(str::parse).collect::<Result<_, _>>();
                    settings.records = numbers.map_err(|_| "no numbers")?;
                }
                "--rounds" => settings.rounds = value()?.parse().map_err(|_| "no number")?,
                name if SECTIONS.iter().any(|(known, _)| *known == name) => {
                    settings.sections.push(name.to_owned())
                }
                other => {
                    return Err(format!(
                        "{other} is unknown; sections: {}",
                        SECTIONS.map(|(name, _)| name).join(", ")
                    ));
                }
            }
        }
        Ok(settings)
    }

    fn wants(&self, name: &str) -> bool {
        match self.sections.is_empty() {
            true => !ONLY_NAMED.contains(&name),
            false => self.sections.iter().any(|section| section == name),
        }
    }
}

/// `--put-load ADDRESS CONNECTIONS SECONDS STATUS REQUEST`: only the load, for `peers/run.py`. The
/// request is a JSON object of `method`, `target`, `headers` and `body`. Prints the results as a
/// JSON object.
fn put_load(arguments: &[String]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let [_, address, connections, seconds, status, request] = arguments else {
        return Err("five arguments".into());
    };
    let request: serde_json::Value = serde_json::from_str(request)?;
    let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
    let (method, target, body) = (text("method"), text("target"), text("body"));
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n");
    for (name, value) in request["headers"].as_object().into_iter().flatten() {
        head += &format!("{name}: {}\r\n", value.as_str().unwrap_or_default());
    }
    if !body.is_empty() {
        head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    let bytes = format!("{head}\r\n{body}").into_bytes();
    let load = load::Load {
        address: address.parse()?,
        connections: connections.parse()?,
        time: Duration::from_secs_f64(seconds.parse()?),
        status: status.parse()?,
    };
    let mut sent = 0;
    let outcome = load.run(&mut |out| {
        sent += 1;
        out.extend_from_slice(&bytes);
    })?;
    if outcome.others > 0 {
        return Err(format!("{} responses had another status", outcome.others).into());
    }
    let (median, p99) = (outcome.percentile(0.5), outcome.percentile(0.99));
    println!(
        "{}",
        serde_json::json!({"rate": outcome.rate(), "sent": sent, "median_us": median, "p99_us": p99})
    );
    Ok(())
}

fn run() -> io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if process::be_an_edge(&arguments)? {
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.first().is_some_and(|first| first == "--put-load") {
        put_load(&arguments).map_err(io::Error::other)?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = Settings::parse(&arguments).map_err(io::Error::other)?;
    let mut table = Table::default();
    for (_, section) in SECTIONS.iter().filter(|(name, _)| settings.wants(name)) {
        section(&settings, &mut table)?;
    }
    println!("{table}");
    match table.missed() {
        0 => println!("every bar is met"),
        missed => println!("{missed} bars are missed (✗)"),
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}
