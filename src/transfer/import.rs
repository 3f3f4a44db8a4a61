//! The import of a file in one transaction: all rows or none (contract section 10, `import`).
//!
//! Each row is validated and stored before the next row is read, so memory does not grow with the
//! file, and a pipe can be imported. The first error rolls back at once. The rest of the file is
//! then only validated. (After a wrong header, the rows are not read.)
//!
//! Example: a file has 100,000 rows. Row 3 has a wrong date and row 90,000 a wrong e-mail address.
//! Row 3 rolls back rows 1 and 2, and other writers of the tenant go on. Rows 4 to 100,000 are
//! validated, and the operator sees both errors in one run. If the transaction stayed open until
//! row 100,000, other writers would get 503 after 5 seconds, for an import that fails anyway.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};

use super::columns::{Columns, Heading, to_object};
use super::reader::{CsvRows, Lines};
use super::row::{Mode, RowValidator};
use super::{Format, Place, RowError};
use crate::model::custom::PREFIX;
use crate::model::json_object::{JsonError, parse_object};
use crate::model::{Field, JsonObject, RecordId, Resource, Value};
use crate::store::{
    ChangeContext, DatabaseError, Draft, FileTransaction, Reading, Target, TenantFile, Writing,
    explain,
};
use crate::words;

#[derive(Clone, Copy, Debug)]
pub struct Import {
    pub resource: &'static Resource,
    pub format: Format,
    pub mode: Mode,
    /// Read the whole file without storing anything.
    pub dry_run: bool,
}

/// How many records were created, changed and left as they are; in a dry run, would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub created: u64,
    pub changed: u64,
    pub unchanged: u64,
    /// For each field, the number of records in which it changes.
    pub fields: Counts,
    /// For each field or `custom.NAME`, the number of records that lose zeros: `007` becomes `7`.
    pub lost_zeros: Counts,
    /// For each natural key, the number of new records whose value an older record has, too. Of
    /// each row, only the first natural key with a value is compared.
    pub repeated_keys: Counts,
}

type Counts = BTreeMap<Cow<'static, str>, u64>;

pub trait ImportObserver {
    /// Called for each error in a row when it is found. The number of errors is not limited.
    fn row_error(&mut self, error: &RowError);
    /// Called before the import waits for another import into the tenant.
    fn waiting(&mut self);
}

/// Why an import failed. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The observer has received each error.
    #[error(
        "{} in {}; nothing was imported",
        words::count(*.errors, "fault"),
        words::count(*.rows, "row")
    )]
    InvalidRows {
        errors: u64,
        /// The number of rows with errors.
        rows: u64,
    },
    /// Ids cannot be kept: the resource with this plural name holds records, or held some before.
    #[error(
        "--keep-ids needs a resource that has never held a record, but {0} has; nothing was imported"
    )]
    HasHeldRecords(&'static str),
    #[error("the tenant's file cannot be used: {0}; nothing was imported")]
    File(String),
}

impl From<DatabaseError> for ImportError {
    fn from(error: DatabaseError) -> ImportError {
        ImportError::File(explain(&error))
    }
}

/// The most columns of a CSV file. A file of another kind would have thousands of unknown columns,
/// and each of them is an error.
const MAX_COLUMNS: usize = 1_000;

/// The size of the read buffer in bytes.
const BUFFER: usize = 64 * 1024;

impl Import {
    /// Imports all rows of `source`.
    pub fn run(
        &self,
        source: impl Read,
        file: &mut TenantFile,
        context: ChangeContext,
        observer: &mut dyn ImportObserver,
    ) -> Result<Imported, ImportError> {
        if self.dry_run {
            return file.read(|reading| self.import_rows(source, reading, None, observer));
        }
        // An update finds its records along the indexes.
        let filled = if self.mode.key().is_some() { None } else { Some(self.resource) };
        let transaction = file.begin(filled, || observer.waiting())?;
        let writing = transaction.writing();
        let now = context.at;
        let writer = RowWriter { transaction: &transaction, writing: &writing, context };
        let imported = self.import_rows(source, &writing, Some(writer), observer)?;
        // Before the commit, because the search tables belong to the same transaction.
        writing.flush()?;
        drop(writing);
        transaction.commit(now)?;
        file.checkpoint();
        Ok(imported)
    }

