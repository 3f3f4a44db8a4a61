//! The workbooks of Excel (ECMA-376).

use std::collections::HashMap;
use std::mem;

use jiff::Span;
use jiff::civil::date;

use super::import::unsuitable;
use super::workbook::{
    Archive, MAX_SHEETS, Piece, Rows, attribute, date_cell, error_cell, no_value, number,
    number_cell,
};
use super::{Cell, ImportError, MAX_ROW};

pub(super) const WORKBOOK: &str = "xl/workbook.xml";

/// The maximum memory of the shared texts, and their maximum number.
const MAX_SHARED: usize = 96 << 20;
const MAX_TEXTS: usize = 8 << 20;
/// The maximum number of formats of cells. Excel has at most 65,490.
const MAX_FORMATS: usize = 100_000;

/// What the cells of a sheet refer to.
#[derive(Default)]
struct Context {
    /// All shared texts, concatenated.
    texts: String,
    /// Where each shared text ends, after the start of the first one.
    ends: Vec<usize>,
    /// The formats of cells.
    formats: Vec<NumberFormat>,
    /// Dates count from 1904, as on an old Mac.
    is_1904: bool,
}

/// How a cell shows a number.
#[derive(Clone, Copy)]
enum NumberFormat {
    /// As a date or a time.
    Date,
    /// With at least so many digits.
    Digits(usize),
}

impl NumberFormat {
    fn of(code: &str) -> NumberFormat {
        if is_date_format(code) {
            return NumberFormat::Date;
        }
        // `[Red][$-407]00000;@` shows numbers as `00000` does.
        let mut shown = code.split(';').next().unwrap_or_default();
        while let Some((_, rest)) = shown.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            shown = rest;
        }
        NumberFormat::Digits(if shown.bytes().all(|byte| byte == b'0') { shown.len() } else { 0 })
    }
}

/// A sheet: its name, the id of its part, and whether it is hidden.
type Sheet = (String, String, bool);

pub(super) fn read(archive: &mut Archive, rows: &mut Rows<'_>) -> Result<(), ImportError> {
    let mut context = Context::default();
    let sheets = context.read_workbook(archive)?;
    let parts = read_parts(archive)?;
    context.read_formats(archive)?;
    context.read_texts(archive)?;
    for (name, id, is_hidden) in sheets {
        let Some(part) = parts.get(&id) else { continue };
        if rows.wants(name, is_hidden) {
            context.read_sheet(archive, part, rows)?;
            if rows.is_complete() {
                break;
            }
        }
    }
    Ok(())
}

/// The part of each worksheet by its id.
fn read_parts(archive: &mut Archive) -> Result<HashMap<String, String>, ImportError> {
    let mut parts = HashMap::new();
    let Some(mut xml) = archive.open("xl/_rels/workbook.xml.rels")? else { return Ok(parts) };
    while let Some(piece) = xml.next()? {
        let Piece::Start(start) = piece else { continue };
        let kind = attribute(&start, "Type")?.unwrap_or_default();
        if parts.len() == MAX_SHEETS {
            break;
        }
        if let (Some(id), Some(target), true) =
            (attribute(&start, "Id")?, attribute(&start, "Target")?, kind.ends_with("/worksheet"))
        {
            let inside = format!("xl/{target}");
            parts.insert(id, target.strip_prefix('/').map_or(inside, str::to_owned));
        }
    }
    Ok(parts)
}

impl Context {
    /// Reads the names of the sheets in their order.
    fn read_workbook(&mut self, archive: &mut Archive) -> Result<Vec<Sheet>, ImportError> {
        let mut sheets = Vec::new();
        let Some(mut xml) = archive.open(WORKBOOK)? else { return Ok(sheets) };
        while let Some(piece) = xml.next()? {
            let Piece::Start(start) = piece else { continue };
            match start.local_name().as_ref() {
                "workbookPr" => {
                    let date1904 = attribute(&start, "date1904")?;
                    self.is_1904 = matches!(date1904.as_deref(), Some("1" | "true" | "on"));
                }
                "sheet" if sheets.len() < MAX_SHEETS => {
                    let state = attribute(&start, "state")?.unwrap_or_default();
                    let name = attribute(&start, "name")?.unwrap_or_default();
                    let id = attribute(&start, "id")?.unwrap_or_default();
                    sheets.push((name, id, state.to_ascii_lowercase().ends_with("hidden")));
                }
                _ => {}
            }
        }
        Ok(sheets)
    }

