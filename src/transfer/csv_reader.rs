//! A strict, streaming CSV reader.
//!
//! The `csv` crate writes files but does not read them. It accepts an unclosed quote and a row of
//! any size, so that half of a file could end up in one cell, and it counts the line of a row from
//! the end of the previous row.

use std::io::{self, BufRead};

use super::MAX_ROW;

/// Reads rows. The first line determines the delimiter, `,` or `;`. A byte order mark is skipped.
#[derive(Debug)]
pub(super) struct CsvRows<R> {
    source: R,
    delimiter: u8,
    started: bool,
    lines: LineCounter,
    /// The cells of the current row, concatenated.
    bytes: Vec<u8>,
    /// The end of each cell in `bytes`.
    ends: Vec<usize>,
}

/// The result of reading one row. `line` is the line on which the row begins, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A row, whose cells [`CsvRows::cell`] returns.
    Row { line: u64 },
    /// A row that is malformed. Reading continues with the next row.
    Invalid { line: u64, message: &'static str },
    /// A row after which reading cannot continue.
    Fatal { line: u64, message: &'static str },
    /// The end of the file.
    End,
}

/// Counts lines, which end with `\n`, `\r` or `\r\n`.
#[derive(Debug)]
struct LineCounter {
    /// The line of the next byte, from 1.
    line: u64,
    after_carriage_return: bool,
}

/// What a byte is to the line that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineByte {
    Inside,
    /// The end of the line, or the first byte of its end.
    End,
    /// The `\n` of `\r\n`.
    SecondHalf,
}

