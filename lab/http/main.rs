//! `cargo bench --bench http`: the speed of the service, beside an earlier build of it.
//!
//! `cargo bench --bench http -- [SECTION…] [--seconds S] [--rounds N] [--records N]` with the
//! sections get, post, tenants, latency, search and import; all of them unless some are named.
//! `TENANTDESK_BENCH_BINARY` names the binaries to measure, with `:` between them.
//! `lab/README.md` has results.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a bench fails by panicking")]

mod load;
mod records;
mod sections;
#[expect(dead_code, reason = "the bench of fairness needs the rest")]
mod server;
mod table;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, io};

use load::Load;
use table::{Figure, Table};

/// The options of a run.
#[derive(Debug)]
pub struct Settings {
    /// The duration of one load.
    pub time: Duration,
    /// The records of the tenant in the sections latency, search and import.
    pub records: u64,
    /// How often each load is repeated.
    pub rounds: usize,
    sections: Vec<String>,
}

/// Measures one binary; called once in each round.
type Measure = Box<dyn FnMut() -> io::Result<Vec<Figure>>>;

/// Prepares the data and the server of one binary.
type Section = fn(&Settings, &Path) -> io::Result<Measure>;

const SECTIONS: [(&str, Section); 6] = [
    ("get", sections::get),
    ("post", sections::post),
    ("tenants", sections::tenants),
    ("latency", sections::latency),
    ("search", sections::search),
    ("import", sections::import),
];

impl Settings {
    fn parse(arguments: &[String]) -> Result<Settings, Box<dyn Error>> {
        let (time, records, rounds) = (Duration::from_secs(2), 100_000, 3);
        let mut settings = Settings { time, records, rounds, sections: Vec::new() };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                // Passed by cargo.
                "--bench" => (),
                "--seconds" => settings.time = Duration::from_secs_f64(value()?.parse()?),
                "--records" => settings.records = value()?.parse()?,
                "--rounds" => settings.rounds = value()?.parse()?,
                name if SECTIONS.iter().any(|(known, _)| *known == name) => {
                    settings.sections.push(name.to_owned());
                }
                other => {
                    let known = SECTIONS.map(|(name, _)| name).join(", ");
                    return Err(format!("{other} is unknown; sections: {known}").into());
                }
            }
        }
        Ok(settings)
    }
}

/// The binaries to measure: cargo's, unless the environment names others.
fn binaries() -> Vec<PathBuf> {
    match env::var_os("TENANTDESK_BENCH_BINARY") {
        Some(paths) => env::split_paths(&paths).collect(),
        None => vec![env!("CARGO_BIN_EXE_tenantdesk").into()],
    }
}

/// Measures all binaries alternately, because the speed of a machine varies.
fn measure_all(settings: &Settings, binaries: &[PathBuf], table: &mut Table) -> io::Result<()> {
    for (name, section) in SECTIONS {
        if !settings.sections.is_empty() && !settings.sections.iter().any(|wanted| wanted == name) {
            continue;
        }
        let prepared = binaries.iter().map(|binary| section(settings, binary));
        let mut prepared = prepared.collect::<io::Result<Vec<Measure>>>()?;
        for round in 1..=settings.rounds {
            eprintln!("{name}, round {round} of {}", settings.rounds);
            for (binary, measure) in prepared.iter_mut().enumerate() {
                measure()?.into_iter().for_each(|figure| table.add(binary, figure));
            }
        }
    }
    Ok(())
}

/// `--put-load ADDRESS CONNECTIONS SECONDS STATUS REQUEST`: only the load, for `peers/run.py`. The
/// request is a JSON object of `method`, `target`, `headers` and `body`. Prints a JSON object.
fn put_load(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [address, connections, seconds, status, request] = arguments else {
        return Err("five arguments".into());
    };
    let request: serde_json::Value = serde_json::from_str(request)?;
    let text = |name: &str| request[name].as_str().unwrap_or_default();
    let headers = request["headers"].as_object().into_iter().flatten();
    let headers: String = headers
        .map(|(name, value)| format!("{name}: {}\r\n", value.as_str().unwrap_or_default()))
        .collect();
    let bytes = load::request(text("method"), text("target"), &headers, text("body"));
    let load = Load {
        address: address.parse()?,
        connections: connections.parse()?,
        time: Duration::from_secs_f64(seconds.parse()?),
        status: status.parse()?,
    };
    let outcome = load.run(&mut || Some(bytes.clone()))?;
    println!("{}", serde_json::json!({"rate": outcome.rate(), "sent": outcome.sent}));
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some(("--put-load", rest)) =
        arguments.split_first().map(|(first, rest)| (first.as_str(), rest))
    {
        return put_load(rest);
    }
    let (settings, binaries) = (Settings::parse(&arguments)?, binaries());
    let mut table = Table::new(&binaries);
    let measured = measure_all(&settings, &binaries, &mut table);
    print!("{table}");
    Ok(measured?)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
