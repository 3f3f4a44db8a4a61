//! A strict, streaming CSV reader.
//!
//! The `csv` crate writes files but does not read them: it accepts an unclosed quote and a row of
//! any size, so that half of a file could end up in one cell, and text after a closing quote.

use std::io::{self, BufRead};

use super::MAX_ROW;
use super::lines::{Lines, encoding_message};

/// Reads rows. The header determines the delimiter, `,` or `;`. A byte order mark is skipped.
#[derive(Debug)]
pub(super) struct CsvRows<R> {
    lines: Lines<R>,
    /// Known from the header on.
    delimiter: Option<u8>,
    /// The rest of the file cannot be read.
    ended: bool,
    cells: Cells,
}

/// The cells of the current row.
#[derive(Debug)]
struct Cells {
    state: CellState,
    /// All cells, concatenated.
    bytes: Vec<u8>,
    /// The end of each cell in `bytes`.
    ends: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellState {
    /// Before the first byte of a cell.
    Start,
    Plain,
    Quoted,
    /// After a quote inside a quoted cell: the end of the cell, or the first half of an escaped
    /// quote.
    Quote,
    /// Skipping the rest of the line, because text follows a quoted cell.
    Skip,
}

const TOO_LONG: &str = "The row is too long; perhaps a quote is not closed.";
const NOT_CLOSED: &str = "The file ends inside a quoted cell; a quote is not closed.";
const AFTER_QUOTE: &str = "Text follows the closing quote of a cell. Put the whole cell in quotes, \
                           and write each quote in it twice.";

/// The line on which a row begins, and a message if the row is malformed.
type Row = (u64, Result<(), &'static str>);

impl<R: BufRead> CsvRows<R> {
    pub(super) fn new(source: R) -> CsvRows<R> {
        let cells = Cells { state: CellState::Start, bytes: Vec::new(), ends: Vec::new() };
        CsvRows { lines: Lines::new(source), delimiter: None, ended: false, cells }
    }

    /// Reads the next row, and skips blank lines. `None` at the end of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<Row>> {
        if self.ended {
            return Ok(None);
        }
        let cells = &mut self.cells;
        cells.clear();
        let (mut begun, mut not_utf8) = (None, None);
        loop {
            let Some((number, line)) = self.lines.next()? else {
                return Ok(begun.map(|begun| (begun, Err(NOT_CLOSED))));
            };
            let Some(line) = line else { return Ok(Some(self.too_long(begun.unwrap_or(number)))) };
            let (text, end) = split_end(number, line);
            if begun.is_none() && text.is_empty() {
                continue;
            }
            let begun = *begun.get_or_insert(number);
            if str::from_utf8(text).is_err() {
                not_utf8.get_or_insert(encoding_message(text));
            }
            cells.add(text, *self.delimiter.get_or_insert_with(|| delimiter(text)));
            if cells.bytes.len() > MAX_ROW {
                return Ok(Some(self.too_long(begun)));
            }
            if cells.state == CellState::Quoted {
                cells.bytes.extend_from_slice(end);
                continue;
            }
            cells.ends.push(cells.bytes.len());
            let after_quote = (cells.state == CellState::Skip).then_some(AFTER_QUOTE);
            return Ok(Some((begun, not_utf8.or(after_quote).map_or(Ok(()), Err))));
        }
    }

    fn too_long(&mut self, line: u64) -> Row {
        self.ended = true;
        (line, Err(TOO_LONG))
    }

    /// The cells of the current row.
    pub(super) fn cells(&self) -> impl Iterator<Item = &str> {
        let Cells { bytes, ends, .. } = &self.cells;
        let starts = [0].into_iter().chain(ends.iter().copied());
        let cells = starts.zip(ends).map(|(start, end)| bytes.get(start..*end).unwrap_or_default());
        cells.map(|cell| str::from_utf8(cell).unwrap_or_default())
    }
}

/// Splits a line into its text, without a byte order mark, and its end.
fn split_end(number: u64, line: &[u8]) -> (&[u8], &[u8]) {
    let line = line.strip_prefix(b"\xef\xbb\xbf").filter(|_| number == 1).unwrap_or(line);
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    line.split_at(text.len())
}

fn delimiter(header: &[u8]) -> u8 {
    if header.contains(&b';') && !header.contains(&b',') { b';' } else { b',' }
}

impl Cells {
    fn clear(&mut self) {
        self.state = CellState::Start;
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds the text of a line.
    fn add(&mut self, text: &[u8], delimiter: u8) {
        for &byte in text {
            self.state = match (self.state, byte) {
                (CellState::Quoted, b'"') => CellState::Quote,
                (CellState::Skip, _) => CellState::Skip,
                (CellState::Start, b'"') => CellState::Quoted,
                (CellState::Quote, b'"') | (CellState::Quoted, _) => {
                    self.bytes.push(byte);
                    CellState::Quoted
                }
                (_, byte) if byte == delimiter => {
                    self.ends.push(self.bytes.len());
                    CellState::Start
                }
                (CellState::Quote, _) => CellState::Skip,
                (CellState::Start | CellState::Plain, _) => {
                    self.bytes.push(byte);
                    CellState::Plain
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lines and cells of all rows. A row that is malformed has the message as its only cell.
    fn rows(text: &[u8]) -> Vec<(u64, Vec<String>)> {
        // A small buffer, so that rows span several chunks.
        let mut rows = CsvRows::new(io::BufReader::with_capacity(16, text));
        let mut all = Vec::new();
        while let Some((line, row)) = rows.next().unwrap() {
            let cells = rows.cells().map(str::to_owned).collect();
            all.push((line, row.map_or_else(|message| vec![message.to_owned()], |()| cells)));
        }
        all
    }

    fn row(line: u64, cells: &[&str]) -> (u64, Vec<String>) {
        (line, cells.iter().map(|cell| (*cell).to_owned()).collect())
    }

    #[test]
    fn a_row_has_the_line_on_which_it_begins() {
        let expected =
            [row(1, &["a", "b"]), row(2, &["1\n2", ""]), row(5, &["3", "4"]), row(6, &["5", "6"])];
        assert_eq!(rows(b"a,b\n\"1\n2\",\n\n3,4\n5,6"), expected);
        let expected = [
            row(1, &["a", "b"]),
            row(2, &["1\r\n2", ""]),
            row(5, &["3", "4"]),
            row(6, &["5", "6"]),
        ];
        assert_eq!(rows(b"a,b\r\n\"1\r\n2\",\r\n\r\n3,4\r\n5,6\r\n"), expected);
        assert_eq!(rows(b"\n\r\na;b\n1;2"), [row(3, &["a", "b"]), row(4, &["1", "2"])]);
    }

    #[test]
    fn byte_order_marks_semicolons_and_quotes() {
        assert_eq!(
            rows(b"\xef\xbb\xbfname;notes\n\"a;\"\"b\"\"\";c,d\n"),
            [row(1, &["name", "notes"]), row(2, &["a;\"b\"", "c,d"])]
        );
        assert_eq!(rows(b"a,b\n27\" x,\"\"\n"), [row(1, &["a", "b"]), row(2, &["27\" x", ""])]);
        assert_eq!(rows(b"a\n\"\"\n\n"), [row(1, &["a"]), row(2, &[""])]);
        assert_eq!(rows(b""), []);
        assert_eq!(rows(b"\n\r\n"), []);
    }

    #[test]
    fn malformed_rows_are_reported_with_their_line() {
        assert_eq!(
            rows(b"a\n\"b\" c\nd\n"),
            [row(1, &["a"]), row(2, &[AFTER_QUOTE]), row(3, &["d"])]
        );
        assert_eq!(rows(b"a\n\"b\nc\n"), [row(1, &["a"]), row(2, &[NOT_CLOSED])]);
        let windows = encoding_message(b"M\xfcller");
        assert!(windows.contains("Windows-1252") && windows.contains("iconv"), "{windows}");
        assert_eq!(
            rows(b"a,b\n\xff,x\n\xc3,\xa9\n\"\xff\n\",x\nd,e\n"),
            [
                row(1, &["a", "b"]),
                row(2, &[windows]),
                row(3, &[windows]),
                row(4, &[windows]),
                row(6, &["d", "e"])
            ]
        );
        let utf16 = rows(b"\xff\xfen\0a\0m\0e\0\n\0A\0");
        assert!(utf16[0].1[0].contains("UTF-16"), "{utf16:?}");
        for rest in ["y", "y\n", ","] {
            let mut long = b"a\nx,\"".to_vec();
            long.extend_from_slice(rest.repeat(2 * MAX_ROW / rest.len()).as_bytes());
            assert_eq!(rows(&long), [row(1, &["a"]), row(2, &[TOO_LONG])]);
        }
    }

    proptest! {
        #[test]
        fn the_output_of_the_csv_crate_is_read_back(
            table in prop::collection::vec(
                prop::collection::vec("[a-c,;\"\r\n =\u{e4}]{0,6}", 3),
                1..6,
            ),
        ) {
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.write_record(["x", "y", "z"]).unwrap();
            for cells in &table {
                writer.write_record(cells).unwrap();
            }
            let text = writer.into_inner().unwrap();
            let read: Vec<Vec<String>> =
                rows(&text).into_iter().skip(1).map(|(_, cells)| cells).collect();
            prop_assert_eq!(read, table);
        }
    }
}
