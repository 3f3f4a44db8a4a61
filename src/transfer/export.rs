//! The export: a consistent snapshot of all records of a resource, ordered by id.

use std::io::{self, Seek as _, Write};
use std::panic::{self, AssertUnwindSafe};
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
            FileFormat::Xlsx => survive(|| write_workbook(file, self, target, scratch, written)),
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

impl ExportColumn {
    fn value(
        &self,
        reading: &Reading<'_>,
        resource: &Resource,
        record: &Record,
    ) -> Result<Value, StoreError> {
        let value = resource.value(&record.values, self.field.name);
        Ok(match (&self.source, value) {
            (ColumnSource::Custom(name), Some(Value::Custom(custom))) => text(custom.get(name)),
            (ColumnSource::Referred(column), Some(Value::Integer(id))) => {
                let referred = reading.record(column.target, RecordId(*id))?;
                text(referred.map(|referred| column.text(&referred.values)))
            }
            (_, Some(value)) => value.clone(),
            (_, None) if self.field == &ID => Value::Integer(record.id.0),
            (_, None) if self.field == &CREATED_AT => text(Some(record.created_at)),
            (_, None) => text(record.updated_at),
        })
    }

    /// A value of the column as CSV has it.
    fn text(&self, value: &Value) -> String {
        match value {
            Value::Null | Value::Custom(_) => String::new(),
            Value::Text(text) => text.clone(),
            Value::Integer(cents) if matches!(self.source, ColumnSource::Amount) => amount(*cents),
            Value::Integer(number) => number.to_string(),
            Value::Boolean(value) => value.to_string(),
        }
    }
}

fn text(text: Option<impl ToString>) -> Value {
    text.map_or(Value::Null, |text| Value::Text(text.to_string()))
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
                let value = column.value(reading, export.resource, record)?;
                writer.write_field(column.text(&value)).map_err(io::Error::other)?;
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
                let value = column.value(reading, export.resource, record)?;
                line.pop();
                write!(line, ",{}:{}}}", json!(column.name), json!(column.text(&value)))?;
            }
            line.push(b'\n');
            target.write_all(&line).map_err(TransferError::from)
        })
    })?;
    target.flush()?;
    Ok(count)
}

/// Turns a panic of rust_xlsxwriter into an error: it panics if its temporary file cannot grow.
fn survive(write: impl FnOnce() -> Result<u64, TransferError>) -> Result<u64, TransferError> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(AssertUnwindSafe(write));
    panic::set_hook(hook);
    outcome.unwrap_or_else(|panic| {
        let cause = panic.downcast_ref::<String>().map_or("no cause is known", String::as_str);
        Err(io::Error::other(format!(
            "the workbook cannot be written, probably because the disk of the data directory is \
             full ({cause})"
        ))
        .into())
    })
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
            sheet.row += 1;
            for (index, column) in (0..).zip(&columns) {
                let value = column.value(reading, export.resource, record)?;
                sheet.write(index, column, &value).map_err(io::Error::other)?;
            }
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

    fn write(&mut self, index: u16, column: &ExportColumn, value: &Value) -> Result<(), XlsxError> {
        /// A spreadsheet keeps 15 digits of a number.
        const TOO_LARGE: u64 = 1_000_000_000_000_000;
        let Sheet { sheet, row, text: format, date: date_format, amount: amount_format } = self;
        let text = column.text(value);
        // Before March 1900, the dates of spreadsheet programs differ.
        let is_date = column.field.kind == Kind::Date && *text >= *"1900-03-01";
        let date = is_date.then(|| ExcelDateTime::parse_from_str(&text).ok()).flatten();
        match (value, date) {
            _ if text.is_empty() => return Ok(()),
            (_, Some(date)) => sheet.write_datetime_with_format(*row, index, &date, date_format)?,
            (Value::Boolean(value), _) => sheet.write_boolean(*row, index, *value)?,
            (Value::Integer(number), _) if number.unsigned_abs() < TOO_LARGE => {
                match column.source {
                    ColumnSource::Amount => {
                        let amount = *number as f64 / 100.0;
                        sheet.write_number_with_format(*row, index, amount, amount_format)?
                    }
                    _ => sheet.write_number(*row, index, *number as f64)?,
                }
            }
            _ => sheet.write_string_with_format(*row, index, text, format)?,
        };
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
