//! The export: a consistent snapshot of all records of a resource, ordered by id.

use std::io::{self, Write};

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
/// record.
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
    written: impl Fn(),
) -> Result<u64, ExportError> {
    match format {
        Format::Csv => write_csv(file, resource, target, written),
        _ => write_json_lines(file, resource, target, written),
    }
}

fn write_csv(
    file: &TenantFile,
    resource: &'static Resource,
    target: impl Write,
    written: impl Fn(),
) -> Result<u64, ExportError> {
    let mut writer = csv::Writer::from_writer(target);
    let [id, timestamps @ ..] = READ_ONLY;
    let names = resource.fields.iter().filter(|field| field.kind != Kind::Custom);
    let names = [id].into_iter().chain(names.map(|field| field.name));
    let count = file.read(|reading| {
        let custom = reading.custom_names(resource)?;
        let columns = custom.iter().map(|name| format!("{PREFIX}{name}"));
        let header = names.map(str::to_owned).chain(columns).chain(timestamps.map(str::to_owned));
        writer.write_record(header.collect::<Vec<_>>()).map_err(io::Error::other)?;
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
