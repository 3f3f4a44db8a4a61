//! Workbooks. The crate calamine reads the cells of a sheet. It keeps shared texts, names and
//! styles in memory without limits, and a small file can be huge once it is decompressed. So it runs
//! in a process of its own, with limits of memory and processor time, and writes the rows to a file.
//! A fault of the library ends only that process, and no transaction is open while it works.

use std::collections::VecDeque;
use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;

use calamine::{
    DataRef, DataType as _, Reader as _, Sheet, SheetType, SheetVisible, Style, Xlsx, XlsxError,
};
use jiff::SignedDuration;
use jiff::civil::date;
use memchr::{memmem, memrchr};
use rustix::process::{Resource, Rlimit, setrlimit};
use tempfile::tempfile_in;
use zip::ZipArchive;

use super::csv::{recognize, without_midnight};
use super::{Cell, InputRow, MAX_COLUMNS, MAX_ROW, Place, TakeRow, TransferError, unsuitable};
use crate::model::validation::shorten;
use crate::words;

/// The limits of the process that reads a workbook.
const MAX_MEMORY: u64 = 300 << 20;
const MAX_SECONDS: u64 = 60;

/// The maximum size of all parts, decompressed, and of the rows. 300,000 rows of 14 columns have
/// about 500 MB.
const MAX_BYTES: u64 = 1 << 30;

/// A row as a line of JSON: its number, from 1, and its cells, or the message about it.
type Line = (u64, Result<Vec<Cell>, String>);

/// A note for the operator, or why the workbook is not read.
type Verdict = Result<Option<String>, String>;

/// Runs `reader`, a command that calls [`write_rows`] on its standard input, and writes the verdict
/// to standard error as JSON. Returns the rows and the note. `scratch` is a directory for the rows.
pub fn read_apart(
    reader: &[String],
    workbook: File,
    scratch: &Path,
) -> Result<(File, Option<String>), TransferError> {
    const TOO_LARGE: &str = "the workbook needs more than 300 MiB of memory or 60 s to read; split \
                             it, or save its sheet as CSV";
    let mut rows = tempfile_in(scratch)?;
    let mut command = Command::new(env::current_exe()?);
    let output = command.args(reader).stdin(workbook).stdout(rows.try_clone()?).output()?;
    let verdict = match output.status.code() {
        Some(0) => serde_json::from_slice(&output.stderr).map_err(|error| error.to_string()),
        Some(_) => Err(damaged("it cannot be parsed")),
        None => Err(TOO_LARGE.to_owned()),
    };
    let note = verdict.and_then(|verdict: Verdict| verdict).map_err(unsuitable)?;
    rows.rewind()?;
    Ok((rows, note))
}

