//! The export: a consistent snapshot of all records of a resource, ordered by id.

use std::io::{self, Seek as _, Write};
use std::path::Path;

use rust_xlsxwriter::{
    self as xlsx, DataValidation, ExcelDateTime, Workbook, Worksheet, XlsxError,
};
use serde_json::json;
use tempfile::tempfile_in;

use super::columns::{ReferenceColumn, amount_name, reference_columns};
use super::{FileFormat, TransferError};
use crate::model::validation::CUSTOM_PREFIX;
use crate::model::{CREATED_AT, Field, ID, Kind, RecordId, Resource, UPDATED_AT, Value};
use crate::store::{Reading, Record, StoreError, TenantFile};

/// The last row of a sheet, counted from 0.
const LAST_ROW: u32 = 1_048_575;

/// An export of all records of a resource.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    pub resource: &'static Resource,
    pub format: FileFormat,
    /// With columns for people: numbers and names behind the ids, and amounts in place of cents.
    pub with_names: bool,
}

impl Export {
    /// Writes all records to `target` and returns their number. Calls `written` for each record. A
    /// workbook grows in nameless files in `scratch`.
    /// If the export fails, `target` has a part of the records.
    pub fn run(
        &self,
        file: &TenantFile,
        target: impl Write,
        scratch: &Path,
        written: impl Fn(),
    ) -> Result<u64, TransferError> {
        match self.format {
            FileFormat::Csv => write_csv(file, self, target, written),
            FileFormat::JsonLines => write_json_lines(file, self, target, written),
            FileFormat::Xlsx => write_workbook(file, self, target, scratch, written),
        }
    }

    /// The columns. `custom` are the names of custom fields.
    fn columns(&self, custom: &[String]) -> Vec<ExportColumn> {
        let mut columns = Vec::new();
        let fields = self.resource.fields.iter();
        for field in [&ID].into_iter().chain(fields).chain([&CREATED_AT, &UPDATED_AT]) {
            let mut add = |name, source| columns.push(ExportColumn { name, field, source });
            if field.kind == Kind::Custom {
                for name in custom {
                    add(format!("{CUSTOM_PREFIX}{name}"), ColumnSource::Custom(name.clone()));
                }
                continue;
            }
            match amount_name(field).filter(|_| self.with_names) {
                Some(amount) => add(amount.to_owned(), ColumnSource::Amount),
                None => add(field.name.to_owned(), ColumnSource::Field),
            }
            let readable = reference_columns(self.resource).filter(|one| one.field == field);
            // Only an employee has an address of a person.
            let is_shown = |one: &ReferenceColumn| {
                one.target.field("first_name").is_some()
                    || one.key.is_none_or(|key| key.kind != Kind::Email)
            };
            for one in readable.filter(|one| self.with_names && is_shown(one)) {
                add(one.name.clone(), ColumnSource::Referred(one));
            }
        }
        columns
    }
}

struct ExportColumn {
    name: String,
    field: &'static Field,
    source: ColumnSource,
}

/// What a column has.
enum ColumnSource {
    Field,
    /// The cents of the field as an amount.
    Amount,
    Custom(String),
    /// A value of the record to which the field refers.
    Referred(ReferenceColumn),
}

#[derive(Debug)]
enum ExportCell {
    /// A text, or nothing.
    Text(String),
    Date(String),
    Integer(i64),
    /// An amount in cents.
    Amount(i64),
    Boolean(bool),
}

