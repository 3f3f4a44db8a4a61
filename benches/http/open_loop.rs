//! POSTs on a fixed schedule, whether or not the server keeps up.

use std::io;
use std::time::Duration;

use crate::Settings;
use crate::latency::spread;
use crate::load::Load;
use crate::prepared::Prepared;
use crate::sections::{CONNECTIONS, milliseconds, per_second};
use crate::table::{Bar, Table, thousands};

/// How long the highest rate is measured.
const CLOSED: Duration = Duration::from_secs(4);

/// The share of the highest rate.
const SHARE: f64 = 0.7;

pub(crate) fn open_loop(settings: &Settings, table: &mut Table) -> io::Result<()> {
    for records in &settings.records {
        let prepared = Prepared::copy(*records)?;
        let server = prepared.serve()?;
        let load =
            Load { address: server.address, connections: CONNECTIONS, time: CLOSED, status: 201 };
        let mut next = |out: &mut Vec<u8>| out.extend_from_slice(&prepared.post());
        let highest = load.run(&mut next)?.rate();
        let outcome =
            Load { time: settings.long_time, ..load }.run_at(highest * SHARE, &mut next)?;
        let figure = format!(
            "POST at 70 % of {}, {} records",
            per_second(highest),
            thousands(*records as f64)
        );
        table.note(&figure, spread(&outcome));
        let [median, p99] = [0.5, 0.99].map(|part| outcome.percentile(part));
        let against = format!("median {}", milliseconds(median));
        table.add(
            &format!("{figure}, p99"),
            milliseconds(p99),
            against,
            p99 / median,
            Bar::AtMost(5.0),
        );
    }
    Ok(())
}
