//! The export: every record of a resource, of one moment, in the order of ids.

use std::io::{self, Write};

use super::Format;
use crate::model::{READ_ONLY, Resource, Value};
use crate::store::DatabaseError;
use crate::store::Record;
use crate::store::tenant_file::TenantFile;

/// Why an export did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("cannot write: {0}")]
    Unwritable(#[from] io::Error),
    #[error("the tenant's file cannot be used: {0}")]
    File(#[from] DatabaseError),
}

/// Writes all records of `resource` and returns their number.
pub fn export(
    file: &TenantFile,
    resource: &'static Resource,
    format: Format,
    target: impl Write,
) -> Result<u64, ExportError> {
    match format {
        Format::Csv => csv(file, resource, target),
        Format::JsonLines => json_lines(file, resource, target),
    }
}

fn csv(file: &TenantFile, resource: &'static Resource, target: impl Write) -> Result<u64, ExportError> {
    let mut writer = csv::Writer::from_writer(target);
    let [id, timestamps @ ..] = READ_ONLY;
    let names = resource.fields.iter().map(|field| field.name);
    writer.write_record([id].into_iter().chain(names).chain(timestamps)).map_err(io::Error::other)?;
    let count = file.read(|reading| {
        reading.each(resource, |record| write_record(&mut writer, record).map_err(ExportError::from))
    })?;
    writer.flush()?;
    Ok(count)
}

/// Text as it is, also where it begins with `=`: whoever opens the file in a spreadsheet is told so in the manual, and
/// what comes back in is what went out.
fn write_record(writer: &mut csv::Writer<impl Write>, record: &Record) -> io::Result<()> {
    let mut write = |cell: &str| writer.write_field(cell).map_err(io::Error::other);
    write(&record.id.to_string())?;
    for value in &record.values {
        match value {
            Value::Null => write("")?,
            Value::Integer(number) => write(&number.to_string())?,
            Value::Boolean(truth) => write(if *truth { "true" } else { "false" })?,
            Value::Text(text) => write(text)?,
        }
    }
    write(&record.created_at)?;
    write(&record.updated_at)?;
    writer.write_record(None::<&[u8]>).map_err(io::Error::other)
}

fn json_lines(file: &TenantFile, resource: &'static Resource, mut target: impl Write) -> Result<u64, ExportError> {
    let count = file.read(|reading| {
        reading.each(resource, |record| {
            target.write_all(&record.json(resource))?;
            target.write_all(b"\n").map_err(ExportError::from)
        })
    })?;
    target.flush()?;
    Ok(count)
}
