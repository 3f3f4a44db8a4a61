//! Output of the commands.

use std::io::{self, Write as _};

use anyhow::Context as _;
use comfy_table::{Table, presets};
use serde_json::Value;

use super::GlobalOptions;

impl GlobalOptions {
    /// Prints what a command did: with `--json` the document, else the text.
    pub(super) fn report(&self, document: &Value, text: &str) -> anyhow::Result<()> {
        if self.json { print_json(document) } else { print(text) }
    }
}

/// Prints lines of text to standard output.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let lines: Vec<String> = text.lines().map(printable).collect();
    print_document(&lines.join("\n"))
}

/// Prints a JSON document on one line to standard output.
pub(super) fn print_json(document: &Value) -> anyhow::Result<()> {
    print_document(&document.to_string())
}

/// Prints a document as it is, and a line end, to standard output.
pub(super) fn print_document(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}

/// Prints one line to standard error.
pub(super) fn print_stderr(text: &str) {
    // If standard error is closed, the message has no reader.
    let _ = writeln!(io::stderr(), "{}", printable(text));
}

/// Prints a table with a heading and without borders to standard output.
pub(super) fn print_table<const N: usize>(
    heading: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> anyhow::Result<()> {
    let mut table = Table::new();
    let rows = rows.map(|row| row.map(|cell| printable(&cell)));
    table.load_style(presets::NOTHING).set_header(heading).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    print_document(&table.trim_fmt())
}

/// Escapes control characters, which would take effect in a terminal, and characters that reorder
/// or hide text (contract section 11 has the same of the log).
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let is_deceptive = matches!(
            character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        if character.is_control() || is_deceptive {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidirectional_characters_are_escaped() {
        assert_eq!(printable("a\nb\u{1b}[2J\u{9b}"), "a\\nb\\u{1b}[2J\\u{9b}");
        assert_eq!(printable("\u{202e}x\u{2069} ü 😀"), "\\u{202e}x\\u{2069} ü 😀");
    }
}
