//! Output of the commands.

use std::io::{self, Write as _};

use anyhow::Context as _;
use comfy_table::{Table, presets};
use serde_json::Value;

/// Prints `text` and a line end to standard output.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}

/// Prints a JSON document on one line to standard output.
pub(super) fn print_json(document: &Value) -> anyhow::Result<()> {
    print(&document.to_string())
}

/// Prints `text` and a line end to standard error.
pub(super) fn print_stderr(text: &str) {
    // If standard error is closed, the message has no reader.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a table with a heading and without borders to standard output.
pub(super) fn print_table<const N: usize>(
    heading: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heading).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    print(&table.trim_fmt())
}
