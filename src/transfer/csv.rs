//! Files of lines: CSV and JSON Lines.
//!
//! The `csv` crate writes files but does not read them, because it accepts an unclosed quote and a
//! row of any size. Example: row 2 begins a quote and never closes it. The crate would put the rest
//! of the file into one cell, and an import could store that cell as `notes`. This reader rejects
//! the row. It also rejects text after a closing quote, and the line ends of old Macs, which would
//! melt several rows into one.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use encoding_rs_io::DecodeReaderBytesBuilder;

use super::{BUFFER, Cell, InputRow, MAX_COLUMNS, MAX_ROW, Map, Place, TakeRow, TransferError};
use crate::model::validation::parse_object;

/// Hands on the rows of a CSV file in the encoding and with the delimiter of the map.
pub(super) fn read_csv(
    input: impl BufRead,
    map: &Map,
    take: &mut TakeRow<'_>,
) -> Result<(), TransferError> {
    let encoding = map.encoding.filter(|encoding| *encoding != UTF_8);
    if encoding.is_none() {
        return read_text(input, map.delimiter, None, take);
    }
    let mut decoder = DecodeReaderBytesBuilder::new();
    let decoder = decoder.encoding(encoding).bom_override(true).build(input);
    read_text(BufReader::with_capacity(BUFFER, decoder), map.delimiter, encoding, take)
}

fn read_text(
    mut input: impl BufRead,
    delimiter: Option<char>,
    encoding: Option<&'static Encoding>,
    take: &mut TakeRow<'_>,
) -> Result<(), TransferError> {
    let mut start = Vec::new();
    input.by_ref().take(BUFFER as u64).read_to_end(&mut start)?;
    let delimiter = delimiter.unwrap_or_else(|| find_delimiter(&start));
    let mut rows = CsvRows::new(Cursor::new(start).chain(input), delimiter);
    while let Some((place, row)) = rows.next()? {
        let row = match row {
            Ok(cells) => find_other_encoding(encoding, &cells).map_or(Ok(cells), Err),
            row => row,
        };
        let row = row.map(|cells| InputRow::Cells(cells.into_iter().map(Cell::Text).collect()));
        if !take(place, row.map_err(str::to_owned))? {
            break;
        }
    }
    Ok(())
}

pub(super) fn read_json_lines(
    input: impl BufRead,
    take: &mut TakeRow<'_>,
) -> Result<(), TransferError> {
    let mut lines = Lines::new(input);
    while let Some((line, text)) = lines.next()? {
        let place = Place { line, row: line };
        if text.is_ok_and(|text| text.trim_ascii().is_empty()) {
            continue;
        }
        let object = text.map_err(str::to_owned).and_then(|text| {
            parse_object(text.as_bytes())
                .map_err(|fault| format!("The line alone is not a JSON object: {fault}."))
        });
        if !take(place, object.map(InputRow::Object))? {
            break;
        }
    }
    Ok(())
}

/// The message about a decoded row which shows that the file has another encoding.
fn find_other_encoding(
    encoding: Option<&'static Encoding>,
    cells: &[String],
) -> Option<&'static str> {
    let encoding = encoding?;
    let row = cells.concat();
    // The letters of other bytes are hardly ever UTF-8 by chance: `Ã¤`.
    if encoding.is_single_byte() && !row.is_ascii() {
        let (bytes, _, has_lost) = encoding.encode(&row);
        if !has_lost && str::from_utf8(&bytes).is_ok() {
            return Some(IS_UTF_8);
        }
    }
    // Windows-1252 has no letter for the controls from U+0080 on.
    let is_wrong = |letter| matches!(letter, '\u{fffd}' | '\u{80}'..='\u{9f}');
    row.contains(is_wrong).then_some(OTHER_ENCODING)
}

#[derive(Debug)]
struct CsvRows<R> {
    lines: Lines<R>,
    delimiter: char,
    /// The number of rows so far, as a spreadsheet counts them.
    row: u64,
    /// The number of columns with a heading.
    width: Option<usize>,
}