    /// Reads the whole file. Stores its rows until the first invalid row.
    fn import_rows(
        &self,
        source: impl Read,
        reading: &Reading<'_>,
        writer: Option<RowWriter<'_>>,
        observer: &mut dyn ImportObserver,
    ) -> Result<Imported, ImportError> {
        if matches!(self.mode, Mode::KeepIds) && reading.has_ever_held(self.resource)? {
            return Err(ImportError::HasHeldRecords(self.resource.plural));
        }
        let columns = Columns::of(self.resource, self.format);
        let source = BufReader::with_capacity(BUFFER, source);
        let validator = RowValidator::new(&columns, reading, self.mode);
        let is_compared = matches!(self.mode, Mode::Add) && reading.count(self.resource)? > 0;
        // No record is new yet, so every id is below this one.
        let first_new = is_compared.then_some(RecordId(i64::MAX));
        let imported = Imported::default();
        let (invalid_rows, errors) = (0, 0);
        let mut rows =
            RowImporter { validator, writer, observer, first_new, imported, invalid_rows, errors };
        match self.format {
            Format::Csv => rows.read_csv(source)?,
            Format::JsonLines => rows.read_json_lines(source)?,
        }
        match rows {
            RowImporter { errors: 0, imported, .. } => Ok(imported),
            RowImporter { errors, invalid_rows: rows, .. } => {
                Err(ImportError::InvalidRows { errors, rows })
            }
        }
    }
}

/// Stores rows in the import's transaction.
struct RowWriter<'a> {
    transaction: &'a FileTransaction<'a>,
    writing: &'a Writing<'a>,
    context: ChangeContext,
}

/// Parses, validates and stores the rows of a file.
struct RowImporter<'a> {
    validator: RowValidator<'a>,
    /// `None` in a dry run, and from the first error on.
    writer: Option<RowWriter<'a>>,
    observer: &'a mut dyn ImportObserver,
    /// The id of the first new record: a smaller id is from before the import. `None` if natural
    /// keys are not compared. An empty table has no older records, and its indexes are made after
    /// the rows.
    first_new: Option<RecordId>,
    imported: Imported,
    invalid_rows: u64,
    errors: u64,
}

