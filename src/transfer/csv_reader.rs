//! A strict, streaming CSV reader.
//!
//! The `csv` crate writes files but does not read them, because it accepts an unclosed quote and a
//! row of any size. Example: row 2 begins a quote and never closes it. The crate would put the rest
//! of the file into one cell, and an import could store that cell as `notes`. This reader rejects
//! the row. It also rejects text after a closing quote, and the line ends of old Macs, which would
//! melt several rows into one.

use std::io::{self, BufRead};

use super::lines::{CARRIAGE_RETURN, Lines, TOO_LONG};
use super::{MAX_ROW, Place};

/// Reads rows. The first line with text, the header or `sep=;`, determines the delimiter.
#[derive(Debug)]
pub(super) struct CsvRows<R> {
    lines: Lines<R>,
    delimiter: Option<char>,
    /// The number of rows so far, as a spreadsheet counts them.
    row: u64,
    cells: Cells,
}

/// The cells of the current row.
#[derive(Debug)]
struct Cells {
    state: CellState,
    /// All cells, concatenated.
    text: String,
    /// The end of each cell in `text`.
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
    /// Skipping the rest of the line, because of this fault.
    Skip(&'static str),
}

const NOT_CLOSED: &str = "The file ends inside a quoted cell; a quote is not closed.";
const AFTER_QUOTE: &str = "Text follows the closing quote of a cell. Put the whole cell in quotes, \
                           and write each quote in it twice.";

/// The place of a row, and a message if the row is malformed.
type Row = (Place, Result<(), &'static str>);

impl<R: BufRead> CsvRows<R> {
    pub(super) fn new(source: R) -> CsvRows<R> {
        let cells = Cells { state: CellState::Start, text: String::new(), ends: Vec::new() };
        CsvRows { lines: Lines::new(source), delimiter: None, row: 0, cells }
    }

    /// Reads the next row, and skips rows without text. `None` at the end of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<Row>> {
        let mut begun = None;
        loop {
            let Some((line, text)) = self.lines.next()? else {
                return Ok(begun.map(|begun| (begun, Err(NOT_CLOSED))));
            };
            if begun.is_none() {
                self.row += 1;
                self.cells.clear();
            }
            let place = *begun.get_or_insert(Place { line, row: self.row });
            let (text, end) = match text {
                Ok(text) => text.split_at(text.trim_end_matches(['\r', '\n']).len()),
                Err(message) => return Ok(Some((place, Err(message)))),
            };
            let delimiter = match self.delimiter {
                Some(delimiter) => delimiter,
                None if text.trim().is_empty() => ',',
                None => *self.delimiter.insert(delimiter(text)),
            };
            // A first line such as `sep=;` is no row. Spreadsheets do not show it.
            if line == 1 && text.strip_prefix("sep=").is_some_and(|rest| rest.len() == 1) {
                (begun, self.row) = (None, 0);
                continue;
            }
            self.cells.add(text, delimiter);
            if self.cells.text.len() > MAX_ROW {
                self.lines.has_ended = true;
                return Ok(Some((place, Err(TOO_LONG))));
            }
            match self.cells.state {
                CellState::Quoted => self.cells.text.push_str(end),
                CellState::Skip(fault) => return Ok(Some((place, Err(fault)))),
                _ => {
                    self.cells.ends.push(self.cells.text.len());
                    if self.cells().any(|cell| !cell.is_empty()) {
                        return Ok(Some((place, Ok(()))));
                    }
                    begun = None;
                }
            }
        }
    }

    /// The cells of the current row, without white space around them.
    pub(super) fn cells(&self) -> impl Iterator<Item = &str> {
        let Cells { text, ends, .. } = &self.cells;
        let starts = [0].into_iter().chain(ends.iter().copied());
        starts.zip(ends).map(|(start, end)| text.get(start..*end).unwrap_or_default().trim())
    }
}

/// The most frequent delimiter in the header, or the one in a first line such as `sep=;`.
fn delimiter(line: &str) -> char {
    let frequency = |delimiter: &char| line.matches(*delimiter).count();
    ['\t', ';', ','].into_iter().max_by_key(frequency).unwrap_or(',')
}

impl Cells {
    fn clear(&mut self) {
        self.state = CellState::Start;
        self.text.clear();
        self.ends.clear();
    }

