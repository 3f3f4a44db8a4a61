//! The export: a consistent snapshot of all records of a resource, ordered by id.

use std::io::{self, Seek as _, Write};
use std::path::Path;

use rust_xlsxwriter::{self as xlsx, ExcelDateTime, Workbook, Worksheet, XlsxError};
use tempfile::tempfile_in;

use super::Format;
use crate::model::custom::PREFIX;
use crate::model::{Kind, READ_ONLY, Resource, Value};
use crate::store::{DatabaseError, Record, TenantFile, explain};

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The target cannot be written.
    #[error("cannot write: {0}")]
    Unwritable(#[from] io::Error),
    /// The tenant's database failed.
    #[error("the tenant's file cannot be used: {0}")]
    File(String),
}

impl From<DatabaseError> for ExportError {
    fn from(error: DatabaseError) -> ExportError {
        ExportError::File(explain(&error))
    }
}

/// Writes all records of `resource` to `target` and returns their number. Calls `written` for each
/// record. A workbook grows in nameless files in `scratch`.
///
/// # Errors
///
/// [`ExportError`] if the database cannot be read or `target` cannot be written. `target` then
/// holds a part of the records.
pub fn export(
    file: &TenantFile,
    resource: &'static Resource,
    format: Format,
    target: impl Write,
    scratch: &Path,
    written: impl Fn(),
) -> Result<u64, ExportError> {
    match format {
        Format::Csv => write_csv(file, resource, target, written),
        Format::JsonLines => write_json_lines(file, resource, target, written),
        Format::Xlsx | Format::Ods => write_workbook(file, resource, target, scratch, written),
    }
}

/// The names of the columns, of which `custom` are the names of custom fields.
fn header(resource: &Resource, custom: &[String]) -> Vec<String> {
    let [id, timestamps @ ..] = READ_ONLY;
    let mut names = vec![id.to_owned()];
    for field in resource.fields.iter().filter(|field| field.kind != Kind::Custom) {
        names.push(field.name.to_owned());
    }
    names.extend(custom.iter().map(|name| format!("{PREFIX}{name}")));
    names.extend(timestamps.map(str::to_owned));
    names
}

fn write_csv(
    file: &TenantFile,
    resource: &'static Resource,
    target: impl Write,
    written: impl Fn(),
) -> Result<u64, ExportError> {
    let mut writer = csv::Writer::from_writer(target);
    let count = file.read(|reading| {
        let custom = reading.custom_names(resource)?;
        writer.write_record(header(resource, &custom)).map_err(io::Error::other)?;
        reading.each(resource, |record| {
            written();
            write_record(&mut writer, record, &custom).map_err(ExportError::from)
        })
    })?;
    writer.flush()?;
    Ok(count)
}

/// Writes one record. Text that begins with `=` is not escaped, so that an import restores it
/// exactly. The manual warns about opening such files in a spreadsheet.
fn write_record(
    writer: &mut csv::Writer<impl Write>,
    record: &Record,
    custom_names: &[String],
) -> io::Result<()> {
    let mut write = |cell: &str| writer.write_field(cell).map_err(io::Error::other);
    write(&record.id.0.to_string())?;
    for value in &record.values {
        match value {
            Value::Null => write("")?,
            Value::Integer(number) => write(&number.to_string())?,
            Value::Boolean(value) => write(if *value { "true" } else { "false" })?,
            Value::Text(text) => write(text)?,
            Value::Custom(custom) => {
                for name in custom_names {
                    write(custom.get(name).map_or("", String::as_str))?;
                }
            }
        }
    }
    write(&record.created_at.to_string())?;
    write(&record.updated_at.to_string())?;
    writer.write_record(None::<&[u8]>).map_err(io::Error::other)
}

fn write_json_lines(
    file: &TenantFile,
    resource: &'static Resource,
    mut target: impl Write,
    written: impl Fn(),
) -> Result<u64, ExportError> {
    let count = file.read(|reading| {
        reading.each(resource, |record| {
            written();
            target.write_all(&record.json(resource))?;
            target.write_all(b"\n").map_err(ExportError::from)
        })
    })?;
    target.flush()?;
    Ok(count)
}

