//! Rows of a CSV file, one at a time.
//!
//! The `csv` crate writes our files but does not read them: it takes a quote that is never closed, and a row of any size,
//! without a word, and counts a row's line from the end of the one before. An import that swallowed half a file into one
//! cell would be worse than none.

use std::io::{self, BufRead};

use super::LONGEST_ROW;

/// Reads rows. `,` or `;` is found out from the first line; a byte order mark is skipped.
#[derive(Debug)]
pub struct CsvRows<R> {
    source: R,
    delimiter: u8,
    begun: bool,
    /// The line that the next byte is on, from 1.
    line: u64,
    after_carriage_return: bool,
    /// The cells of the present row, one behind the other.
    bytes: Vec<u8>,
    /// Where each cell ends in `bytes`.
    ends: Vec<usize>,
}

/// What came next in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A row, to be asked for by [`CsvRows::cell`].
    Row {
        line: u64,
    },
    /// A row that cannot be read, and why. The next one may be fine.
    Broken {
        line: u64,
        why: &'static str,
    },
    /// A row after which nothing can be read.
    Lost {
        line: u64,
        why: &'static str,
    },
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first byte of a cell.
    Start,
    Plain,
    Quoted,
    /// A quote inside a quoted cell: its end, or the first of two that stand for one.
    Quote,
    /// To the end of the line, because of text behind a quoted cell.
    Skip,
}

/// Far more than there are columns; what is beyond is no table.
const MOST_CELLS: usize = 10_000;

const TOO_LONG: &str = "The row is too long; perhaps a quote is not closed.";
const NOT_CLOSED: &str = "The file ends inside a quoted cell; a quote is not closed.";
const BEHIND_QUOTE: &str =
    "Text follows the closing quote of a cell. Put the whole cell in quotes, and write each quote in it twice.";
const NOT_UTF8: &str = "The row is not UTF-8. Save the file as UTF-8.";