/// The place of a row and its cells without white space around them, or what is wrong with the row.
type CsvRow = (Place, Result<Vec<String>, &'static str>);

const NOT_CLOSED: &str = "The file ends inside a quoted cell; a quote is not closed.";
const AFTER_QUOTE: &str = "Text follows the closing quote of a cell. Put the whole cell in quotes, \
                           and write each quote in it twice.";
const CUT_OFF: &str = "The file may be cut off: its last line ends early, and has no line break. \
                       If the file is complete, add a line break at its end.";
const CARRIAGE_RETURN: &str =
    "The line has a carriage return; save the file with Windows or Unix line ends.";
const TOO_WIDE: &str = "The row has more than 1,000 columns.";
const TOO_LONG: &str = "The row has more than 1 MiB. In CSV, perhaps a quote is not closed. In JSON \
                        Lines, each line has one object.";

impl<R: BufRead> CsvRows<R> {
    fn new(source: R, delimiter: char) -> CsvRows<R> {
        CsvRows { lines: Lines::new(source), delimiter, row: 0, width: None }
    }

    /// Reads the next row, and skips rows without text. `None` at the end of the file.
    fn next(&mut self) -> io::Result<Option<CsvRow>> {
        // The row, once its first line is read.
        let mut begun: Option<OpenRow> = None;
        loop {
            let Some((line, text)) = self.lines.next()? else {
                return Ok(begun.map(|row| (row.place, Err(NOT_CLOSED))));
            };
            let row = begun.get_or_insert_with(|| {
                self.row += 1;
                OpenRow::new(Place { line, row: self.row })
            });
            let (text, end) = match text {
                Ok(text) => text.split_at(text.trim_end_matches(['\r', '\n']).len()),
                Err(message) => return Ok(Some((row.place, Err(message)))),
            };
            // A first line such as `sep=;` is no row. Spreadsheets do not show it.
            if line == 1 && separator(text).is_some() {
                (begun, self.row) = (None, 0);
                continue;
            }
            row.add(text, self.delimiter);
            match row.state {
                CellState::Quoted if row.size > MAX_ROW => {
                    self.lines.has_ended = true;
                    return Ok(Some((row.place, Err(TOO_LONG))));
                }
                CellState::Quoted => row.cell.push_str(end),
                CellState::Skip(fault) => return Ok(Some((row.place, Err(fault)))),
                _ => {
                    row.end_cell();
                    if let Some(last) = row.cells.iter().rposition(|cell| !cell.is_empty()) {
                        let width = *self.width.get_or_insert(last + 1);
                        let is_cut_off = end.is_empty() && row.cells.len() < width;
                        let cells = std::mem::take(&mut row.cells);
                        let cells = if is_cut_off { Err(CUT_OFF) } else { Ok(cells) };
                        return Ok(Some((row.place, cells)));
                    }
                    begun = None;
                }
            }
        }
    }
}

/// The delimiter of a first line such as `sep=;`.
fn separator(line: &str) -> Option<char> {
    line.strip_prefix("sep=").filter(|rest| rest.len() == 1)?.chars().next()
}

/// The delimiter that gives most of the first rows as many cells as the header has. Quoted parts do
/// not count. Example: `Street, No.;City` above `Main Road 1;London` has semicolons.
fn find_delimiter(start: &[u8]) -> char {
    const ROWS: usize = 20;
    let start = String::from_utf8_lossy(start);
    let start = start.trim_start_matches(['\u{feff}', '\r', '\n', ' ']);
    if let Some(delimiter) = start.lines().next().and_then(separator) {
        return delimiter;
    }
    let fit = |delimiter: &char| {
        let (mut counts, mut is_quoted) = (vec![0_usize], false);
        for letter in start.chars() {
            match letter {
                '"' => is_quoted = !is_quoted,
                '\n' if !is_quoted && counts.len() == ROWS => break,
                '\n' if !is_quoted => counts.push(0),
                letter if letter == *delimiter && !is_quoted => {
                    counts.last_mut().into_iter().for_each(|count| *count += 1);
                }
                _ => {}
            }
        }
        let header = counts.first().copied().unwrap_or(0);
        let same = counts.iter().filter(|count| **count == header).count();
        if header == 0 { (0, 0) } else { (same, header) }
    };
    // Of equal ones, the last wins.
    ['\t', ';', ','].into_iter().max_by_key(fit).unwrap_or(',')
}

/// A row of which a part is read.
struct OpenRow {
    place: Place,
    state: CellState,
    cells: Vec<String>,
    /// The present cell.
    cell: String,
    /// The size of the lines so far.
    size: usize,
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

impl OpenRow {
    fn new(place: Place) -> OpenRow {
        let (cells, cell) = (Vec::new(), String::new());
        OpenRow { place, state: CellState::Start, cells, cell, size: 0 }
    }

    fn add(&mut self, line: &str, delimiter: char) {
        // With the line break.
        self.size += line.len() + 1;
        for character in line.chars() {
            self.state = match (self.state, character) {
                (CellState::Quoted, '"') => CellState::Quote,
                (CellState::Skip(fault), _) => CellState::Skip(fault),
                (CellState::Start, '"') => CellState::Quoted,
                (CellState::Quote, '"') | (CellState::Quoted, _) => {
                    self.cell.push(character);
                    CellState::Quoted
                }
                (_, character) if character == delimiter => {
                    self.end_cell();
                    if self.cells.len() < MAX_COLUMNS {
                        CellState::Start
                    } else {
                        CellState::Skip(TOO_WIDE)
                    }
                }
                (_, '\r') => CellState::Skip(CARRIAGE_RETURN),
                (CellState::Quote, _) => CellState::Skip(AFTER_QUOTE),
                (CellState::Start | CellState::Plain, _) => {
                    self.cell.push(character);
                    CellState::Plain
                }
            }
        }
    }

    fn end_cell(&mut self) {
        self.cells.push(self.cell.trim().to_owned());
        self.cell.clear();
    }
}

/// Reads lines of UTF-8. A line that is too long, or no UTF-8, is the last one: the cure concerns
/// the whole file.
#[derive(Debug)]
struct Lines<R> {
    source: R,
    number: u64,
    bytes: Vec<u8>,
    /// Nothing is read from now on.
    has_ended: bool,
}

/// The number of a line, from 1, and the line with its end, or the message about it.
type NumberedLine<'a> = (u64, Result<&'a str, &'static str>);

impl<R: BufRead> Lines<R> {
    fn new(source: R) -> Lines<R> {
        Lines { source, number: 0, bytes: Vec::new(), has_ended: false }
    }

    /// The next line, without a byte order mark. `None` at the end of the file.
    fn next(&mut self) -> io::Result<Option<NumberedLine<'_>>> {
        self.bytes.clear();
        let mut source = self.source.by_ref().take(MAX_ROW as u64 + 1);
        if self.has_ended || source.read_until(b'\n', &mut self.bytes)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let other = if self.number == 1 { recognize(&self.bytes) } else { None };
        let line = if let Some(message) = other {
            Err(message)
        } else if self.bytes.len() > MAX_ROW && !self.bytes.ends_with(b"\n") {
            Err(if self.bytes.contains(&b'\r') { CARRIAGE_RETURN } else { TOO_LONG })
        } else {
            str::from_utf8(&self.bytes).map_err(|_| describe_encoding(&self.bytes))
        };
        self.has_ended = line.is_err();
        let mark = if self.number == 1 { "\u{feff}" } else { "" };
        let line = line.map(|line| line.strip_prefix(mark).unwrap_or(line));
        Ok(Some((self.number, line)))
    }
}

/// The message about the first bytes of a file that is no CSV file and no JSON Lines.
pub fn recognize(start: &[u8]) -> Option<&'static str> {
    let text = start.trim_ascii_start().to_ascii_lowercase();
    Some(match start {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => {
            "The file is UTF-32. Save it as UTF-8, or convert it: \
             iconv -f UTF-32 -t UTF-8 FILE > NEW"
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [_, 0, ..] | [0, ..] => {
            "The file is UTF-16. Save it as UTF-8, or convert it: \
             iconv -f UTF-16 -t UTF-8 FILE > NEW"
        }
        [b'P', b'K', 3 | 5, ..] => {
            "The file is a workbook with a wrong name. Let its name end in .xlsx."
        }
        [0xd0, 0xcf, 0x11, 0xe0, ..] => {
            "The file is an old Excel file (.xls), or has a password. Open it, and save it as \
             .xlsx without a password."
        }
        _ if text.starts_with(b"<!doctype html") || text.starts_with(b"<html") => {
            "The file is an HTML page. If it shows the table, open it in a spreadsheet program, \
             and save it as .xlsx. If not, perhaps the download needs a sign-in."
        }
        _ if text.starts_with(b"<table") || text.starts_with(b"<?xml") => {
            "The file is an HTML table or XML, such as .fods. Open it in a spreadsheet program, \
             and save it as .xlsx."
        }
        _ if start.starts_with(b"#TYPE ") => {
            "The first line is PowerShell's #TYPE line. Delete it, or export with \
             -NoTypeInformation."
        }
        _ => return None,
    })
}

const WINDOWS_1252: &str = "The file is not UTF-8; it is probably Windows-1252. Save it as \
                            \"CSV UTF-8\", write encoding = \"windows-1252\" below [formats] \
                            in a map (for a file of an old Mac \"macintosh\"), or convert it: \
                            iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW";
const DOS: &str = "The file is not UTF-8 and not Windows-1252; it is probably in a DOS code page. \
                   Save it as \"CSV UTF-8\", or convert it: iconv -f CP850 -t UTF-8 FILE > NEW";
const IS_UTF_8: &str = "The row is UTF-8, but the map names another encoding. Remove \"encoding\" \
                        from [formats], or write encoding = \"utf-8\".";
const OTHER_ENCODING: &str = "The row does not fit the encoding of the map. Correct [formats]. If \
                              the file is in a DOS code page, convert it: \
                              iconv -f CP850 -t UTF-8 FILE > NEW";

/// Whether Windows-1252 has no letter for one of these bytes, or DOS code pages have an umlaut
/// between two letters where Windows-1252 has a quotation mark.
fn is_dos(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| matches!(byte, 0x81 | 0x8d | 0x8f | 0x90 | 0x9d))
        || bytes.array_windows().any(|[before, byte, after]| {
            before.is_ascii_alphabetic()
                && matches!(byte, 0x84 | 0x94)
                && after.is_ascii_alphabetic()
        })
}