    fn read_formats(&mut self, archive: &mut Archive) -> Result<(), ImportError> {
        let Some(mut xml) = archive.open("xl/styles.xml")? else { return Ok(()) };
        let mut own_formats = HashMap::new();
        let mut is_in_cells = false;
        while let Some(piece) = xml.next()? {
            match piece {
                Piece::Start(start) => match start.local_name().as_ref() {
                    "numFmt" if own_formats.len() < MAX_FORMATS => {
                        let code = attribute(&start, "formatCode")?.unwrap_or_default();
                        own_formats.insert(number(&start, "numFmtId")?, NumberFormat::of(&code));
                    }
                    "cellXfs" => is_in_cells = true,
                    "xf" if is_in_cells && self.formats.len() < MAX_FORMATS => {
                        let id = number(&start, "numFmtId")?;
                        let known = match id {
                            Some(14..=22 | 27..=36 | 45..=47 | 50..=58) => NumberFormat::Date,
                            _ => NumberFormat::Digits(0),
                        };
                        self.formats.push(own_formats.get(&id).copied().unwrap_or(known));
                    }
                    _ => {}
                },
                Piece::End(end) if end.local_name().as_ref() == "cellXfs" => break,
                Piece::End(_) | Piece::Text(_) => {}
            }
        }
        Ok(())
    }

    fn read_texts(&mut self, archive: &mut Archive) -> Result<(), ImportError> {
        let Some(mut xml) = archive.open("xl/sharedStrings.xml")? else { return Ok(()) };
        let mut text = TextReader::default();
        self.ends.push(0);
        while let Some(piece) = xml.next()? {
            text.read(&piece)?;
            if let Piece::End(end) = &piece
                && end.local_name().as_ref() == "si"
            {
                self.texts += &unescape(&mem::take(&mut text.text));
                self.ends.push(self.texts.len());
                if self.texts.len() > MAX_SHARED || self.ends.len() > MAX_TEXTS {
                    return Err(unsuitable("the workbook has more than 96 MiB of texts; split it"));
                }
            }
        }
        Ok(())
    }

    fn shared_text(&self, index: &str) -> Option<&str> {
        let index: usize = index.trim().parse().ok()?;
        let [start, end, ..] = *self.ends.get(index..)? else { return None };
        self.texts.get(start..end)
    }

    fn read_sheet(
        &self,
        archive: &mut Archive,
        part: &str,
        rows: &mut Rows<'_>,
    ) -> Result<(), ImportError> {
        let Some(mut xml) = archive.open(part)? else { return Ok(()) };
        let (mut row, mut column, mut cell) = (0_usize, 0, OpenCell::default());
        while let Some(piece) = xml.next()? {
            cell.text.read(&piece)?;
            match piece {
                Piece::Start(start) => match start.local_name().as_ref() {
                    "row" => {
                        row = number(&start, "r")?.unwrap_or(row.saturating_add(1));
                        column = 0;
                    }
                    "c" => {
                        let place = attribute(&start, "r")?;
                        column = place.and_then(|place| column_index(&place)).unwrap_or(column);
                        cell.kind = attribute(&start, "t")?.unwrap_or_default();
                        cell.format = number(&start, "s")?.unwrap_or(0);
                    }
                    "f" => cell.is_formula = true,
                    _ => {}
                },
                Piece::End(end) => match end.local_name().as_ref() {
                    "c" => {
                        rows.set(column, self.cell(mem::take(&mut cell)));
                        column += 1;
                    }
                    "row" if !rows.end_row(row as u64, 1)? => return Ok(()),
                    "sheetData" => return Ok(()),
                    _ => {}
                },
                Piece::Text(_) => {}
            }
        }
        Ok(())
    }

    fn cell(&self, cell: OpenCell) -> Cell {
        let text = cell.text.text;
        match cell.kind.as_str() {
            _ if cell.is_formula && !cell.text.has_value => no_value(),
            "s" if text.is_empty() => Cell::Text(text),
            "s" => match self.shared_text(&text) {
                Some(text) => Cell::Text(text.to_owned()),
                None => {
                    Cell::Fault("invalid_row", "The workbook lacks the cell's text.".to_owned())
                }
            },
            "inlineStr" | "str" => Cell::Text(unescape(&text)),
            "e" => error_cell(&text),
            _ if text.trim().is_empty() && cell.is_formula => no_value(),
            _ if text.trim().is_empty() => Cell::Text(String::new()),
            "b" => Cell::Text((text.trim() == "1").to_string()),
            "d" => date_cell(text.trim()),
            _ => match self.formats.get(cell.format).copied().unwrap_or(NumberFormat::Digits(0)) {
                NumberFormat::Date => self.date(&text),
                NumberFormat::Digits(digits) => number_cell(&text, digits),
            },
        }
    }