impl<R: BufRead> CsvRows<R> {
    pub fn new(source: R) -> CsvRows<R> {
        CsvRows {
            source,
            delimiter: b',',
            begun: false,
            line: 1,
            after_carriage_return: false,
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// The next row. Blank lines are none.
    pub fn next(&mut self) -> io::Result<Next> {
        if !self.begun {
            self.begin()?;
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

    /// How many cells the row has.
    pub fn width(&self) -> usize {
        self.ends.len()
    }

    /// The cell `at`, from 0, of the row that was read last.
    pub fn cell(&self, at: usize) -> &str {
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before).copied()).unwrap_or(0);
        let end = self.ends.get(at).copied().unwrap_or(start);
        self.bytes.get(start..end).and_then(|cell| str::from_utf8(cell).ok()).unwrap_or_default()
    }

    fn begin(&mut self) -> io::Result<()> {
        self.begun = true;
        let start = self.source.fill_buf()?;
        let mark = start.starts_with(b"\xef\xbb\xbf");
        let header = start.split(|byte| *byte == b'\n' || *byte == b'\r').next().unwrap_or_default();
        if header.contains(&b';') && !header.contains(&b',') {
            self.delimiter = b';';
        }
        if mark {
            self.source.consume(3);
        }
        Ok(())
    }

    /// One row with the end of its line. A blank line is a row without cells.
    fn read_row(&mut self) -> io::Result<Next> {
        let mut line = self.line;
        let mut state = State::Start;
        let mut blank = true;
        loop {
            let chunk = self.source.fill_buf()?;
            if chunk.is_empty() {
                return Ok(self.at_end(state, line, blank));
            }
            let mut used = 0;
            for &byte in chunk {
                used += 1;
                let joins_last_line = byte == b'\n' && self.after_carriage_return;
                self.after_carriage_return = byte == b'\r';
                let ends_line = matches!(byte, b'\r' | b'\n');
                if ends_line && !joins_last_line {
                    self.line += 1;
                }
                if blank && joins_last_line {
                    line = self.line;
                    continue;
                }
                if ends_line && state != State::Quoted {
                    if !blank {
                        self.ends.push(self.bytes.len());
                    }
                    self.source.consume(used);
                    return Ok(self.whole(state, line));
                }
                blank = false;
                state = take(state, byte, self.delimiter, &mut self.bytes, &mut self.ends);
            }
            self.source.consume(used);
            if self.bytes.len() > LONGEST_ROW || self.ends.len() > MOST_CELLS {
                return Ok(Next::Lost { line, why: TOO_LONG });
            }
        }
    }

    fn at_end(&mut self, state: State, line: u64, blank: bool) -> Next {
        if blank {
            return Next::End;
        }
        if state == State::Quoted {
            return Next::Lost { line, why: NOT_CLOSED };
        }
        self.ends.push(self.bytes.len());
        self.whole(state, line)
    }

    fn whole(&self, state: State, line: u64) -> Next {
        if state == State::Skip {
            return Next::Broken { line, why: BEHIND_QUOTE };
        }
        let mut start = 0;
        for end in &self.ends {
            if self.bytes.get(start..*end).is_none_or(|cell| str::from_utf8(cell).is_err()) {
                return Next::Broken { line, why: NOT_UTF8 };
            }
            start = *end;
        }
        Next::Row { line }
    }
}

/// Takes a byte that does not end the row.
fn take(state: State, byte: u8, delimiter: u8, bytes: &mut Vec<u8>, ends: &mut Vec<usize>) -> State {
    match (state, byte) {
        (State::Quoted, b'"') => State::Quote,
        (State::Skip, _) => State::Skip,
        (State::Start, b'"') => State::Quoted,
        (State::Quote, b'"') | (State::Quoted, _) => {
            bytes.push(byte);
            State::Quoted
        }
        (_, byte) if byte == delimiter => {
            ends.push(bytes.len());
            State::Start
        }
        (State::Quote, _) => State::Skip,
        (State::Start | State::Plain, _) => {
            bytes.push(byte);
            State::Plain
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lines and cells of the rows; what cannot be read has its reason as its only cell.
    fn rows(text: &[u8]) -> Vec<(u64, Vec<String>)> {
        // A small buffer, so that rows do not lie in one piece.
        let mut rows = CsvRows::new(io::BufReader::with_capacity(16, text));
        let mut all = Vec::new();
        loop {
            match rows.next().unwrap() {
                Next::Row { line } => {
                    all.push((line, (0..rows.width()).map(|at| rows.cell(at).to_owned()).collect()));
                }
                Next::Broken { line, why } => all.push((line, vec![why.to_owned()])),
                Next::Lost { line, why } => {
                    all.push((line, vec![why.to_owned()]));
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
    fn lines_are_counted_where_rows_begin() {
        let wanted = [row(1, &["a", "b"]), row(2, &["1\n2", ""]), row(5, &["3", "4"]), row(6, &["5", "6"])];
        assert_eq!(rows(b"a,b\n\"1\n2\",\n\n3,4\n5,6"), wanted);
        let wanted = [row(1, &["a", "b"]), row(2, &["1\r\n2", ""]), row(5, &["3", "4"]), row(6, &["5", "6"])];
        assert_eq!(rows(b"a,b\r\n\"1\r\n2\",\r\n\r\n3,4\r\n5,6\r\n"), wanted);
        assert_eq!(rows(b"a\rb\r\rc"), [row(1, &["a"]), row(2, &["b"]), row(4, &["c"])]);
    }

    #[test]
    fn marks_semicolons_and_quotes() {
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
    fn what_cannot_be_read_is_said_with_its_line() {
        assert_eq!(rows(b"a\n\"b\" c\nd\n"), [row(1, &["a"]), row(2, &[BEHIND_QUOTE]), row(3, &["d"])]);
        assert_eq!(rows(b"a\n\"b\nc\n"), [row(1, &["a"]), row(2, &[NOT_CLOSED])]);
        assert_eq!(
            rows(b"a,b\n\xff,x\n\xc3,\xa9\nd,e\n"),
            [row(1, &["a", "b"]), row(2, &[NOT_UTF8]), row(3, &[NOT_UTF8]), row(4, &["d", "e"])]
        );
        let mut long = b"a\nx,\"".to_vec();
        long.resize(2 * LONGEST_ROW, b'y');
        assert_eq!(rows(&long), [row(1, &["a"]), row(2, &[TOO_LONG])]);
    }

    proptest! {
        #[test]
        fn what_the_csv_crate_writes_is_read_back(table in prop::collection::vec(prop::collection::vec("[a-c,;\"\r\n =\u{e4}]{0,6}", 3), 1..6)) {
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