impl RowImporter<'_> {
    fn read_csv(&mut self, source: impl BufRead) -> Result<(), ImportError> {
        const EMPTY: &str = "The file is empty. Its first line is a header of field names.";
        let mut rows = CsvRows::new(source);
        let (place, header) = rows.next()?.unwrap_or((Place { line: 1, row: 1 }, Err(EMPTY)));
        if let Err(message) = header {
            return self.reject(vec![RowError::malformed(place, message.to_owned())]);
        }
        if rows.cells().count() > MAX_COLUMNS {
            let message = format!("The header has more than {MAX_COLUMNS} columns.");
            return self.reject(vec![RowError::malformed(place, message)]);
        }
        let columns = self.validator.columns;
        let headings: Vec<_> = rows.cells().map(|name| columns.heading(name)).collect();
        let errors = self.check_header(place, &headings);
        if !errors.is_empty() {
            return self.reject(errors);
        }
        while let Some((place, row)) = rows.next()? {
            let row = row.map_err(str::to_owned).and_then(|()| to_object(&headings, rows.cells()));
            match row {
                Ok(row) => self.import_row(place, &row)?,
                Err(message) => self.reject(vec![RowError::malformed(place, message)])?,
            }
        }
        Ok(())
    }

    fn check_header(&self, place: Place, headings: &[Heading]) -> Vec<RowError> {
        let mut present = Vec::with_capacity(headings.len());
        for (index, (name, _)) in headings.iter().enumerate() {
            if !name.is_empty() {
                present.push((Some(index), name.as_str()));
            }
        }
        let mut errors = self.validator.columns.check(place, present.iter().copied());
        if let Some(Field { name: key, .. }) = self.validator.mode.key()
            && present.iter().all(|(_, name)| name != key)
        {
            let message = format!("The file has no column \"{key}\"; every row needs it.");
            errors.push(RowError::new(place, key, "required", message));
        }
        errors
    }

    fn read_json_lines(&mut self, source: impl BufRead) -> Result<(), ImportError> {
        let mut lines = Lines::new(source);
        while let Some((line, text)) = lines.next()? {
            let place = Place { line, row: line };
            if text.is_ok_and(|text| text.trim_ascii().is_empty()) {
                continue;
            }
            let object = text.map_err(str::to_owned).and_then(|text| {
                parse_object(text.as_bytes()).map_err(|JsonError { fault, column, .. }| {
                    format!("The line is not a JSON object: {fault} (column {column}).")
                })
            });
            match object {
                Ok(object) => {
                    let names = object.keys().map(|name| (None, name.as_str()));
                    let errors = self.validator.columns.check(place, names);
                    if errors.is_empty() {
                        self.import_row(place, &object)?;
                    } else {
                        self.reject(errors)?;
                    }
                }
                Err(message) => self.reject(vec![RowError::malformed(place, message)])?,
            }
        }
        Ok(())
    }

    /// Validates one row, and stores it or reports its errors.
    fn import_row(&mut self, place: Place, cells: &JsonObject) -> Result<(), ImportError> {
        let draft = match self.validator.validate(place, cells)? {
            Ok(draft) => draft,
            Err(errors) => return self.reject(errors),
        };
        self.count_effect(&draft)?;
        if let Some(RowWriter { writing, context, .. }) = &self.writer {
            let id = writing.save(draft, context)?.id;
            writing.flush_if_large()?;
            self.first_new = self.first_new.map(|first| first.min(id));
        }
        Ok(())
    }

    /// Counts the effect of a row for the summary that the operator sees.
    fn count_effect(&mut self, draft: &Draft) -> Result<(), DatabaseError> {
        let imported = &mut self.imported;
        let fields = draft.resource.fields;
        let Target::Stored(record) = &draft.target else {
            imported.created += 1;
            return self.count_repeated_key(draft);
        };
        if record.values == draft.values {
            imported.unchanged += 1;
            return Ok(());
        }
        imported.changed += 1;
        for (field, (old, new)) in fields.iter().zip(record.values.iter().zip(&draft.values)) {
            if old != new {
                count(&mut imported.fields, field.name.into());
                for name in names_losing_zeros(field, old, new) {
                    count(&mut imported.lost_zeros, name);
                }
            }
        }
        Ok(())
    }

    /// Counts a new record if an older record has its first natural key.
    fn count_repeated_key(&mut self, draft: &Draft) -> Result<(), DatabaseError> {
        let Some(first_new) = self.first_new else { return Ok(()) };
        for (field, value) in draft.resource.fields.iter().zip(&draft.values) {
            if draft.resource.natural_keys.contains(&field.name) && *value != Value::Null {
                let found = self.validator.reading.find_by(draft.resource, field, value)?;
                if found.first().is_some_and(|id| *id < first_new) {
                    count(&mut self.imported.repeated_keys, field.name.into());
                }
                break;
            }
        }
        Ok(())
    }

    /// Counts and reports the errors of a row. The header counts as a row. The first call rolls
    /// back the import, and nothing is stored from then on.
    fn reject(&mut self, errors: Vec<RowError>) -> Result<(), ImportError> {
        if let Some(writer) = self.writer.take() {
            writer.transaction.abandon()?;
        }
        self.invalid_rows += 1;
        for error in errors {
            self.errors += 1;
            self.observer.row_error(&error);
        }
        Ok(())
    }
}

fn count(counts: &mut Counts, name: Cow<'static, str>) {
    *counts.entry(name).or_default() += 1;
}

/// The field's name if its text loses zeros, or `custom.NAME` of each custom field that does.
fn names_losing_zeros(field: &Field, old: &Value, new: &Value) -> Vec<Cow<'static, str>> {
    match (old, new) {
        (Value::Text(old), Value::Text(new)) if loses_zeros(old, new) => vec![field.name.into()],
        (Value::Custom(old), Value::Custom(new)) => {
            let mut names = Vec::new();
            for (name, old) in old {
                if new.get(name).is_some_and(|new| loses_zeros(old, new)) {
                    names.push(format!("{PREFIX}{name}").into());
                }
            }
            names
        }
        _ => Vec::new(),
    }
}

/// Whether a text loses zeros at its beginning. A spreadsheet turns `007` into the number 7.
fn loses_zeros(old: &str, new: &str) -> bool {
    old.len() > new.len() && old.trim_start_matches('0') == new.trim_start_matches('0')
}