impl ExportColumn {
    fn cell(
        &self,
        reading: &Reading<'_>,
        export: &Export,
        record: &Record,
    ) -> Result<ExportCell, StoreError> {
        let value = export.resource.value(&record.values, self.field.name);
        Ok(match (&self.source, value) {
            (ColumnSource::Amount, Some(Value::Integer(cents))) => ExportCell::Amount(*cents),
            (ColumnSource::Custom(name), Some(Value::Custom(custom))) => {
                ExportCell::Text(custom.get(name).cloned().unwrap_or_default())
            }
            (ColumnSource::Referred(column), Some(Value::Integer(id))) => {
                let referred = reading.record(column.target, RecordId(*id))?;
                ExportCell::Text(
                    referred.map_or(String::new(), |referred| column.text(&referred.values)),
                )
            }
            (ColumnSource::Field, Some(Value::Integer(number))) => ExportCell::Integer(*number),
            (_, Some(Value::Boolean(value))) => ExportCell::Boolean(*value),
            (_, Some(Value::Text(text))) if self.field.kind == Kind::Date => {
                ExportCell::Date(text.clone())
            }
            (_, Some(Value::Text(text))) => ExportCell::Text(text.clone()),
            (_, Some(_)) => ExportCell::Text(String::new()),
            (_, None) if self.field == &ID => ExportCell::Integer(record.id.0),
            (_, None) if self.field == &CREATED_AT => {
                ExportCell::Text(record.created_at.to_string())
            }
            (_, None) => {
                let time = record.updated_at.map(|time| time.to_string());
                ExportCell::Text(time.unwrap_or_default())
            }
        })
    }
}

/// An amount such as `-1299.50`.
fn amount(cents: i64) -> String {
    let (sign, cents) = (if cents < 0 { "-" } else { "" }, cents.unsigned_abs());
    format!("{sign}{}.{:02}", cents / 100, cents % 100)
}

/// Text that begins with `=` is not escaped, so that an import restores it exactly. `commands.md`
/// warns of a spreadsheet that opens such a file.
fn write_csv(
    file: &TenantFile,
    export: &Export,
    target: impl Write,
    written: impl Fn(),
) -> Result<u64, TransferError> {
    let mut writer = csv::Writer::from_writer(target);
    let count = file.read(|reading| {
        let columns = export.columns(&reading.custom_names(export.resource)?);
        let names = columns.iter().map(|column| &column.name);
        writer.write_record(names).map_err(io::Error::other)?;
        reading.each(export.resource, |record| {
            written();
            for column in &columns {
                let text = match column.cell(reading, export, record)? {
                    ExportCell::Text(text) | ExportCell::Date(text) => text,
                    ExportCell::Integer(number) => number.to_string(),
                    ExportCell::Amount(cents) => amount(cents),
                    ExportCell::Boolean(value) => value.to_string(),
                };
                writer.write_field(text).map_err(io::Error::other)?;
            }
            writer.write_record(None::<&[u8]>).map_err(io::Error::other)?;
            Ok::<(), TransferError>(())
        })
    })?;
    writer.flush()?;
    Ok(count)
}

fn write_json_lines(
    file: &TenantFile,
    export: &Export,
    mut target: impl Write,
    written: impl Fn(),
) -> Result<u64, TransferError> {
    let columns = export.columns(&[]);
    let readable = |column: &&ExportColumn| matches!(column.source, ColumnSource::Referred(_));
    let columns: Vec<_> = columns.iter().filter(readable).collect();
    let count = file.read(|reading| {
        reading.each(export.resource, |record| {
            written();
            let mut line = record.json(export.resource);
            for column in &columns {
                if let ExportCell::Text(text) = column.cell(reading, export, record)? {
                    line.pop();
                    write!(line, ",{}:{}}}", json!(column.name), json!(text))?;
                }
            }
            line.push(b'\n');
            target.write_all(&line).map_err(TransferError::from)
        })
    })?;
    target.flush()?;
    Ok(count)
}

