//! Bulk work: whole tables from and to files, CSV or JSON Lines (contract section 10, `import` and `export`).

mod columns;
mod csv_reader;
mod export;
mod import;
mod line_reader;
mod row;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

pub use export::{ExportError, export};
pub use import::{Import, ImportError, Stage, Watcher};

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A header of field names, then a line for each record.
    Csv,
    /// A JSON object on each line.
    JsonLines,
}

impl Format {
    /// By the file's ending, `.csv` or `.jsonl`.
    pub fn of(path: &Path) -> Option<Format> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        Format::parse(&ending)
    }

    /// `csv` or `jsonl`.
    pub fn parse(name: &str) -> Option<Format> {
        match name {
            "csv" => Some(Format::Csv),
            "jsonl" => Some(Format::JsonLines),
            _ => None,
        }
    }
}

/// The most bytes of one row. No record needs a twentieth of it; more is a quote that is not closed, or no such file.
const LONGEST_ROW: usize = 1024 * 1024;

/// One thing that is wrong with a file that is to be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFault {
    /// The line of the file, from 1, where the row begins.
    pub line: u64,
    /// The column or member; `-` where the row cannot be read at all.
    pub field: String,
    /// A field code, or one of `invalid_row`, `unknown_column`, `bad_request` and the like.
    pub code: &'static str,
    pub message: String,
}

impl RowFault {
    fn new(line: u64, field: &str, code: &'static str, message: impl Into<String>) -> RowFault {
        RowFault { line, field: shortened(field), code, message: message.into() }
    }

    /// The row cannot be read at all.
    fn unreadable(line: u64, message: impl Into<String>) -> RowFault {
        RowFault::new(line, "-", "invalid_row", message)
    }
}

/// One line, whatever stands in the file.
impl fmt::Display for RowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}: {}", self.line, printable(&self.field), self.code, printable(&self.message))
    }
}

/// Control characters would let a file write to the operator's terminal.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// A name as a message shows it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
