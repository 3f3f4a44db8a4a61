//! Import and export of all records of a resource as CSV or JSON Lines (contract section 10,
//! `import` and `export`).

mod csv_reader;
mod export;
mod import;
mod lines;
mod row;

#[cfg(test)]
mod tests;

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

/// An error in a row of a file that is imported.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error("line {line}: {field}: {code}: {message}")]
pub struct RowError {
    /// The line on which the row begins, from 1.
    pub line: u64,
    /// The name of the column or member, or `-` if the row is malformed.
    pub field: String,
    /// A field code, or one of `invalid_row`, `unknown_column`, `bad_request` and the like.
    pub code: &'static str,
    /// One sentence that says what is wrong.
    pub message: String,
}

impl RowError {
    fn new(line: u64, field: &str, code: &'static str, message: impl Into<String>) -> RowError {
        RowError { line, field: shorten(field).into_owned(), code, message: message.into() }
    }
}
