//! The rows of a file, whatever its format.

use std::io::{self, BufRead, BufReader, Read};

use encoding_rs::UTF_8;
use encoding_rs_io::DecodeReaderBytesBuilder;

use super::reader::{CsvRows, Lines};
use super::workbook::{self, ReadSeek};
use super::{Cell, Format, ImportError, Map, Place, Row, TakeRows};
use crate::model::json_object::{JsonError, parse_object};

/// A file that is imported.
pub struct Source<'a> {
    pub(super) format: Format,
    input: Input<'a>,
}

enum Input<'a> {
    /// A text. If it is decoded, it can have replacement characters.
    Text {
        input: Box<dyn BufRead + 'a>,
        is_decoded: bool,
    },
    Workbook {
        input: Box<dyn ReadSeek>,
        sheet: Option<&'a str>,
    },
}

/// The size of the read buffer in bytes.
const BUFFER: usize = 64 * 1024;

impl<'a> Source<'a> {
    /// Opens a text. Waits for its first bytes, so that a stalled pipe holds no lock.
    pub fn text(format: Format, input: impl Read + 'a, map: &Map) -> io::Result<Source<'a>> {
        let mut input: Box<dyn BufRead + 'a> = Box::new(BufReader::with_capacity(BUFFER, input));
        input.fill_buf()?;
        let encoding = map.encoding.filter(|encoding| format == Format::Csv && *encoding != UTF_8);
        if encoding.is_some() {
            let mut decoder = DecodeReaderBytesBuilder::new();
            let decoder = decoder.encoding(encoding).bom_override(true).build(input);
            input = Box::new(BufReader::with_capacity(BUFFER, decoder));
        }
        Ok(Source { format, input: Input::Text { input, is_decoded: encoding.is_some() } })
    }

    /// Opens a workbook, of which the sheet with this name is read.
    pub fn workbook(
        format: Format,
        input: impl ReadSeek + 'static,
        sheet: Option<&'a str>,
    ) -> Source<'a> {
        Source { format, input: Input::Workbook { input: Box::new(input), sheet } }
    }

    /// Reads all rows, until `taker` wants no more.
    pub(super) fn read(self, taker: &mut dyn TakeRows) -> Result<(), ImportError> {
        match self.input {
            Input::Text { input, .. } if self.format == Format::JsonLines => {
                read_json_lines(input, taker)
            }
            Input::Text { input, is_decoded } => read_csv(input, is_decoded, taker),
            Input::Workbook { input, sheet } => workbook::read(self.format, input, sheet, taker),
        }
    }
}

fn read_csv(
    input: impl BufRead,
    is_decoded: bool,
    taker: &mut dyn TakeRows,
) -> Result<(), ImportError> {
    let mut rows = CsvRows::new(input);
    while let Some((place, mut row)) = rows.next()? {
        if is_decoded && rows.cells().any(|cell| cell.contains('\u{fffd}')) {
            row = Err("The row does not fit the encoding of the map. Correct [formats].");
        }
        let row = row.map_err(str::to_owned);
        let row =
            row.map(|()| Row::Cells(rows.cells().map(|c| Cell::Text(c.to_owned())).collect()));
        if !taker.take_row(place, row)? {
            break;
        }
    }
    Ok(())
}

fn read_json_lines(input: impl BufRead, taker: &mut dyn TakeRows) -> Result<(), ImportError> {
    let mut lines = Lines::new(input);
    while let Some((line, text)) = lines.next()? {
        let place = Place { line, row: line };
        if text.is_ok_and(|text| text.trim_ascii().is_empty()) {
            continue;
        }
        let object = text.map_err(str::to_owned).and_then(|text| {
            parse_object(text.as_bytes()).map_err(|JsonError { fault, column, .. }| {
                format!("The line is not a JSON object: {fault} (column {column}).")
            })
        });
        if !taker.take_row(place, object.map(Row::Object))? {
            break;
        }
    }
    Ok(())
}
