//! The export: a consistent snapshot of all records of a resource, ordered by id.

use std::io::{self, Write};

use super::Format;
use crate::model::{READ_ONLY, Resource, Value};
use crate::store::{DatabaseError, Record, TenantFile};

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The target cannot be written.
    #[error("cannot write: {0}")]
    Unwritable(#[from] io::Error),
    /// The tenant's database failed.
    #[error("the tenant's file cannot be used: {0}")]
    File(#[from] DatabaseError),
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
        Format::Csv => csv(file, resource, target, written),
        Format::JsonLines => json_lines(file, resource, target, written),
    }
}

fn csv(
    file: &TenantFile,
    resource: &'static Resource,
    target: impl Write,
    written: impl Fn(),
) -> Result<u64, ExportError> {
    let mut writer = csv::Writer::from_writer(target);
    let [id, timestamps @ ..] = READ_ONLY;
    let names = resource.fields.iter().map(|field| field.name);
    writer
        .write_record([id].into_iter().chain(names).chain(timestamps))
        .map_err(io::Error::other)?;
    let count = file.read(|reading| {
        reading.each(resource, |record| {
            written();
            write_record(&mut writer, record).map_err(ExportError::from)
        })
    })?;
    writer.flush()?;
    Ok(count)
}

/// Writes one record. Text that begins with `=` is not escaped, so that an import restores it
/// exactly. The manual warns about opening such files in a spreadsheet.
fn write_record(writer: &mut csv::Writer<impl Write>, record: &Record) -> io::Result<()> {
    let mut write = |cell: &str| writer.write_field(cell).map_err(io::Error::other);
    write(&record.id.0.to_string())?;
    for value in &record.values {
        match value {
            Value::Null => write("")?,
            Value::Integer(number) => write(&number.to_string())?,
            Value::Boolean(value) => write(if *value { "true" } else { "false" })?,
            Value::Text(text) => write(text)?,
        }
    }
    write(&record.created_at.to_string())?;
    write(&record.updated_at.to_string())?;
    writer.write_record(None::<&[u8]>).map_err(io::Error::other)
}

fn json_lines(
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