/// Limits this process for [`write_rows`].
pub fn limit_process() -> io::Result<()> {
    let limits = [(Resource::As, MAX_MEMORY), (Resource::Cpu, MAX_SECONDS), (Resource::Core, 0)];
    for (resource, limit) in limits {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Ok(())
}

/// Hands on the rows that [`write_rows`] has written.
pub(super) fn read_rows(
    mut input: impl BufRead,
    take: &mut TakeRow<'_>,
) -> Result<(), TransferError> {
    let (mut text, mut place) = (Vec::new(), Place::default());
    loop {
        text.clear();
        if input.read_until(b'\n', &mut text)? == 0 {
            return Ok(());
        }
        let Ok((row, cells)) = serde_json::from_slice::<Line>(&text) else {
            // A draft reads only the start of the rows.
            take(place, Err("The rows after this one are lost. Import again.".to_owned()))?;
            return Ok(());
        };
        place.row = row;
        if !take(place, cells.map(InputRow::Cells))? {
            return Ok(());
        }
    }
}

struct LineWriter<W> {
    output: W,
    left: u64,
}

impl<W: Write> LineWriter<W> {
    fn write(&mut self, line: &Line) -> Result<(), String> {
        let mut text = serde_json::to_vec(line).map_err(not_kept)?;
        text.push(b'\n');
        self.left = self
            .left
            .checked_sub(text.len() as u64)
            .ok_or("the sheet has more than 1 GiB of text; split it")?;
        self.output.write_all(&text).map_err(not_kept)
    }
}

fn not_kept(error: impl std::fmt::Display) -> String {
    format!("the rows of the workbook cannot be kept: {error}")
}

fn damaged(error: impl std::fmt::Display) -> String {
    format!(
        "the workbook is damaged, or unusual: {error}; open it in a spreadsheet program, and save it"
    )
}

/// Writes the rows of the sheet `name`, or of the first visible sheet that has any.
pub fn write_rows(
    mut workbook: impl Read + Seek,
    name: Option<&str>,
    output: impl Write,
) -> Verdict {
    check_kind(&mut workbook)?;
    let has_formulas = check_parts(&mut workbook)?;
    let mut workbook = Xlsx::new(BufReader::new(workbook)).map_err(damaged)?;
    let mut lines = LineWriter { output, left: MAX_BYTES };
    let mut sheets: Vec<Sheet> = workbook.sheets_metadata().to_vec();
    sheets.retain(|sheet| sheet.typ == SheetType::WorkSheet);
    if let Some(name) = name
        && sheets.iter().all(|sheet| sheet.name != name)
    {
        let known: Vec<_> = sheets.iter().map(|sheet| shorten(&sheet.name)).collect();
        let message = words::unknown("sheet", name, known.iter().map(AsRef::as_ref));
        return Err(message.trim_end_matches('.').to_owned());
    }
    let is_hidden = |sheet: &Sheet| sheet.visible != SheetVisible::Visible;
    let mut filled: Vec<String> = Vec::new();
    for sheet in &sheets {
        if name.map_or(is_hidden(sheet), |name| name != sheet.name) {
            continue;
        }
        let has_rows = match filled.is_empty() {
            true => write_sheet(&mut workbook, &sheet.name, has_formulas, &mut lines)?,
            // A fault of another sheet does no harm.
            false => has_rows(&mut workbook, &sheet.name).unwrap_or(false),
        };
        if has_rows {
            filled.push(format!("{:?}", shorten(&sheet.name)));
        }
    }
    lines.output.flush().map_err(not_kept)?;
    match filled.as_slice() {
        [] if name.is_none() && sheets.iter().any(is_hidden) => {
            Err("only hidden sheets have rows; name one with --sheet".to_owned())
        }
        [read, others @ ..] if name.is_none() && !others.is_empty() => Ok(Some(format!(
            "Only the sheet {read} is read. Others have rows, too: {}. --sheet names the one to \
             read.",
            others.join(", ")
        ))),
        _ => Ok(None),
    }
}

/// Returns what the file is, unless it is a zip archive.
fn check_kind(workbook: &mut (impl Read + Seek)) -> Result<(), String> {
    let mut start = Vec::new();
    workbook
        .rewind()
        .and_then(|()| workbook.take(512).read_to_end(&mut start))
        .map_err(|error| format!("the workbook cannot be read: {error}"))?;
    if start.starts_with(b"PK") {
        return Ok(());
    }
    let kind =
        recognize(&start).unwrap_or("it seems to be text. Let its name end in .csv or .jsonl");
    Err(format!("the file is no workbook: {kind}").trim_end_matches('.').to_owned())
}

/// A part is searched in pieces of so many bytes.
const WINDOW: u64 = 64 * 1024;

/// Reads every part to its end, because calamine does not: only there, its checksum is compared.
/// Returns whether a part may have formulas.
fn check_parts(workbook: &mut (impl Read + Seek)) -> Result<bool, String> {
    workbook.seek(SeekFrom::Start(0)).map_err(damaged)?;
    let mut archive = ZipArchive::new(BufReader::new(workbook)).map_err(damaged)?;
    let (mut left, mut has_formulas) = (MAX_BYTES, false);
    for index in 0..archive.len() {
        let mut part = archive.by_index(index).map_err(damaged)?;
        let name = String::from_utf8_lossy(part.name_raw()).to_ascii_lowercase();
        let cure = "open it, and save it as .xlsx";
        match name.rsplit(['/', '\\']).next() {
            Some("content.xml") => return Err(format!("the file is an .ods workbook; {cure}")),
            Some("workbook.bin") => return Err(format!("the file is an .xlsb workbook; {cure}")),
            _ => {}
        }
        let mut window = Vec::with_capacity(2 * WINDOW as usize);
        loop {
            let read = (&mut part).take(WINDOW).read_to_end(&mut window);
            let read = read.map_err(|error| damaged(format!("{name}: {error}")))?;
            if read == 0 {
                break;
            }
            left =
                left.checked_sub(read as u64).ok_or_else(|| damaged("it has more than 1 GiB"))?;
            if name.ends_with(".xml") && has_marked_value(&window) {
                return Err(damaged(format!("{name}: a value of a cell has other XML in it")));
            }
            has_formulas = has_formulas || has_formula(&window);
            window.drain(..window.len().saturating_sub(WINDOW as usize));
        }
    }
    Ok(has_formulas)
}

/// Whether there is an element `f`.
fn has_formula(xml: &[u8]) -> bool {
    [&b"f>"[..], b"f/", b"f ", b"f\n", b"f\r", b"f\t"].iter().any(|end| {
        memmem::find_iter(xml, end).any(|at| {
            at.checked_sub(1).and_then(|at| xml.get(at)).is_some_and(|b| b"<:".contains(b))
        })
    })
}

/// Whether the value of a cell, `<v>`, has a CDATA section or a comment. calamine would leave out a
/// part of the value.
fn has_marked_value(xml: &[u8]) -> bool {
    memmem::find_iter(xml, b"<!").any(|at| {
        let before = xml.get(..at).unwrap_or_default();
        let tag = memrchr(b'<', before).and_then(|start| before.get(start + 1..));
        let name = tag.and_then(|tag| tag.split(|byte| matches!(byte, b' ' | b'>')).next());
        name.is_some_and(|name| name == b"v" || name.ends_with(b":v"))
    })
}

type Workbook<R> = Xlsx<BufReader<R>>;

fn has_rows<R: Read + Seek>(workbook: &mut Workbook<R>, name: &str) -> Result<bool, XlsxError> {
    let mut cells = workbook.worksheet_cells_reader(name)?;
    while let Some(cell) = cells.next_cell()? {
        if !is_blank(cell.get_value()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_blank(value: &DataRef<'_>) -> bool {
    value.get_string().map_or(value.is_empty(), |text| text.trim().is_empty())
}

/// Writes the rows of a sheet. Returns whether it has any.
fn write_sheet<R: Read + Seek>(
    workbook: &mut Workbook<R>,
    name: &str,
    has_formulas: bool,
    lines: &mut LineWriter<impl Write>,
) -> Result<bool, String> {
    let is_1904 = workbook.has_1904_epoch();
    // A second parse of the sheet takes as long as the first.
    let mut valueless = match has_formulas {
        true => valueless_formulas(workbook, name).map_err(damaged)?,
        false => VecDeque::new(),
    };
    let mut cells = workbook.worksheet_cells_reader(name).map_err(damaged)?;
    let formats: Vec<_> = cells.styles().iter().map(NumberFormat::of).collect();
    let (mut row, mut has_rows) = (OpenRow::default(), false);
    for index in 0_u64.. {
        let next = cells.next_cell_with_style_id();
        let next = next.map_err(|error| fault_of_cell(error, row.number))?;
        let Some((cell, style)) = next else { break };
        let (number, column) = cell.get_position();
        if number != row.number {
            has_rows |= row.write(lines)?;
            row.number = number;
        }
        match cell.get_value() {
            _ if valueless.pop_front_if(|formula| *formula == index).is_some() => {
                row.set(column, NO_VALUE.len(), || Cell::Fault(NO_VALUE.to_owned()));
            }
            value if is_blank(value) => {}
            DataRef::Float(_) if style > 0 && style >= formats.len() => {
                return Err(damaged("it lacks the formats of its cells"));
            }
            value => {
                let format = formats.get(style).copied().unwrap_or_default();
                let size = value.get_string().map_or(MAX_DIGITS, str::len);
                row.set(column, size, || cell_of(value, format, is_1904));
            }
        }
    }
    has_rows |= row.write(lines)?;
    Ok(has_rows)
}

const NO_VALUE: &str = "The cell has a formula without a stored value. Open the file in a \
                        spreadsheet program, and save it.";

/// The numbers in the sheet, from 0, of the formulas that no program has computed.
fn valueless_formulas<R: Read + Seek>(
    workbook: &mut Workbook<R>,
    name: &str,
) -> Result<VecDeque<u64>, XlsxError> {
    let mut found = VecDeque::new();
    let mut cells = workbook.worksheet_cells_reader(name)?;
    // `write_sheet` meets the same error, and names the row.
    for index in 0_u64.. {
        let Ok(Some(cell)) = cells.next_cell_with_formula_metadata() else { break };
        if cell.formula.is_some() && cell.value == DataRef::Empty {
            found.push_back(index);
        }
    }
    Ok(found)
}

/// The message about a cell that calamine does not read. `row` is that of the cell before it.
fn fault_of_cell(error: XlsxError, row: u32) -> String {
    let row = row + 1;
    match error {
        // Such as `#SPILL!`.
        XlsxError::CellError(error) => {
            format!("a cell in row {row} or below has the error {}; correct it", shorten(&error))
        }
        error => damaged(format!("in row {row} or below: {error}")),
    }
}

/// A row of which a part is read.
#[derive(Default)]
struct OpenRow {
    /// Counted from 0.
    number: u32,
    cells: Vec<Cell>,
    /// The size of the texts, also of those that are not kept.
    size: usize,
    is_too_wide: bool,
}

impl OpenRow {
    /// Sets a cell of `size` bytes, unless the row becomes too large.
    fn set(&mut self, column: u32, size: usize, cell: impl FnOnce() -> Cell) {
        let index = column as usize;
        self.size = self.size.saturating_add(size);
        self.is_too_wide |= index >= MAX_COLUMNS;
        if self.is_too_wide || self.size > MAX_ROW {
            return;
        }
        if self.cells.len() <= index {
            self.cells.resize(index + 1, Cell::default());
        }
        if let Some(place) = self.cells.get_mut(index) {
            *place = cell();
        }
    }

    /// Writes the row, unless it is empty. Returns whether it is not.
    fn write(&mut self, lines: &mut LineWriter<impl Write>) -> Result<bool, String> {
        let OpenRow { number, cells, size, is_too_wide } = std::mem::take(self);
        if size == 0 {
            return Ok(false);
        }
        let cells = if is_too_wide {
            Err(format!("The row has more than {MAX_COLUMNS} columns."))
        } else if size > MAX_ROW {
            Err("The row has more than 1 MiB.".to_owned())
        } else {
            Ok(cells)
        };
        lines.write(&(u64::from(number) + 1, cells))?;
        Ok(true)
    }
}

/// How a cell shows a whole number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NumberFormat {
    /// With at least so many digits.
    digits: usize,
    /// With other characters before, between or after the digits.
    is_decorated: bool,
}

/// A format of numbers has at most so many characters.
const MAX_DIGITS: usize = 255;

impl NumberFormat {
    /// Reads the first section of a code such as `[Red]00000;@` or `"C-"0000`.
    fn of(style: &Style) -> NumberFormat {
        let code = style.number_format.as_ref().map_or("", |format| &format.format_code);
        let (mut shown, mut digits) = (String::new(), 0);
        let mut letters = code.chars();
        while let Some(letter) = letters.next() {
            match letter {
                ';' => break,
                '0' => {
                    digits += 1;
                    shown.push('0');
                }
                // A character of which only the width is shown.
                '_' | '*' => drop(letters.next()),
                '\\' => shown.extend(letters.next()),
                '"' => shown.extend(letters.by_ref().take_while(|letter| *letter != '"')),
                '[' => {
                    // A colour or a language. `[$€-407]` is a currency.
                    let inside: String = letters.by_ref().take_while(|l| *l != ']').collect();
                    let currency = inside.strip_prefix('$').and_then(|c| c.split('-').next());
                    shown.extend(currency);
                }
                // Digits that depend on the number.
                '#' | '?' | '.' | ',' | '%' | '/' | '@' | 'E' => return NumberFormat::default(),
                letter => shown.push(letter),
            }
        }
        let is_decorated = digits > 0 && shown.trim().chars().any(|letter| letter != '0');
        let digits = if is_decorated || digits > MAX_DIGITS { 0 } else { digits };
        NumberFormat { digits, is_decorated }
    }
}

fn cell_of(value: &DataRef<'_>, format: NumberFormat, is_1904: bool) -> Cell {
    match value {
        DataRef::Int(number) => number_cell(*number as f64, format),
        DataRef::Float(number) => number_cell(*number, format),
        DataRef::Bool(value) => Cell::Text(value.to_string()),
        DataRef::DateTime(moment) => moment_cell(moment.as_f64(), moment.is_duration(), is_1904),
        DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => {
            Cell::Text(without_midnight(text.trim()).to_owned())
        }
        DataRef::Error(error) => {
            Cell::Fault(format!("The cell has the error {error}. Correct it."))
        }
        DataRef::String(text) => Cell::Text(text.clone()),
        DataRef::SharedString(text) => Cell::Text((*text).to_owned()),
        DataRef::Empty => Cell::default(),
    }
}

/// A number with the 15 significant digits that spreadsheets show, in decimal. Example: they store
/// 4.35 * 100 as 434.99999999999994.
fn number_cell(number: f64, NumberFormat { digits, is_decorated }: NumberFormat) -> Cell {
    match format!("{number:.14e}").parse::<f64>() {
        // Without a sign of zero.
        Ok(number) if number.is_finite() => {
            Cell::Number { text: (number + 0.0).to_string(), digits, is_decorated }
        }
        _ => Cell::Fault("The cell has no number that a spreadsheet can show.".to_owned()),
    }
}

/// A date, a date with a time, a time, or a duration, from a number of days.
fn moment_cell(days: f64, is_duration: bool, is_1904: bool) -> Cell {
    let seconds = (days * 86_400.0).round();
    // The dates of a 1904 workbook begin with the day 0.
    if is_duration || (0.0..1.0).contains(&days) && !(is_1904 && seconds == 0.0) {
        let (sign, seconds) = (if seconds < 0.0 { "-" } else { "" }, seconds.abs() as u64);
        let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
        return Cell::Text(format!("{sign}{hours:02}:{minutes:02}:{:02}", seconds % 60));
    }
    let first = match is_1904 {
        true => date(1904, 1, 1),
        // Excel has a 29 February 1900.
        false if days < 60.0 => date(1899, 12, 31),
        false => date(1899, 12, 30),
    };
    let moment = first.at(0, 0, 0, 0).checked_add(SignedDuration::from_secs(seconds as i64));
    match moment {
        Ok(moment) if days >= 0.0 => Cell::Text(without_midnight(&moment.to_string()).to_owned()),
        _ => Cell::Fault(format!("The cell is the date of the number {days}, which is none.")),
    }
}
