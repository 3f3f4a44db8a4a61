//! Workbooks: `.xlsx` and `.ods` are XML in a zip archive.
//!
//! A small file can be huge once it is decompressed. So its size has limits, as have the size and the
//! depth of the pieces of XML, the shared texts in memory, and the size of all rows. Rows are handed
//! on one by one.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};
use std::mem;

use memchr::memmem;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesEnd, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use zip::ZipArchive;
use zip::read::ZipFile;

use super::import::{MAX_COLUMNS, unsuitable};
use super::source::{Input, recognize};
use super::{Cell, Format, ImportError, MAX_ROW, Place, Row, TakeRow, ods, xlsx};
use crate::words;

/// The archive of a workbook, and the bytes that may still be read from it.
pub(super) struct Archive {
    zip: ZipArchive<Input>,
    left: u64,
}

/// The maximum size of all parts that are read, decompressed, and of all rows. 300,000 rows of 14
/// columns have about 500 MB.
const MAX_BYTES: u64 = 1 << 30;
/// The maximum number of sheets of which the names are kept.
pub(super) const MAX_SHEETS: usize = 1_000;
/// The maximum number of nested XML elements.
const MAX_DEPTH: usize = 100;
/// The rows of a sheet in Excel and LibreOffice.
const MAX_ROWS: u64 = 1 << 20;

fn damaged(error: impl std::fmt::Display) -> ImportError {
    unsuitable(format!("the workbook is damaged: {error}"))
}

/// Reads the rows of the sheet `name`, or of the first visible sheet that has any. Calls `note` if
/// others have rows, too.
pub(super) fn read(
    format: Format,
    mut input: Input,
    name: Option<&str>,
    note: &dyn Fn(&str),
    take: &mut TakeRow<'_>,
) -> Result<(), ImportError> {
    match input.fill_buf()? {
        [b'P', b'K', 3, ..] => {}
        [0xd0, 0xcf, 0x11, 0xe0, ..] => return Err(unsuitable(describe_ole(input)?)),
        other => {
            let kind = "it seems to be text. Let its name end in .csv or .jsonl";
            let kind = recognize(other).unwrap_or(kind);
            return Err(unsuitable(format!("the file is no workbook: {kind}")));
        }
    }
    let mut archive = Archive { zip: ZipArchive::new(input).map_err(damaged)?, left: MAX_BYTES };
    let found = if archive.index(ods::CONTENT).is_some() {
        Format::Ods
    } else if archive.index(xlsx::WORKBOOK).is_some() {
        Format::Xlsx
    } else {
        return Err(unsuitable("the file is no .xlsx and no .ods workbook; save it as .xlsx"));
    };
    if found != format {
        let ending = if found == Format::Ods { ".ods" } else { ".xlsx" };
        let message = format!("the file is an {ending} workbook; let its name end in {ending}");
        return Err(unsuitable(message));
    }
    let mut rows = Rows::new(take, name);
    let outcome = match found {
        Format::Ods => ods::read(&mut archive, &mut rows),
        _ => xlsx::read(&mut archive, &mut rows),
    };
    // A fault of another sheet does no harm.
    if !rows.is_read {
        outcome?;
    }
    if let [read, others @ ..] = rows.filled.as_slice()
        && !others.is_empty()
    {
        let others: Vec<_> = others.iter().map(|name| format!("{name:?}")).collect();
        note(&format!(
            "Only the sheet {read:?} is read. Others have rows, too: {}. --sheet names the one to \
             read.",
            others.join(", ")
        ));
    }
    match name {
        Some(name) if !rows.sheets.iter().any(|known| known == name) => {
            let known = rows.sheets.iter().map(String::as_str);
            Err(unsuitable(words::unknown("sheet", name, known).trim_end_matches('.')))
        }
        None if rows.filled.is_empty() && rows.has_hidden => {
            Err(unsuitable("only hidden sheets have rows; name one with --sheet"))
        }
        _ => Ok(()),
    }
}

/// What a file in the format of old Office programs is.
fn describe_ole(input: Input) -> io::Result<&'static str> {
    const SEARCHED: u64 = 64 << 20;
    let name: Vec<u8> = "EncryptedPackage".bytes().flat_map(|letter| [letter, 0]).collect();
    let mut bytes = Vec::new();
    input.take(SEARCHED).read_to_end(&mut bytes)?;
    Ok(match memmem::find(&bytes, &name) {
        Some(_) => "the workbook has a password; open it, and save it without one",
        None => "the file is an old Excel file (.xls); open it, and save it as .xlsx",
    })
}