    fn add(&mut self, text: &str, delimiter: char) {
        for character in text.chars() {
            self.state = match (self.state, character) {
                (CellState::Quoted, '"') => CellState::Quote,
                (CellState::Skip(fault), _) => CellState::Skip(fault),
                (CellState::Start, '"') => CellState::Quoted,
                (CellState::Quote, '"') | (CellState::Quoted, _) => {
                    self.text.push(character);
                    CellState::Quoted
                }
                (_, character) if character == delimiter => {
                    self.ends.push(self.text.len());
                    CellState::Start
                }
                (_, '\r') => CellState::Skip(CARRIAGE_RETURN),
                (CellState::Quote, _) => CellState::Skip(AFTER_QUOTE),
                (CellState::Start | CellState::Plain, _) => {
                    self.text.push(character);
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

    /// The place and the cells of all rows. A malformed row has the message as its only cell.
    fn rows(text: &[u8]) -> Vec<(u64, u64, Vec<String>)> {
        // A small buffer, so that rows span several chunks.
        let mut rows = CsvRows::new(io::BufReader::with_capacity(16, text));
        let mut all = Vec::new();
        while let Some((Place { line, row }, outcome)) = rows.next().unwrap() {
            let cells = rows.cells().map(str::to_owned).collect();
            let cells = outcome.map_or_else(|message| vec![message.to_owned()], |()| cells);
            all.push((line, row, cells));
        }
        all
    }

    fn row(line: u64, row: u64, cells: &[&str]) -> (u64, u64, Vec<String>) {
        (line, row, cells.iter().map(|cell| (*cell).to_owned()).collect())
    }

    #[test]
    fn a_row_has_its_line_and_its_number_in_a_spreadsheet() {
        for end in ["\n", "\r\n"] {
            let text = "a,b|\"1|2\",||3,4|5,6".replace('|', end);
            let expected = [
                row(1, 1, &["a", "b"]),
                row(2, 2, &[&format!("1{end}2"), ""]),
                row(5, 4, &["3", "4"]),
                row(6, 5, &["5", "6"]),
            ];
            assert_eq!(rows(text.as_bytes()), expected);
        }
        assert_eq!(rows(b"sep=;\r\na;b\n1;2"), [row(2, 1, &["a", "b"]), row(3, 2, &["1", "2"])]);
    }

    #[test]
    fn rows_without_text_are_skipped() {
        assert_eq!(
            rows(b"\n \r\n;\na;b\n;\n\"\"; \n1;2\n;;;\n"),
            [row(4, 4, &["a", "b"]), row(7, 7, &["1", "2"])]
        );
        assert_eq!(rows(b""), []);
        assert_eq!(rows(b"\n\r\n"), []);
    }

    #[test]
    fn the_header_or_a_line_before_it_determines_the_delimiter() {
        for (text, cells) in [
            ("a,b;c,d", &["a", "b;c", "d"][..]),
            ("a;b,c;d", &["a", "b,c", "d"]),
            ("a\tb", &["a", "b"]),
            ("sep=\t\na,b\tc", &["a,b", "c"]),
            ("\u{feff}sep=,\na,b;;c", &["a", "b;;c"]),
            ("name", &["name"]),
        ] {
            assert_eq!(rows(text.as_bytes())[0].2, cells, "{text:?}");
        }
    }

    #[test]
    fn quotes_and_white_space() {
        assert_eq!(
            rows(b"\xef\xbb\xbfname;notes\n\"a;\"\"b\"\"\"; c,d\t\n27\" x;\" \xc2\xa0x \"\n"),
            [
                row(1, 1, &["name", "notes"]),
                row(2, 2, &["a;\"b\"", "c,d"]),
                row(3, 3, &["27\" x", "x"])
            ]
        );
    }

    #[test]
    fn malformed_rows_are_reported_with_their_line() {
        assert_eq!(
            rows(b"a\n\"b\" c\nd\n"),
            [row(1, 1, &["a"]), row(2, 2, &[AFTER_QUOTE]), row(3, 3, &["d"])]
        );
        assert_eq!(
            rows(b"a,b\n1,2\r3\n\"x\ry\"\r\n\"z\"\rv,w\n"),
            [
                row(1, 1, &["a", "b"]),
                row(2, 2, &[CARRIAGE_RETURN]),
                row(3, 3, &["x\ry"]),
                row(4, 4, &[CARRIAGE_RETURN])
            ]
        );
        let long = b"a\r".repeat(MAX_ROW);
        for text in [&b"a\rb\rc\r"[..], &long] {
            assert_eq!(rows(text), [row(1, 1, &[CARRIAGE_RETURN])]);
        }
        assert_eq!(rows(b"a\n\"b\nc\n"), [row(1, 1, &["a"]), row(2, 2, &[NOT_CLOSED])]);
        for rest in ["y", "y\n", ","] {
            let mut long = b"a\nx,\"".to_vec();
            long.extend_from_slice(rest.repeat(2 * MAX_ROW / rest.len()).as_bytes());
            assert_eq!(rows(&long), [row(1, 1, &["a"]), row(2, 2, &[TOO_LONG])]);
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
                rows(&text).into_iter().skip(1).map(|(_, _, cells)| cells).collect();
            let trim = |cells: Vec<String>| cells.iter().map(|cell| cell.trim().to_owned()).collect();
            let mut expected: Vec<Vec<String>> = table.into_iter().map(trim).collect();
            expected.retain(|cells| cells.iter().any(|cell| !cell.is_empty()));
            prop_assert_eq!(read, expected);
        }
    }
}