fn write_workbook(
    file: &TenantFile,
    export: &Export,
    mut target: impl Write,
    scratch: &Path,
    written: impl Fn(),
) -> Result<u64, TransferError> {
    let mut workbook = Workbook::new();
    workbook.set_tempdir(scratch).map_err(io::Error::other)?;
    let sheet = workbook.add_worksheet_with_constant_memory().map_err(io::Error::other)?;
    let mut sheet = Sheet {
        sheet,
        row: 0,
        text: xlsx::Format::new().set_num_format("@"),
        date: xlsx::Format::new().set_num_format("yyyy-mm-dd"),
        amount: xlsx::Format::new().set_num_format("0.00"),
    };
    let count = file.read(|reading| {
        let columns = export.columns(&reading.custom_names(export.resource)?);
        sheet.begin(export.resource.plural, &columns).map_err(io::Error::other)?;
        let count = reading.each(export.resource, |record| {
            written();
            let cells = columns.iter().map(|column| column.cell(reading, export, record));
            let cells: Vec<_> = cells.collect::<Result<_, StoreError>>()?;
            sheet.write(cells).map_err(io::Error::other)?;
            Ok::<(), TransferError>(())
        })?;
        sheet.end(&columns).map_err(io::Error::other)?;
        Ok::<u64, TransferError>(count)
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
    amount: xlsx::Format,
}

impl Sheet<'_> {
    /// Writes the header. It stays in view and has filters.
    fn begin(&mut self, name: &str, columns: &[ExportColumn]) -> Result<(), XlsxError> {
        let Sheet { sheet, text, date, .. } = self;
        sheet.set_name(name)?.set_freeze_panes(1, 0)?;
        let bold = text.clone().set_bold();
        for (column, ExportColumn { name, field, source }) in (0..).zip(columns) {
            match field.kind {
                _ if matches!(source, ColumnSource::Referred(_)) => {
                    sheet.set_column_format(column, text)?;
                }
                Kind::Integer | Kind::Boolean => {}
                Kind::Date => drop(sheet.set_column_format(column, date)?),
                _ => drop(sheet.set_column_format(column, text)?),
            }
            sheet.set_column_width(column, 20)?;
            sheet.write_string_with_format(0, column, name, &bold)?;
        }
        Ok(())
    }

    fn write(&mut self, cells: Vec<ExportCell>) -> Result<(), XlsxError> {
        /// A spreadsheet keeps 15 digits of a number.
        const TOO_LARGE: u64 = 1_000_000_000_000_000;
        self.row += 1;
        let Sheet { sheet, row, text: format, date: date_format, amount: amount_format } = self;
        for (column, cell) in (0..).zip(cells) {
            match cell {
                ExportCell::Text(text) if text.is_empty() => continue,
                ExportCell::Text(text) => {
                    sheet.write_string_with_format(*row, column, text, format)?
                }
                // Before March 1900, the dates of spreadsheet programs differ.
                ExportCell::Date(text) => match ExcelDateTime::parse_from_str(&text) {
                    Ok(date) if *text >= *"1900-03-01" => {
                        sheet.write_datetime_with_format(*row, column, &date, date_format)?
                    }
                    _ => sheet.write_string_with_format(*row, column, text, format)?,
                },
                ExportCell::Integer(number) if number.unsigned_abs() >= TOO_LARGE => {
                    sheet.write_string_with_format(*row, column, number.to_string(), format)?
                }
                ExportCell::Amount(cents) if cents.unsigned_abs() >= TOO_LARGE => {
                    sheet.write_string_with_format(*row, column, amount(cents), format)?
                }
                ExportCell::Integer(number) => sheet.write_number(*row, column, number as f64)?,
                ExportCell::Amount(cents) => {
                    let amount = cents as f64 / 100.0;
                    sheet.write_number_with_format(*row, column, amount, amount_format)?
                }
                ExportCell::Boolean(value) => sheet.write_boolean(*row, column, value)?,
            };
        }
        Ok(())
    }

    /// Adds the filters, once the number of rows is known, and the lists of allowed words.
    fn end(&mut self, columns: &[ExportColumn]) -> Result<(), XlsxError> {
        let last = u16::try_from(columns.len().saturating_sub(1)).unwrap_or(u16::MAX);
        self.sheet.autofilter(0, 0, self.row, last)?;
        for (index, column) in (0..).zip(columns) {
            let words: &[&str] = match column.field.kind {
                Kind::Choice(words) => words,
                Kind::Boolean => &["TRUE", "FALSE"],
                _ => continue,
            };
            let list = DataValidation::new().allow_list_strings(words)?;
            self.sheet.add_data_validation(1, index, LAST_ROW, index, &list)?;
        }
        Ok(())
    }
}
