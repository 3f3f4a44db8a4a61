//! Import and export of all records of a resource as CSV or JSON Lines (contract section 10,
//! `import` and `export`).

mod columns;
mod export;
mod import;
mod reader;
mod row;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

pub use export::{ExportError, export};
pub use import::{Import, ImportError, ImportObserver, Imported};
pub use row::Mode;

use crate::model::validation::shorten;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A header of field names, then one row for each record.
    Csv,
    /// A JSON object on each line.
    JsonLines,
}

impl Format {
    /// Returns the format for the extension of `path`, `.csv` or `.jsonl` in any case.
    pub fn from_extension(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Format::Csv),
            "jsonl" => Some(Format::JsonLines),
            _ => None,
        }
    }
}

/// The maximum size of a row in bytes, twenty times the size of the largest record. A larger row
/// indicates an unclosed quote or a file of another format.
const MAX_ROW: usize = 1024 * 1024;

/// The place in the file at which a row begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Place {
    /// The line of the file, from 1.
    pub line: u64,
    /// The row in a spreadsheet, from 1. A cell with line breaks has several lines in one row.
    pub row: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { line, row } = self;
        if line == row { write!(f, "line {line}") } else { write!(f, "line {line} (row {row})") }
    }
}

/// An error in a row of a file that is imported.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error("{place}: {field}: {code}: {message}")]
pub struct RowError {
    #[serde(flatten)]
    pub place: Place,
    /// The name of the column or member, or `-` if the row is malformed.
    pub field: String,
    /// A field code, or one of `invalid_row`, `unknown_column`, `bad_request` and the like.
    pub code: &'static str,
    /// One or two sentences: the fault, and how to remove it.
    pub message: String,
}

impl RowError {
    fn new(place: Place, field: &str, code: &'static str, message: String) -> RowError {
        RowError { place, field: shorten(field).into_owned(), code, message }
    }

    /// The error of a row that cannot be read.
    fn malformed(place: Place, message: String) -> RowError {
        RowError::new(place, "-", "invalid_row", message)
    }
}