fn write_workbook(
    file: &TenantFile,
    resource: &'static Resource,
    mut target: impl Write,
    scratch: &Path,
    written: impl Fn(),
) -> Result<u64, ExportError> {
    let mut workbook = Workbook::new();
    workbook.set_tempdir(scratch).map_err(io::Error::other)?;
    let sheet = workbook.add_worksheet_with_constant_memory().map_err(io::Error::other)?;
    let mut sheet = Sheet { sheet, row: 0, column: 0, text: text_format(), date: date_format() };
    let count = file.read(|reading| {
        let custom = reading.custom_names(resource)?;
        sheet.begin(resource, &custom).map_err(io::Error::other)?;
        reading.each(resource, |record| {
            written();
            sheet.write(resource, record, &custom).map_err(io::Error::other)?;
            Ok::<(), ExportError>(())
        })
    })?;
    sheet.end().map_err(io::Error::other)?;
    let mut whole = tempfile_in(scratch)?;
    workbook.save_to_writer(&mut whole).map_err(io::Error::other)?;
    whole.rewind()?;
    io::copy(&mut whole, &mut target)?;
    target.flush()?;
    Ok(count)
}

/// The sheet of an export. A cell is a text in the format "text", so that a spreadsheet keeps its
/// zeros, also when a person edits it. Only dates, booleans and small integers are values.
struct Sheet<'a> {
    sheet: &'a mut Worksheet,
    row: u32,
    column: u16,
    text: xlsx::Format,
    date: xlsx::Format,
}

fn text_format() -> xlsx::Format {
    xlsx::Format::new().set_num_format("@")
}

fn date_format() -> xlsx::Format {
    xlsx::Format::new().set_num_format("yyyy-mm-dd")
}

impl Sheet<'_> {
    /// Writes the header. It stays in view and has filters.
    fn begin(&mut self, resource: &Resource, custom: &[String]) -> Result<(), XlsxError> {
        self.sheet.set_name(resource.plural)?.set_freeze_panes(1, 0)?;
        for name in header(resource, custom) {
            let kind = resource.fields.iter().find(|field| field.name == name);
            match kind.map(|field| field.kind) {
                Some(Kind::Integer | Kind::Boolean) => {}
                Some(Kind::Date) => drop(self.sheet.set_column_format(self.column, &self.date)?),
                None if name == READ_ONLY[0] => {}
                _ => drop(self.sheet.set_column_format(self.column, &self.text)?),
            }
            let bold = text_format().set_bold();
            self.sheet.set_column_width(self.column, 20)?;
            self.sheet.write_string_with_format(0, self.column, name, &bold)?;
            self.column += 1;
        }
        Ok(())
    }

    fn write(
        &mut self,
        resource: &Resource,
        record: &Record,
        custom_names: &[String],
    ) -> Result<(), XlsxError> {
        (self.row, self.column) = (self.row + 1, 0);
        self.add_integer(record.id.0)?;
        for (field, value) in resource.fields.iter().zip(&record.values) {
            match value {
                Value::Null => self.column += 1,
                Value::Integer(number) => self.add_integer(*number)?,
                Value::Boolean(value) => {
                    self.sheet.write_boolean(self.row, self.column, *value)?;
                    self.column += 1;
                }
                Value::Text(text) if field.kind == Kind::Date => self.add_date(text)?,
                Value::Text(text) => self.add_text(text)?,
                Value::Custom(custom) => {
                    for name in custom_names {
                        self.add_text(custom.get(name).map_or("", String::as_str))?;
                    }
                }
            }
        }
        self.add_text(&record.created_at.to_string())?;
        self.add_text(&record.updated_at.to_string())
    }

    fn add_text(&mut self, text: &str) -> Result<(), XlsxError> {
        if !text.is_empty() {
            self.sheet.write_string_with_format(self.row, self.column, text, &self.text)?;
        }
        self.column += 1;
        Ok(())
    }

    /// A spreadsheet keeps 15 digits of a number.
    fn add_integer(&mut self, number: i64) -> Result<(), XlsxError> {
        if number.unsigned_abs() >= 1_000_000_000_000_000 {
            return self.add_text(&number.to_string());
        }
        self.sheet.write_number(self.row, self.column, number as f64)?;
        self.column += 1;
        Ok(())
    }

    /// Before March 1900, the dates of spreadsheet programs differ.
    fn add_date(&mut self, text: &str) -> Result<(), XlsxError> {
        match ExcelDateTime::parse_from_str(text) {
            Ok(date) if text >= "1900-03-01" => {
                self.sheet.write_datetime_with_format(self.row, self.column, &date, &self.date)?;
                self.column += 1;
                Ok(())
            }
            _ => self.add_text(text),
        }
    }

    /// Adds the filters, once the number of rows is known.
    fn end(&mut self) -> Result<(), XlsxError> {
        self.sheet.autofilter(0, 0, self.row, self.column.saturating_sub(1))?;
        Ok(())
    }
}
