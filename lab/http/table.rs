//! The table: every figure of every binary, and the ratio.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::load::Outcome;

/// One result of one round.
#[derive(Debug)]
pub(crate) struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Figure {
        Figure { name: name.into(), value, unit }
    }

    /// The latencies of a load.
    pub(crate) fn latencies<const N: usize>(
        name: &str,
        outcome: &Outcome,
        parts: [(&str, f64); N],
    ) -> [Figure; N] {
        parts.map(|(part, share)| {
            Figure::new(format!("{name}, {part}"), outcome.percentile(share), "ms")
        })
    }
}

/// All figures in the order in which they came.
#[derive(Debug)]
pub(crate) struct Table {
    binaries: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    unit: &'static str,
    /// The results of each binary, one of each round.
    results: Vec<Vec<f64>>,
}

impl Table {
    pub(crate) fn new(binaries: &[PathBuf]) -> Table {
        let name = |binary: &PathBuf| Path::display(binary).to_string();
        Table { binaries: binaries.iter().map(name).collect(), rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, binary: usize, figure: Figure) {
        let Figure { name, value, unit } = figure;
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name, unit, results: vec![Vec::new(); self.binaries.len()] });
            self.rows.len() - 1
        });
        self.rows[at].results[binary].push(value);
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let figures = self.results.iter().map(|results| number(median(results), self.unit));
        let mut cells: Vec<String> = [self.name.clone()].into_iter().chain(figures).collect();
        if let [first, .., last] = &self.results[..] {
            let ratios: Vec<f64> = first.iter().zip(last).map(|(a, b)| b / a).collect();
            cells.push(format!("{:.2}", median(&ratios)));
        }
        cells
    }
}

impl fmt::Display for Table {
    /// As Markdown. The ratio is the median of the rounds' ratios, of the last binary to the first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = [vec!["figure".to_owned()], self.binaries.clone()].concat();
        if self.binaries.len() > 1 {
            names.push("ratio".to_owned());
        }
        writeln!(f, "| {} |\n|{}", names.join(" | "), "---|".repeat(names.len()))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "| {} |", row.cells().join(" | ")))
    }
}

/// `12,345/s`, `0.42 ms`.
fn number(value: f64, unit: &str) -> String {
    if unit != "/s" {
        return format!("{value:.2} {unit}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + unit
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
