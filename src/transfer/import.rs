//! The import of a file in one transaction.
//!
//! Each row is validated and stored before the next one is read. The first error undoes everything
//! and lets other writers go on; the rest of the file is then read only for its errors.

use std::io::{self, BufRead, BufReader, Read};

use super::csv_reader::CsvRows;
use super::lines::{Lines, encoding_message};
use super::row::{Columns, Mode, RowTarget, RowValidator, ValidRow, input};
use super::{Format, RowError};
use crate::clock::Timestamp;
use crate::model::json_object::parse_object;
use crate::model::{JsonObject, Resource};
use crate::store::{
    Actor, ChangeContext, DatabaseError, ImportTransaction, Reading, TenantFile, Writing,
};

/// An import.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    pub resource: &'static Resource,
    pub format: Format,
    pub mode: Mode,
    /// Read the whole file without storing anything.
    pub dry_run: bool,
}

/// How many records were created, changed and left as they are; in a dry run, would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub created: u64,
    pub changed: u64,
    pub unchanged: u64,
}

impl Imported {
    pub fn rows(self) -> u64 {
        self.created + self.changed + self.unchanged
    }
}

/// Observes an import.
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
        "{errors} {} in {rows} {}; nothing was imported",
        plural(*.errors, "fault"),
        plural(*.rows, "row")
    )]
    InvalidRows {
        errors: u64,
        /// The number of rows with errors.
        rows: u64,
    },
    /// Ids cannot be kept: the resource with this plural name holds records, or held some before.
    #[error(
        "--keep-ids takes ids only into a resource that has never held a record, and {0} has; \
         nothing was imported"
    )]
    HasHeldRecords(&'static str),
    #[error("the tenant's file cannot be used: {0}; nothing was imported")]
    File(#[from] DatabaseError),
}

fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// The most columns of a file. There is an error for each that is unknown.
const MAX_COLUMNS: usize = 1_000;

/// The size of the read buffer in bytes.
const BUFFER: usize = 64 * 1024;

impl Import {
    /// Imports all rows of `source`. The changes are dated `now`.
    pub fn run(
        &self,
        source: impl Read,
        file: &mut TenantFile,
        now: Timestamp,
        observer: &mut dyn ImportObserver,
    ) -> Result<Imported, ImportError> {
        if self.dry_run {
            return file.read(|reading| self.read(source, reading, None, observer));
        }
        let finds = matches!(self.mode, Mode::UpdateBy(_));
        let transaction = file.begin_import(self.resource, finds, || observer.waiting())?;
        let writing = transaction.writing();
        let context = ChangeContext { at: now, actor: Actor::Command("import") };
        let store = Store { transaction: &transaction, writing: &writing, context };
        let imported = self.read(source, &writing, Some(store), observer)?;
        writing.flush()?;
        drop(writing);
        transaction.commit(now)?;
        file.checkpoint();
        Ok(imported)
    }

    /// Reads the whole file, and stores its rows unless one is invalid.
    fn read(
        &self,
        source: impl Read,
        reading: &Reading<'_>,
        store: Option<Store<'_>>,
        observer: &mut dyn ImportObserver,
    ) -> Result<Imported, ImportError> {
        if matches!(self.mode, Mode::KeepIds) && reading.has_ever_held(self.resource)? {
            return Err(ImportError::HasHeldRecords(self.resource.plural));
        }
        let columns = Columns::of(self.resource);
        let source = BufReader::with_capacity(BUFFER, source);
        let validator = RowValidator::new(&columns, reading, self.mode);
        let imported = Imported::default();
        let mut rows = Rows { validator, store, observer, imported, invalid: 0, errors: 0 };
        match self.format {
            Format::Csv => rows.csv(source)?,
            Format::JsonLines => rows.json_lines(source)?,
        }
        match rows {
            Rows { errors: 0, imported, .. } => Ok(imported),
            Rows { errors, invalid, .. } => Err(ImportError::InvalidRows { errors, rows: invalid }),
        }
    }
}

/// Stores rows.
struct Store<'a> {
    transaction: &'a ImportTransaction<'a>,
    writing: &'a Writing<'a>,
    context: ChangeContext,
}

impl Store<'_> {
    fn add(&self, resource: &Resource, row: ValidRow) -> Result<(), DatabaseError> {
        let ValidRow { target, values } = row;
        match target {
            RowTarget::New(id) => {
                let values = values.into_iter().map(|(_, value)| value).collect();
                self.writing.insert(resource, id, values, &self.context)?;
            }
            RowTarget::Known(record) => {
                self.writing.update(resource, record.id, &values, &self.context)?;
            }
        }
        self.writing.flush_if_large()
    }
}