impl Archive {
    /// The index of a part. Some programs write the names of parts in another case.
    fn index(&self, name: &str) -> Option<usize> {
        let name = name.as_bytes();
        self.zip
            .file_names_raw()
            .position(|found| found.strip_prefix(b"/").unwrap_or(found).eq_ignore_ascii_case(name))
    }

    /// Opens a part, if there is one with this name.
    pub(super) fn open(&mut self, name: &str) -> Result<Option<Xml<'_>>, ImportError> {
        let Some(index) = self.index(name) else { return Ok(None) };
        let part = BufReader::with_capacity(1 << 16, self.zip.by_index(index).map_err(damaged)?);
        let mut reader = Reader::from_reader(Bounded { part, left: &mut self.left, event: 0 });
        reader.config_mut().expand_empty_elements = true;
        Ok(Some(Xml { reader, buffer: Vec::new(), depth: 0 }))
    }
}

/// A part that is read up to limits.
struct Bounded<'a> {
    part: BufReader<ZipFile<'a, Input>>,
    /// The bytes that may still be read from the archive.
    left: &'a mut u64,
    /// The bytes since the last event.
    event: usize,
}

impl Read for Bounded<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(target)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Bounded<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if *self.left == 0 {
            return Err(io::Error::other("it has more than 1 GiB"));
        }
        if self.event > MAX_ROW {
            return Err(io::Error::other("a value has more than 1 MiB"));
        }
        self.part.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        *self.left = self.left.saturating_sub(count as u64);
        self.event += count;
        self.part.consume(count);
    }
}

/// The XML of a part.
pub(super) struct Xml<'a> {
    reader: Reader<Bounded<'a>>,
    buffer: Vec<u8>,
    depth: usize,
}

/// A piece of XML. An element without content has a start and an end.
pub(super) enum Piece<'a> {
    Start(BytesStart<'a>),
    End(BytesEnd<'a>),
    /// Empty for a comment and the like.
    Text(Cow<'a, str>),
}

impl Xml<'_> {
    /// The next piece. `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Piece<'_>>, ImportError> {
        self.buffer.clear();
        self.reader.get_mut().event = 0;
        Ok(Some(match self.reader.read_event_into(&mut self.buffer).map_err(damaged)? {
            Event::Start(start) => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(damaged("its XML is nested too deeply"));
                }
                Piece::Start(start)
            }
            Event::End(end) => {
                self.depth -= 1;
                Piece::End(end)
            }
            Event::Text(text) => Piece::Text(text.xml10_content()),
            Event::CData(text) => Piece::Text(text.xml10_content()),
            Event::GeneralRef(reference) => Piece::Text(match reference.resolve_char_ref() {
                Ok(Some(letter)) => letter.to_string().into(),
                _ => resolve_predefined_entity(&reference)
                    .ok_or_else(|| damaged("its XML has an unknown entity"))?
                    .into(),
            }),
            // An entity of its own could expand without end.
            Event::DocType(_) => return Err(damaged("its XML has a document type")),
            Event::Eof if self.depth > 0 => return Err(damaged("a part ends early")),
            Event::Eof => return Ok(None),
            _ => Piece::Text(Cow::Borrowed("")),
        }))
    }
}

/// The value of an attribute, whatever its prefix.
pub(super) fn attribute(start: &BytesStart<'_>, name: &str) -> Result<Option<String>, ImportError> {
    for attribute in start.attributes().with_checks(false) {
        let attribute = attribute.map_err(damaged)?;
        if attribute.key.local_name().as_ref() == name {
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(damaged)?;
            return Ok(Some(value.into_owned()));
        }
    }
    Ok(None)
}

/// The number in an attribute.
pub(super) fn number(start: &BytesStart<'_>, name: &str) -> Result<Option<usize>, ImportError> {
    Ok(attribute(start, name)?.and_then(|text| text.parse().ok()))
}

/// Hands on the rows of a sheet.
pub(super) struct Rows<'a> {
    take: &'a mut TakeRow<'a>,
    /// The name of the sheet that is asked for.
    wanted: Option<&'a str>,
    /// The names of all sheets so far.
    sheets: Vec<String>,
    /// The sheets with rows: first the one that is read, then others, of which no row is handed on.
    filled: Vec<String>,
    /// Nothing more is handed on.
    is_read: bool,
    /// The name of the present sheet.
    present: String,
    has_hidden: bool,
    /// The cells of the present row.
    cells: Vec<Cell>,
    /// The size of all rows so far.
    size: u64,
}

