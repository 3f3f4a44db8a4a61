//! Output of the commands.

use std::io::{self, Write as _};

use anyhow::Context as _;
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::Value;

use super::GlobalOptions;
use crate::words::{printable, printable_json};

impl GlobalOptions {
    /// Prints what a command did: with `--json` the document, else the text.
    pub(super) fn report(&self, document: &Value, text: &str) -> anyhow::Result<()> {
        if self.json { print_json(document) } else { print(text) }
    }

    /// Prints a list: with `--json` the whole documents, else a table of these members.
    pub(super) fn list(&self, documents: &Value, members: &[&str]) -> anyhow::Result<()> {
        if self.json {
            return print_json(documents);
        }
        let mut table = Table::new();
        let heading = members.iter().map(|member| member.replace('_', " ").to_uppercase());
        table.load_style(presets::NOTHING).set_header(heading);
        for document in documents.as_array().into_iter().flatten() {
            table.add_row(members.iter().map(|member| printable(&cell(&document[*member]))));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        print_document(&table.trim_fmt())
    }
}

/// A value in a table. An array or an object is what it contains.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Object(members) => members.values().map(cell).collect::<Vec<_>>().join(" "),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Prints lines of text to standard output.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let lines: Vec<String> = text.lines().map(printable).collect();
    print_document(&lines.join("\n"))
}

/// Prints a document as it is, and a line end, to standard output.
pub(super) fn print_document(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}

/// Prints a document as JSON. Its texts may come from strangers.
pub(super) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    print_document(&printable_json(&serde_json::to_string(document)?))
}

/// Prints one line to standard error.
pub(super) fn print_stderr(text: &str) {
    // If standard error is closed, the message has no reader.
    let _ = writeln!(io::stderr(), "{}", printable(text));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_has_a_cell() {
        let cells = json!([null, "text", 7, true, ["a", "b"], {"kind": "key", "id": 7}]);
        let cells: Vec<String> = cells.as_array().unwrap().iter().map(cell).collect();
        assert_eq!(cells, ["-", "text", "7", "true", "a, b", "key 7"]);
    }
}
