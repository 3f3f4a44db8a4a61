//! Import and export of all records of a resource as CSV, JSON Lines or a workbook (contract
//! section 10, `import` and `export`).
//!
//! `csv` and `workbook` turn a file into rows of cells. `columns` and the operator's `map` turn a row
//! into an object as in JSON Lines. `row` turns the object into a record, and `merge` keeps what
//! others have changed since the file was exported.

mod columns;
mod csv;
mod draft;
mod export;
mod import;
mod map;
mod merge;
mod references;
mod row;
pub mod workbook;

#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use columns::{describe, template_header};
pub use csv::{guess_encoding, recognize};
pub use draft::draft;
pub use export::Export;
pub use import::{Finding, Import, Imported, MAX_FAULTS};
pub use map::Map;
pub use merge::ChangedRecord;
pub use row::Mode;

use crate::model::JsonObject;
use crate::model::validation::shorten;
use crate::store::StoreError;
use crate::words;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// A header of field names, then one row for each record.
    Csv,
    /// A JSON object on each line.
    JsonLines,
    /// A workbook of Excel.
    Xlsx,
}

impl FileFormat {
    /// Returns the format for the extension of `path`, in any case.
    pub fn from_extension(path: &Path) -> Option<FileFormat> {
        FileFormat::from_name(path.extension()?.to_str()?)
    }

    pub fn from_name(name: &str) -> Option<FileFormat> {
        let all = [FileFormat::Csv, FileFormat::JsonLines, FileFormat::Xlsx];
        all.into_iter().find(|format| name.eq_ignore_ascii_case(format.name()))
    }

    pub fn name(self) -> &'static str {
        match self {
            FileFormat::Csv => "csv",
            FileFormat::JsonLines => "jsonl",
            FileFormat::Xlsx => "xlsx",
        }
    }
}

/// A file that is imported.
pub struct InputFile<'a> {
    format: FileFormat,
    /// The rows of a workbook, else the file itself.
    input: BufReader<Box<dyn Read + 'a>>,
    map: &'a Map,
}

/// Why an import, a draft or an export failed. Then an import has stored nothing.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("cannot read or write the file: {0}")]
    Io(#[from] io::Error),
    #[error("the tenant's file cannot be used: {0}")]
    Database(String),
    /// The file is of another kind, damaged or too large.
    #[error("{0}")]
    Unsuitable(String),
    /// Each error is reported already.
    #[error(
        "{} in {}{}",
        words::count(*.errors, "fault"),
        words::count(*.rows, "row"),
        if *.errors < MAX_FAULTS { "" } else { ", and the rest of the file was not read" }
    )]
    InvalidRows {
        /// At most [`MAX_FAULTS`].
        errors: u64,
        /// The number of rows with errors.
        rows: u64,
    },
    /// Ids cannot be kept: the resource with this plural name holds records, or held some before.
    #[error("--keep-ids needs a resource that has never held a record, but {0} has")]
    HasHeldRecords(&'static str),
}

impl From<StoreError> for TransferError {
    fn from(error: StoreError) -> TransferError {
        TransferError::Database(error.message)
    }
}

fn unsuitable(message: impl Into<String>) -> TransferError {
    TransferError::Unsuitable(message.into())
}

/// The size of the read buffer in bytes.
const BUFFER: usize = 64 * 1024;

impl<'a> InputFile<'a> {
    /// Of a workbook, `input` has the rows, as [`workbook::read_apart`] returns them. An import
    /// holds the tenant's lock while it reads, so `input` must not be a pipe, which may stall.
    pub fn new(format: FileFormat, input: impl Read + 'a, map: &'a Map) -> InputFile<'a> {
        let input: BufReader<Box<dyn Read>> = BufReader::with_capacity(BUFFER, Box::new(input));
        InputFile { format, input, map }
    }

    /// Hands on all rows, until `take` wants no more.
    fn read(self, take: &mut TakeRow<'_>) -> Result<(), TransferError> {
        match self.format {
            FileFormat::Csv => csv::read_csv(self.input, self.map, take),
            FileFormat::JsonLines => csv::read_json_lines(self.input, take),
            FileFormat::Xlsx => workbook::read_rows(self.input, take),
        }
    }
}

/// The maximum size of a row in bytes, twenty times the size of the largest record. A larger row
/// indicates an unclosed quote or a file of another format.
const MAX_ROW: usize = 1024 * 1024;

/// The most columns of a row, and the most members of a line. A file of another kind would have
/// thousands of unknown columns, and each of them is an error.
const MAX_COLUMNS: usize = 1_000;

/// The place in the file at which a row begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The line of the file, from 1. A workbook has none: 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub line: u64,
    /// The row in a spreadsheet, from 1. A cell with line breaks has several lines in one row.
    pub row: u64,
}

/// A row of a file.
#[derive(Debug)]
enum InputRow {
    /// A row of a table. The first one is the header.
    Cells(Vec<Cell>),
    /// A line of JSON Lines. Its members have their own names.
    Object(JsonObject),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Cell {
    /// Without text, the cell is empty.
    Text(String),
    /// A number of a workbook in decimal, without an exponent.
    Number {
        text: String,
        /// The least number of digits that the sheet shows.
        digits: usize,
        /// The sheet shows other characters around the digits.
        is_decorated: bool,
    },
    /// A cell of a workbook that has no value: the message about it.
    Fault(String),
}

impl Default for Cell {
    fn default() -> Cell {
        Cell::Text(String::new())
    }
}

impl Cell {
    /// The text of a heading.
    fn text(&self) -> &str {
        let (Cell::Text(text) | Cell::Number { text, .. } | Cell::Fault(text)) = self;
        text.trim()
    }
}

/// Takes a row, or the message about a malformed one. Returns whether to go on.
type TakeRow<'a> = dyn FnMut(Place, Result<InputRow, String>) -> Result<bool, TransferError> + 'a;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(line: &u64) -> bool {
    *line == 0
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { line, row } = self;
        match line {
            0 => write!(f, "row {row}"),
            line if line == row => write!(f, "line {line}"),
            line => write!(f, "line {line} (row {row})"),
        }
    }
}

/// A fault of a cell: the name of its column, the code and the message.
type CellFault = (String, &'static str, String);

/// An error in a row of a file that is imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}: {}: {code}: {message}", self.location(), self.label())]
pub struct RowError {
    #[serde(flatten)]
    pub place: Place,
    /// The name of the column or member, or `-` if the row is malformed.
    pub field: String,
    /// The heading of the column, if it is another word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heading: Option<String>,
    /// The column of a workbook, such as `C`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// A field code, or one of `invalid_row`, `unknown_column`, `bad_request` and the like.
    pub code: &'static str,
    /// One or two sentences: the fault, and how to remove it.
    pub message: String,
}

impl RowError {
    fn new(place: Place, field: &str, code: &'static str, message: String) -> RowError {
        let field = shorten(field).into_owned();
        RowError { place, field, heading: None, column: None, code, message }
    }

    fn label(&self) -> String {
        let heading = self.heading.as_ref().map(|heading| format!(" ({heading})"));
        format!("{}{}", self.field, heading.unwrap_or_default())
    }

    /// The line of a text, or the cell or row of a workbook.
    pub fn location(&self) -> String {
        match &self.column {
            Some(column) => format!("cell {column}{}", self.place.row),
            None => self.place.to_string(),
        }
    }

    /// The error of a row that cannot be read.
    fn malformed(place: Place, message: String) -> RowError {
        RowError::new(place, "-", "invalid_row", message)
    }
}