impl<'a> Rows<'a> {
    fn new(take: &'a mut TakeRow<'a>, wanted: Option<&'a str>) -> Rows<'a> {
        Rows {
            take,
            wanted,
            sheets: Vec::new(),
            filled: Vec::new(),
            is_read: false,
            present: String::new(),
            has_hidden: false,
            cells: Vec::new(),
            size: 0,
        }
    }

    /// Whether to read the sheet `name`.
    pub(super) fn wants(&mut self, name: String, is_hidden: bool) -> bool {
        let is_wanted = self.wanted.map_or(!is_hidden, |wanted| wanted == name);
        self.has_hidden |= is_hidden;
        self.is_read |= !self.filled.is_empty();
        self.present.clone_from(&name);
        if self.sheets.len() < MAX_SHEETS {
            self.sheets.push(name);
        }
        is_wanted
    }

    /// Whether no other sheet matters.
    pub(super) fn is_complete(&self) -> bool {
        self.wanted.is_some() && !self.filled.is_empty()
    }

    /// Sets a cell of the row, counted from 0. A cell behind the last column that a row may have
    /// makes the row too wide.
    pub(super) fn set(&mut self, index: usize, cell: Cell) {
        if cell.text().is_empty() {
            return;
        }
        let index = index.min(MAX_COLUMNS);
        if self.cells.len() <= index {
            self.cells.resize(index + 1, Cell::default());
        }
        if let Some(place) = self.cells.get_mut(index) {
            *place = cell;
        }
    }

    /// Hands on the row `count` times, unless it is empty. The first of these rows has the number
    /// `first`, counted from 1. Returns whether to go on with this sheet.
    pub(super) fn end_row(&mut self, first: u64, count: u64) -> Result<bool, ImportError> {
        let cells = mem::take(&mut self.cells);
        if cells.is_empty() {
            return Ok(true);
        }
        if self.filled.is_empty() || self.is_read {
            self.filled.push(self.present.clone());
        }
        if self.is_read {
            return Ok(false);
        }
        let size: usize = cells.iter().map(|cell| cell.text().len() + 16).sum();
        let end = first.saturating_add(count);
        if end > MAX_ROWS + 1 {
            return Err(unsuitable(format!("the sheet has more than {MAX_ROWS} rows; split it")));
        }
        for row in first..end {
            self.size += size as u64;
            if self.size > MAX_BYTES {
                return Err(unsuitable("the sheet has more than 1 GiB of text; split it"));
            }
            let cells = if cells.len() > MAX_COLUMNS {
                Err(format!("The row has more than {MAX_COLUMNS} columns."))
            } else if size > MAX_ROW {
                Err("The row has more than 1 MiB.".to_owned())
            } else {
                Ok(Row::Cells(cells.clone()))
            };
            if !(self.take)(Place { line: 0, row }, cells)? {
                self.is_read = true;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A format of numbers has at most so many characters.
const MAX_DIGITS: usize = 255;

/// The cell of a number in the syntax of XML, such as `1.5E-3`. The sheet shows an integer with at
/// least `digits` digits.
pub(super) fn number_cell(text: &str, digits: usize) -> Cell {
    let number = text.trim();
    // Programs other than spreadsheets write integers of more than 15 digits.
    let integer = number.parse::<i128>().map(|number| number.to_string());
    let number = integer.or_else(|_| {
        // Without a sign of zero.
        let number = number.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(|number| (number + 0.0).to_string()).ok_or(())
    });
    let Ok(text) = number else {
        return Cell::Fault("invalid_row", format!("The cell has the invalid number {text:?}."));
    };
    Cell::Number { text, digits: digits.min(MAX_DIGITS) }
}

/// The cell of a date, or of a date and a time, in the syntax of ISO 8601.
pub(super) fn date_cell(text: &str) -> Cell {
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    if time.trim_end_matches('Z').chars().all(|letter| matches!(letter, '0' | ':' | '.')) {
        return Cell::Text(date.to_owned());
    }
    Cell::Fault("invalid_date", format!("The cell is {text}. A date has no time."))
}

/// The cell of a formula that no program has computed.
pub(super) fn no_value() -> Cell {
    let message = "The cell has a formula without a stored value. Open the file in a spreadsheet \
                   program, and save it.";
    Cell::Fault("invalid_row", message.to_owned())
}

pub(super) fn error_cell(error: &str) -> Cell {
    Cell::Fault("invalid_row", format!("The cell has the error {error}. Correct it."))
}