fn describe_encoding(line: &[u8]) -> &'static str {
    if is_dos(line) { DOS } else { WINDOWS_1252 }
}

/// The encoding of a CSV file that begins so, unless it is UTF-8.
pub fn guess_encoding(start: &[u8]) -> Option<&'static Encoding> {
    match start {
        [0xff, 0xfe, ..] | [_, 0, ..] => Some(UTF_16LE),
        [0xfe, 0xff, ..] | [0, ..] => Some(UTF_16BE),
        _ => match str::from_utf8(start) {
            // Without a length, the error is a letter that the end of `start` cuts.
            Err(error) if error.error_len().is_some() && !is_dos(start) => {
                Some(encoding_rs::WINDOWS_1252)
            }
            _ => None,
        },
    }
}

/// The date of a date whose time is midnight, such as `2023-05-01 00:00:00`.
pub(super) fn without_midnight(text: &str) -> &str {
    let is_time = |time: &str| {
        let time = time.trim_end_matches('Z');
        time.contains(':') && time.chars().all(|letter| matches!(letter, '0' | ':' | '.'))
    };
    if let Some((date, "12:00" | "12:00:00")) =
        text.strip_suffix(" AM").and_then(|text| text.rsplit_once(' '))
    {
        return date;
    }
    match text.rsplit_once([' ', 'T']) {
        Some((date, time)) if is_time(time) => date,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The place and the cells of all rows. A malformed row has the message as its only cell.
    fn rows(text: &[u8]) -> Vec<(u64, u64, Vec<String>)> {
        // A small buffer, so that rows span several chunks.
        let mut rows = CsvRows::new(io::BufReader::with_capacity(16, text), find_delimiter(text));
        let mut all = Vec::new();
        while let Some((Place { line, row }, cells)) = rows.next().unwrap() {
            all.push((line, row, cells.unwrap_or_else(|message| vec![message.to_owned()])));
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

    fn lines(text: &[u8]) -> Vec<(u64, Result<String, &'static str>)> {
        let mut lines = Lines::new(io::BufReader::with_capacity(7, text));
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next().unwrap() {
            all.push((number, line.map(str::to_owned)));
        }
        all
    }

    #[test]
    fn a_line_that_is_too_long_is_the_last() {
        let mut text = "\u{feff}a\r\n\n".as_bytes().to_vec();
        for length in [MAX_ROW, MAX_ROW + 1] {
            text.resize(text.len() + length, b'x');
            text.push(b'\n');
        }
        text.extend_from_slice(b"c");
        let lines = lines(&text);
        assert_eq!(lines[..2], [(1, Ok("a\r\n".to_owned())), (2, Ok("\n".to_owned()))]);
        assert_eq!(lines[2].1.as_ref().map(String::len), Ok(MAX_ROW + 1));
        assert_eq!(lines[3..], [(4, Err(TOO_LONG))]);
    }

    #[test]
    fn a_line_that_is_no_utf_8_is_the_last() {
        for text in [&b"a\nM\xfcller\nM\xfcller\n"[..], b"a\n\xc3\n\xa9\n"] {
            let lines = lines(text);
            assert_eq!(lines.last().unwrap().1, Err(WINDOWS_1252));
            assert!(lines.iter().rev().skip(1).all(|(_, line)| line.is_ok()), "{lines:?}");
        }
    }
}
