//! The export: a consistent snapshot of all records of a resource, ordered by id.

use std::borrow::Cow;
use std::io::{self, Seek as _, Write};
use std::path::Path;

use rust_xlsxwriter::{self as xlsx, ExcelDateTime, Workbook, Worksheet, XlsxError};
use tempfile::tempfile_in;

use super::FileFormat;
use crate::model::custom::PREFIX;
use crate::model::{CREATED_AT, ID, Kind, Resource, UPDATED_AT, Value};
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
    format: FileFormat,
    target: impl Write,
    scratch: &Path,
    written: impl Fn(),
) -> Result<u64, ExportError> {
    match format {
        FileFormat::Csv => write_csv(file, resource, target, written),
        FileFormat::JsonLines => write_json_lines(file, resource, target, written),
        FileFormat::Xlsx => write_workbook(file, resource, target, scratch, written),
    }
}

/// The names and kinds of the columns. `custom` are the names of custom fields.
fn columns(resource: &Resource, custom: &[String]) -> Vec<(String, Kind)> {
    let mut columns = Vec::new();
    for field in [&ID].into_iter().chain(resource.fields).chain([&CREATED_AT, &UPDATED_AT]) {
        if field.kind == Kind::Custom {
            columns.extend(custom.iter().map(|name| (format!("{PREFIX}{name}"), field.kind)));
        } else {
            columns.push((field.name.to_owned(), field.kind));
        }
    }
    columns
}

enum ExportCell<'a> {
    /// A text, or nothing.
    Text(Cow<'a, str>),
    Date(&'a str),
    Integer(i64),
    Boolean(bool),
}

/// The cells of a record, in the order of the [`columns`].
fn cells<'a>(
    resource: &Resource,
    record: &'a Record,
    custom_names: &[String],
) -> Vec<ExportCell<'a>> {
    let mut cells = vec![ExportCell::Integer(record.id.0)];
    for (field, value) in resource.fields.iter().zip(&record.values) {
        match value {
            Value::Null => cells.push(ExportCell::Text("".into())),
            Value::Integer(number) => cells.push(ExportCell::Integer(*number)),
            Value::Boolean(value) => cells.push(ExportCell::Boolean(*value)),
            Value::Text(text) if field.kind == Kind::Date => cells.push(ExportCell::Date(text)),
            Value::Text(text) => cells.push(ExportCell::Text(text.into())),
            Value::Custom(custom) => {
                for name in custom_names {
                    let text = custom.get(name).map_or("", String::as_str);
                    cells.push(ExportCell::Text(text.into()));
                }
            }
        }
    }
    for time in [record.created_at, record.updated_at] {
        cells.push(ExportCell::Text(time.to_string().into()));
    }
    cells
}

/// Text that begins with `=` is not escaped, so that an import restores it exactly. `operations.md`
/// warns of a spreadsheet that opens such a file.
fn write_csv(
    file: &TenantFile,
    resource: &'static Resource,
    target: impl Write,
    written: impl Fn(),
) -> Result<u64, ExportError> {
    let mut writer = csv::Writer::from_writer(target);
    let count = file.read(|reading| {
        let custom = reading.custom_names(resource)?;
        let names = columns(resource, &custom).into_iter().map(|(name, _)| name);
        writer.write_record(names).map_err(io::Error::other)?;
        reading.each(resource, |record| {
            written();
            for cell in cells(resource, record, &custom) {
                let written = match cell {
                    ExportCell::Text(text) => writer.write_field(text.as_bytes()),
                    ExportCell::Date(date) => writer.write_field(date),
                    ExportCell::Integer(number) => writer.write_field(number.to_string()),
                    ExportCell::Boolean(value) => writer.write_field(value.to_string()),
                };
                written.map_err(io::Error::other)?;
            }
            writer.write_record(None::<&[u8]>).map_err(io::Error::other)?;
            Ok::<(), ExportError>(())
        })
    })?;
    writer.flush()?;
    Ok(count)
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
    let mut sheet = Sheet {
        sheet,
        row: 0,
        text: xlsx::Format::new().set_num_format("@"),
        date: xlsx::Format::new().set_num_format("yyyy-mm-dd"),
    };
    let count = file.read(|reading| {
        let custom = reading.custom_names(resource)?;
        let columns = columns(resource, &custom);
        sheet.begin(resource.plural, &columns).map_err(io::Error::other)?;
        let count = reading.each(resource, |record| {
            written();
            sheet.write(cells(resource, record, &custom)).map_err(io::Error::other)?;
            Ok::<(), ExportError>(())
        })?;
        sheet.end(columns.len()).map_err(io::Error::other)?;
        Ok::<u64, ExportError>(count)
    })?;
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
    /// The last row, counted from 0.
    row: u32,
    text: xlsx::Format,
    date: xlsx::Format,
}

impl Sheet<'_> {
    /// Writes the header. It stays in view and has filters.
    fn begin(&mut self, name: &str, header: &[(String, Kind)]) -> Result<(), XlsxError> {
        let Sheet { sheet, text, date, .. } = self;
        sheet.set_name(name)?.set_freeze_panes(1, 0)?;
        let bold = text.clone().set_bold();
        for (column, (name, kind)) in (0..).zip(header) {
            match kind {
                Kind::Integer | Kind::Boolean => {}
                Kind::Date => drop(sheet.set_column_format(column, date)?),
                _ => drop(sheet.set_column_format(column, text)?),
            }
            sheet.set_column_width(column, 20)?;
            sheet.write_string_with_format(0, column, name, &bold)?;
        }
        Ok(())
    }

    fn write(&mut self, cells: Vec<ExportCell<'_>>) -> Result<(), XlsxError> {
        /// A spreadsheet keeps 15 digits of a number.
        const TOO_LARGE: u64 = 1_000_000_000_000_000;
        self.row += 1;
        let Sheet { sheet, row, text: format, date: date_format } = self;
        for (column, cell) in (0..).zip(cells) {
            match cell {
                ExportCell::Text(text) if text.is_empty() => continue,
                ExportCell::Text(text) => {
                    sheet.write_string_with_format(*row, column, text, format)?
                }
                // Before March 1900, the dates of spreadsheet programs differ.
                ExportCell::Date(text) => match ExcelDateTime::parse_from_str(text) {
                    Ok(date) if text >= "1900-03-01" => {
                        sheet.write_datetime_with_format(*row, column, &date, date_format)?
                    }
                    _ => sheet.write_string_with_format(*row, column, text, format)?,
                },
                ExportCell::Integer(number) if number.unsigned_abs() >= TOO_LARGE => {
                    sheet.write_string_with_format(*row, column, number.to_string(), format)?
                }
                ExportCell::Integer(number) => sheet.write_number(*row, column, number as f64)?,
                ExportCell::Boolean(value) => sheet.write_boolean(*row, column, value)?,
            };
        }
        Ok(())
    }

    /// Adds the filters, once the number of rows is known.
    fn end(&mut self, columns: usize) -> Result<(), XlsxError> {
        let last = u16::try_from(columns.saturating_sub(1)).unwrap_or(u16::MAX);
        self.sheet.autofilter(0, 0, self.row, last)?;
        Ok(())
    }
}