impl LineCounter {
    fn count(&mut self, byte: u8) -> LineByte {
        let follows_carriage_return =
            std::mem::replace(&mut self.after_carriage_return, byte == b'\r');
        match byte {
            b'\n' if follows_carriage_return => LineByte::SecondHalf,
            b'\r' | b'\n' => {
                self.line += 1;
                LineByte::End
            }
            _ => LineByte::Inside,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
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

/// The maximum number of cells in a row, far more than any resource has columns.
const MAX_CELLS: usize = 10_000;

const TOO_LONG: &str = "The row is too long; perhaps a quote is not closed.";
const NOT_CLOSED: &str = "The file ends inside a quoted cell; a quote is not closed.";
const AFTER_QUOTE: &str = "Text follows the closing quote of a cell. Put the whole cell in quotes, and write each quote in it twice.";
const NOT_UTF8: &str = "The row is not UTF-8. Save the file as UTF-8.";

impl<R: BufRead> CsvRows<R> {
    /// Returns a reader of `source`.
    pub(super) fn new(source: R) -> CsvRows<R> {
        CsvRows {
            source,
            delimiter: b',',
            started: false,
            lines: LineCounter { line: 1, after_carriage_return: false },
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Reads the next row. Blank lines are skipped.
    ///
    /// # Errors
    ///
    /// The error of `source`.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        if !self.started {
            self.start()?;
        }
        loop {
            self.bytes.clear();
            self.ends.clear();
            let next = self.read_row()?;
            if let Next::Row { .. } = next
                && self.ends.is_empty()
            {
                continue;
            }
            return Ok(next);
        }
    }

    /// The number of cells of the current row.
    pub(super) fn width(&self) -> usize {
        self.ends.len()
    }

    /// The cell with the given index, from 0, of the current row.
    pub(super) fn cell(&self, index: usize) -> &str {
        let start =
            index.checked_sub(1).and_then(|before| self.ends.get(before).copied()).unwrap_or(0);
        let end = self.ends.get(index).copied().unwrap_or(start);
        self.bytes.get(start..end).and_then(|cell| str::from_utf8(cell).ok()).unwrap_or_default()
    }

    /// Skips the byte order mark and determines the delimiter.
    fn start(&mut self) -> io::Result<()> {
        self.started = true;
        let start = self.source.fill_buf()?;
        let has_mark = start.starts_with(b"\xef\xbb\xbf");
        let header =
            start.split(|byte| *byte == b'\n' || *byte == b'\r').next().unwrap_or_default();
        if header.contains(&b';') && !header.contains(&b',') {
            self.delimiter = b';';
        }
        if has_mark {
            self.source.consume(3);
        }
        Ok(())
    }

    /// Reads one row with its line end. A blank line is a row without cells.
    fn read_row(&mut self) -> io::Result<Next> {
        let mut line = self.lines.line;
        let mut state = CellState::Start;
        let mut blank = true;
        loop {
            let chunk = self.source.fill_buf()?;
            if chunk.is_empty() {
                return Ok(self.at_end(state, line, blank));
            }
            let mut used = 0;
            for &byte in chunk {
                used += 1;
                let line_byte = self.lines.count(byte);
                if blank && line_byte == LineByte::SecondHalf {
                    line = self.lines.line;
                    continue;
                }
                if line_byte != LineByte::Inside && state != CellState::Quoted {
                    if !blank {
                        self.ends.push(self.bytes.len());
                    }
                    self.source.consume(used);
                    return Ok(self.finish_row(state, line));
                }
                blank = false;
                state = advance(state, byte, self.delimiter, &mut self.bytes, &mut self.ends);
            }
            self.source.consume(used);
            if self.bytes.len() > MAX_ROW || self.ends.len() > MAX_CELLS {
                return Ok(Next::Fatal { line, message: TOO_LONG });
            }
        }
    }

    fn at_end(&mut self, state: CellState, line: u64, blank: bool) -> Next {
        if blank {
            return Next::End;
        }
        if state == CellState::Quoted {
            return Next::Fatal { line, message: NOT_CLOSED };
        }
        self.ends.push(self.bytes.len());
        self.finish_row(state, line)
    }

    fn finish_row(&self, state: CellState, line: u64) -> Next {
        if state == CellState::Skip {
            return Next::Invalid { line, message: AFTER_QUOTE };
        }
        let mut start = 0;
        for end in &self.ends {
            if self.bytes.get(start..*end).is_none_or(|cell| str::from_utf8(cell).is_err()) {
                return Next::Invalid { line, message: NOT_UTF8 };
            }
            start = *end;
        }
        Next::Row { line }
    }
}

/// Processes a byte that does not end the row, and returns the new state.
fn advance(
    state: CellState,
    byte: u8,
    delimiter: u8,
    bytes: &mut Vec<u8>,
    ends: &mut Vec<usize>,
) -> CellState {
    match (state, byte) {
        (CellState::Quoted, b'"') => CellState::Quote,
        (CellState::Skip, _) => CellState::Skip,
        (CellState::Start, b'"') => CellState::Quoted,
        (CellState::Quote, b'"') | (CellState::Quoted, _) => {
            bytes.push(byte);
            CellState::Quoted
        }
        (_, byte) if byte == delimiter => {
            ends.push(bytes.len());
            CellState::Start
        }
        (CellState::Quote, _) => CellState::Skip,
        (CellState::Start | CellState::Plain, _) => {
            bytes.push(byte);
            CellState::Plain
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
        loop {
            match rows.next().unwrap() {
                Next::Row { line } => {
                    all.push((
                        line,
                        (0..rows.width()).map(|at| rows.cell(at).to_owned()).collect(),
                    ));
                }
                Next::Invalid { line, message } => all.push((line, vec![message.to_owned()])),
                Next::Fatal { line, message } => {
                    all.push((line, vec![message.to_owned()]));
                    return all;
                }
                Next::End => return all,
            }
        }
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
        assert_eq!(rows(b"a\rb\r\rc"), [row(1, &["a"]), row(2, &["b"]), row(4, &["c"])]);
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
        assert_eq!(
            rows(b"a,b\n\xff,x\n\xc3,\xa9\nd,e\n"),
            [row(1, &["a", "b"]), row(2, &[NOT_UTF8]), row(3, &[NOT_UTF8]), row(4, &["d", "e"])]
        );
        let mut long = b"a\nx,\"".to_vec();
        long.resize(2 * MAX_ROW, b'y');
        assert_eq!(rows(&long), [row(1, &["a"]), row(2, &[TOO_LONG])]);
    }

    proptest! {
        #[test]
        fn the_output_of_the_csv_crate_is_read_back(table in prop::collection::vec(prop::collection::vec("[a-c,;\"\r\n =\u{e4}]{0,6}", 3), 1..6)) {
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.write_record(["x", "y", "z"]).unwrap();
            for cells in &table {
                writer.write_record(cells).unwrap();
            }
            let text = writer.into_inner().unwrap();
            let read: Vec<Vec<String>> = rows(&text).into_iter().skip(1).map(|(_, cells)| cells).collect();
            prop_assert_eq!(read, table);
        }
    }
}