/// Parses, validates and stores the rows of a file.
struct Rows<'a> {
    validator: RowValidator<'a>,
    /// `None` in a dry run, and from the first error on.
    store: Option<Store<'a>>,
    observer: &'a mut dyn ImportObserver,
    imported: Imported,
    /// The number of rows with errors.
    invalid: u64,
    errors: u64,
}

impl Rows<'_> {
    fn csv(&mut self, source: impl BufRead) -> Result<(), ImportError> {
        const EMPTY: &str = "The file is empty. Its first line is a header of field names.";
        let mut rows = CsvRows::new(source);
        let (line, header) = rows.next()?.unwrap_or((1, Err(EMPTY)));
        if let Err(message) = header {
            return self.reject_malformed(line, message);
        }
        if rows.cells().count() > MAX_COLUMNS {
            let message = format!("The header has more than {MAX_COLUMNS} columns.");
            return self.reject_malformed(line, message);
        }
        let names: Vec<String> = rows.cells().map(str::to_owned).collect();
        let errors = self.check_header(line, &names);
        if !errors.is_empty() {
            return self.reject(errors);
        }
        let columns = self.validator.columns;
        let kinds: Vec<_> = names.iter().map(|name| columns.kind(name)).collect();
        while let Some((line, row)) = rows.next()? {
            let count = rows.cells().count();
            if let Err(message) = row {
                self.reject_malformed(line, message)?;
            } else if count != names.len() {
                let message = format!("The row has {count} cells; the header has {}.", names.len());
                self.reject_malformed(line, message)?;
            } else {
                let inputs = rows.cells().zip(&kinds).map(|(cell, kind)| input(*kind, cell));
                self.row(line, &names.iter().cloned().zip(inputs).collect())?;
            }
        }
        Ok(())
    }

    fn check_header(&self, line: u64, names: &[String]) -> Vec<RowError> {
        let mut errors = self.validator.columns.check(line, names.iter().map(String::as_str));
        let key = self.validator.mode.key().map(|field| field.name);
        if let Some(key) = key.filter(|key| names.iter().all(|name| name != key)) {
            let message = format!("The file has no column \"{key}\"; every row needs it.");
            errors.push(RowError::new(line, key, "required", message));
        }
        errors
    }

    fn json_lines(&mut self, source: impl BufRead) -> Result<(), ImportError> {
        const TOO_LONG: &str = "The line has more than 1 MiB. Send one JSON object on each line.";
        let mut lines = Lines::new(source);
        while let Some((line, text)) = lines.next()? {
            match text {
                None => self.reject_malformed(line, TOO_LONG)?,
                Some(text) if text.iter().all(u8::is_ascii_whitespace) => (),
                Some(text) if str::from_utf8(text).is_err() => {
                    self.reject_malformed(line, encoding_message(text))?;
                }
                Some(text) => match parse_object(text) {
                    Ok(object) => {
                        let names = object.keys().map(String::as_str);
                        let errors = self.validator.columns.check(line, names);
                        if errors.is_empty() {
                            self.row(line, &object)?;
                        } else {
                            self.reject(errors)?;
                        }
                    }
                    Err(error) => {
                        let message = format!("The line is no JSON object: {error}.");
                        self.reject_malformed(line, message)?;
                    }
                },
            }
        }
        Ok(())
    }

    /// Validates one row, and stores it or reports its errors.
    fn row(&mut self, line: u64, cells: &JsonObject) -> Result<(), ImportError> {
        let row = match self.validator.validate(line, cells)? {
            Ok(row) => row,
            Err(errors) => return self.reject(errors),
        };
        let count = match row.target {
            RowTarget::New(_) => &mut self.imported.created,
            RowTarget::Known(_) if row.values.is_empty() => &mut self.imported.unchanged,
            RowTarget::Known(_) => &mut self.imported.changed,
        };
        *count += 1;
        if let Some(store) = &self.store {
            store.add(self.validator.columns.resource, row)?;
        }
        Ok(())
    }

    fn reject_malformed(
        &mut self,
        line: u64,
        message: impl Into<String>,
    ) -> Result<(), ImportError> {
        self.reject(vec![RowError::new(line, "-", "invalid_row", message)])
    }

    /// Counts and reports the errors of a row or of the header. Nothing is stored from then on.
    fn reject(&mut self, errors: Vec<RowError>) -> Result<(), ImportError> {
        if let Some(store) = self.store.take() {
            store.transaction.abandon()?;
        }
        self.invalid += 1;
        for error in errors {
            self.errors += 1;
            self.observer.row_error(&error);
        }
        Ok(())
    }
}