    /// The date of a number of days.
    fn date(&self, text: &str) -> Cell {
        let Ok(days) = text.trim().parse::<f64>() else { return number_cell(text, 0) };
        let mut seconds = (days * 86_400.0).round();
        if self.is_1904 {
            seconds += 1_462.0 * 86_400.0;
        } else if days < 60.0 {
            // Excel has a 29 February 1900.
            seconds += 86_400.0;
        }
        let span = Span::new().try_seconds(seconds as i64);
        let start = date(1899, 12, 30).at(0, 0, 0, 0);
        match span.and_then(|span| start.checked_add(span)) {
            Ok(moment) if days >= 1.0 => date_cell(&moment.to_string()),
            _ => Cell::Fault("invalid_date", format!("The cell is a time or no date: {text}.")),
        }
    }
}

/// A cell of which a part is read.
#[derive(Default)]
struct OpenCell {
    kind: String,
    format: usize,
    is_formula: bool,
    text: TextReader,
}

/// Collects the texts of `t` and `v`, without phonetic hints.
#[derive(Default)]
struct TextReader {
    text: String,
    /// Whether there is a `v`.
    has_value: bool,
    is_inside: bool,
    is_hint: bool,
}

impl TextReader {
    fn read(&mut self, piece: &Piece<'_>) -> Result<(), ImportError> {
        match piece {
            Piece::Start(start) => match start.local_name().as_ref() {
                name @ ("t" | "v") => {
                    self.is_inside = !self.is_hint;
                    self.has_value |= name == "v";
                }
                "rPh" => self.is_hint = true,
                _ => {}
            },
            Piece::End(end) => match end.local_name().as_ref() {
                "t" | "v" => self.is_inside = false,
                "rPh" => self.is_hint = false,
                _ => {}
            },
            Piece::Text(text) if self.is_inside => {
                self.text += text;
                if self.text.len() > MAX_ROW {
                    return Err(unsuitable("a cell has more than 1 MiB"));
                }
            }
            Piece::Text(_) => {}
        }
        Ok(())
    }
}

/// Replaces escapes such as `_x000D_`, by which a workbook writes characters that XML cannot have.
fn unescape(text: &str) -> String {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("_x") {
        whole += before;
        let code = after.get(..4).filter(|_| after.get(4..5) == Some("_"));
        let code = code.filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
        if let Some(letter) = code.and_then(char::from_u32) {
            whole.push(letter);
            rest = after.get(5..).unwrap_or_default();
        } else {
            whole += "_x";
            rest = after;
        }
    }
    whole + rest
}

/// The column of a cell such as `AB12`, counted from 0.
fn column_index(place: &str) -> Option<usize> {
    let mut column = 0_usize;
    for letter in place.bytes().take_while(u8::is_ascii_alphabetic) {
        let digit = usize::from(letter.to_ascii_uppercase() - b'A' + 1);
        column = column.checked_mul(26)?.checked_add(digit)?;
    }
    column.checked_sub(1)
}

/// Whether a format of numbers, such as `yyyy-mm-dd;@`, shows a date or a time.
fn is_date_format(code: &str) -> bool {
    let mut letters = code.chars();
    let mut has_date = false;
    while let Some(letter) = letters.next() {
        match letter {
            // One literal character, or a space as wide as it.
            '\\' | '_' | '*' => drop(letters.next()),
            '"' => drop(letters.find(|letter| *letter == '"')),
            // A colour, a language, or a duration such as `[h]`.
            '[' => {
                let inside: String = letters.by_ref().take_while(|letter| *letter != ']').collect();
                has_date |= matches!(
                    inside.to_ascii_lowercase().as_str(),
                    "h" | "hh" | "m" | "mm" | "s" | "ss"
                );
            }
            'd' | 'D' | 'm' | 'M' | 'y' | 'Y' | 'h' | 'H' | 's' | 'S' => has_date = true,
            _ => {}
        }
    }
    has_date
}
