//! What commands print.

use std::io::{self, Write as _};

use anyhow::Context as _;
use comfy_table::{Table, presets};
use serde_json::Value;

/// One line, or several, on standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).context("cannot write to standard output")
}

/// One JSON document on standard output.
pub fn print_json(document: &Value) -> anyhow::Result<()> {
    print(&document.to_string())
}

/// A remark beside the output, on standard error.
pub fn remark(text: &str) {
    // Who closed standard error does not want to hear it.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Columns with a heading, without lines around them.
pub fn print_table<const N: usize>(heading: [&str; N], rows: impl Iterator<Item = [String; N]>) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heading).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    print(&table.trim_fmt())
}
