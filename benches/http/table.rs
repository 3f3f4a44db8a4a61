//! The table: every figure beside its ceiling.

use std::fmt;

/// What a ratio has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
    /// Reported only.
    None,
}

/// One line: a figure, what it is held against, and by how much it keeps to it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    figure: String,
    value: String,
    ceiling: String,
    ratio: Option<f64>,
    bar: Bar,
}

/// All lines.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Line>);

impl Bar {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Bar::AtLeast(bar) => ratio >= bar,
            Bar::AtMost(bar) => ratio <= bar,
            Bar::None => true,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bar::AtLeast(bar) => write!(f, "≥ {bar}"),
            Bar::AtMost(bar) => write!(f, "≤ {bar}"),
            Bar::None => Ok(()),
        }
    }
}

impl Table {
    /// A line with a ratio and its bar. It is also shown at once: a bench takes minutes.
    pub(crate) fn add(
        &mut self,
        figure: &str,
        value: impl Into<String>,
        ceiling: impl Into<String>,
        ratio: f64,
        bar: Bar,
    ) {
        self.push(Line {
            figure: figure.into(),
            value: value.into(),
            ceiling: ceiling.into(),
            ratio: Some(ratio),
            bar,
        });
    }

    /// A line that is only reported.
    pub(crate) fn note(&mut self, figure: &str, value: impl Into<String>) {
        let line = Line {
            figure: figure.into(),
            value: value.into(),
            ceiling: String::new(),
            ratio: None,
            bar: Bar::None,
        };
        self.push(line);
    }

    fn push(&mut self, line: Line) {
        eprintln!("{}: {} | {} | {}", line.figure, line.value, line.ceiling, line.ratio_text());
        self.0.push(line);
    }

    /// How many lines miss their bar.
    pub(crate) fn missed(&self) -> usize {
        self.0.iter().filter(|line| line.ratio.is_some_and(|ratio| !line.bar.holds(ratio))).count()
    }
}

impl Line {
    fn ratio_text(&self) -> String {
        let Some(ratio) = self.ratio else { return String::new() };
        let mark = if self.bar.holds(ratio) { "" } else { " ✗" };
        format!("{ratio:.2}{mark}")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![["figure", "measured", "against", "ratio", "bar"].map(str::to_owned)];
        rows.extend(self.0.iter().map(|line| {
            let bar = line.bar.to_string();
            [line.figure.clone(), line.value.clone(), line.ceiling.clone(), line.ratio_text(), bar]
        }));
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3, 4].map(width);
        for (number, row) in rows.iter().enumerate() {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "| {} |", cells.collect::<Vec<_>>().join(" | "))?;
            if number == 0 {
                writeln!(f, "|{}|", widths.map(|width| "-".repeat(width + 2)).join("|"))?;
            }
        }
        Ok(())
    }
}

/// `12,345`.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
