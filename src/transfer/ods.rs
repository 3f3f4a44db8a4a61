//! The workbooks of LibreOffice (OpenDocument).

use std::collections::HashSet;
use std::mem;

use quick_xml::events::BytesStart;

use super::import::{MAX_COLUMNS, unsuitable};
use super::workbook::{
    Archive, MAX_SHEETS, Piece, Rows, attribute, date_cell, error_cell, no_value, number,
    number_cell,
};
use super::{Cell, ImportError, MAX_ROW};

pub(super) const CONTENT: &str = "content.xml";

pub(super) fn read(archive: &mut Archive, rows: &mut Rows<'_>) -> Result<(), ImportError> {
    if let Some(mut xml) = archive.open("META-INF/manifest.xml")? {
        while let Some(piece) = xml.next()? {
            if let Piece::Start(start) = piece
                && start.local_name().as_ref() == "encryption-data"
            {
                let message = "the workbook has a password; open it, and save it without one";
                return Err(unsuitable(message));
            }
        }
    }
    let Some(mut xml) = archive.open(CONTENT)? else { return Ok(()) };
    let mut reader = OdsReader::default();
    while let Some(piece) = xml.next()? {
        if !reader.read(&piece, rows)? {
            break;
        }
    }
    Ok(())
}

#[derive(Default)]
struct OdsReader {
    /// The style of which the properties are read, and the styles of hidden sheets.
    style: String,
    hidden_styles: HashSet<String>,
    is_wanted: bool,
    row: u64,
    row_repeats: u64,
    column: usize,
    cell: OpenCell,
    /// The depth in a comment or a drawing, whose paragraphs do not belong to the cell.
    foreign: usize,
}

/// A cell of which a part is read.
#[derive(Default)]
struct OpenCell {
    repeats: usize,
    /// Whether a merged cell hides it.
    is_covered: bool,
    kind: String,
    /// The value of an attribute. Texts have their paragraphs.
    value: Option<String>,
    text: String,
    paragraphs: usize,
    is_in_paragraph: bool,
    is_formula: bool,
    is_error: bool,
}

impl OdsReader {
    /// Reads a piece of the content. Returns whether to go on.
    fn read(&mut self, piece: &Piece<'_>, rows: &mut Rows<'_>) -> Result<bool, ImportError> {
        match piece {
            Piece::Start(start) => self.start(start, rows)?,
            Piece::Text(text) if self.cell.is_in_paragraph && self.foreign == 0 => {
                self.cell.text += text;
            }
            Piece::End(end) => return self.end(end.local_name().as_ref(), rows),
            _ => {}
        }
        if self.cell.text.len() > MAX_ROW {
            return Err(unsuitable("a cell has more than 1 MiB"));
        }
        Ok(true)
    }

    fn start(&mut self, start: &BytesStart<'_>, rows: &mut Rows<'_>) -> Result<(), ImportError> {
        let is_drawing = start.name().prefix().is_some_and(|prefix| prefix.as_ref() == "draw");
        match start.local_name().as_ref() {
            name if self.foreign > 0 || is_drawing || name == "annotation" => self.foreign += 1,
            "style" => self.style = attribute(start, "name")?.unwrap_or_default(),
            "table-properties"
                if self.hidden_styles.len() < MAX_SHEETS
                    && attribute(start, "display")?.as_deref() == Some("false") =>
            {
                self.hidden_styles.insert(mem::take(&mut self.style));
            }
            "table" => {
                let style = attribute(start, "style-name")?.unwrap_or_default();
                let name = attribute(start, "name")?.unwrap_or_default();
                self.is_wanted = rows.wants(name, self.hidden_styles.contains(&style));
                self.row = 1;
            }
            "table-row" => {
                self.row_repeats = number(start, "number-rows-repeated")?.unwrap_or(1) as u64;
                self.column = 0;
            }
            "table-cell" | "covered-table-cell" => self.cell = OpenCell::new(start)?,
            "p" => {
                if self.cell.paragraphs > 0 {
                    self.cell.text.push('\n');
                }
                self.cell.paragraphs += 1;
                self.cell.is_in_paragraph = true;
            }
            "s" => {
                let count = number(start, "c")?.unwrap_or(1).min(MAX_ROW);
                self.cell.text += &" ".repeat(count);
            }
            "tab" => self.cell.text.push('\t'),
            "line-break" => self.cell.text.push('\n'),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, name: &str, rows: &mut Rows<'_>) -> Result<bool, ImportError> {
        match name {
            _ if self.foreign > 0 => self.foreign -= 1,
            "p" => self.cell.is_in_paragraph = false,
            "table-cell" | "covered-table-cell" => {
                let cell = mem::take(&mut self.cell);
                let next = self.column.saturating_add(cell.repeats);
                let cell = cell.finish();
                if self.is_wanted && !cell.text().is_empty() {
                    // One column more than a row may have, so that the row is reported.
                    for index in self.column.min(MAX_COLUMNS)..next.min(MAX_COLUMNS + 1) {
                        rows.set(index, cell.clone());
                    }
                }
                self.column = next;
            }
            "table-row" if self.is_wanted => {
                let first = self.row;
                self.row = first.saturating_add(self.row_repeats);
                self.is_wanted = rows.end_row(first, self.row_repeats)?;
            }
            "table" => return Ok(!rows.is_complete()),
            _ => {}
        }
        Ok(true)
    }
}

impl OpenCell {
    fn new(start: &BytesStart<'_>) -> Result<OpenCell, ImportError> {
        let is_covered = start.local_name().as_ref() == "covered-table-cell";
        let mut cell = OpenCell { repeats: 1, is_covered, ..OpenCell::default() };
        if let Some(repeats) = number(start, "number-columns-repeated")? {
            cell.repeats = repeats;
        }
        // LibreOffice writes the type of a cell twice, and only the second one can be an error.
        cell.is_error = start.attributes_raw().contains("value-type=\"error\"");
        cell.kind = attribute(start, "value-type")?.unwrap_or_default();
        for name in ["value", "date-value", "boolean-value", "string-value"] {
            cell.value = cell.value.or(attribute(start, name)?);
        }
        cell.is_formula = attribute(start, "formula")?.is_some();
        Ok(cell)
    }

    fn finish(self) -> Cell {
        let value = self.value.as_deref().unwrap_or_default();
        match self.kind.as_str() {
            _ if self.is_covered => Cell::default(),
            _ if self.is_error => error_cell(&self.text),
            "string" if self.paragraphs > 0 => Cell::Text(self.text),
            "string" => Cell::Text(value.to_owned()),
            "float" | "percentage" | "currency" => {
                let is_integer = self.text.bytes().all(|byte| byte.is_ascii_digit());
                number_cell(value, if is_integer { self.text.len() } else { 0 })
            }
            "boolean" => Cell::Text(value.to_ascii_lowercase()),
            "date" => date_cell(value),
            "time" => date_cell(&format!("{}T1", self.text)),
            // LibreOffice writes an empty paragraph for an empty text.
            _ if self.is_formula && self.paragraphs == 0 => no_value(),
            _ => Cell::Text(self.text),
        }
    }
}
