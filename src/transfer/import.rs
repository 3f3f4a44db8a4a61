//! The import: validates the whole file, then stores all rows, which appear together.
//!
//! The file is read twice. The first pass validates without a lock, however long the file is. The
//! second pass stores the rows in one transaction. It validates again, because a referenced record
//! may have been deleted in the meantime.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read, Seek};

use super::columns::{self, Layout};
use super::csv_reader::{CsvRows, Next};
use super::line_reader::LineReader;
use super::row::{RowValidator, ValidRow};
use super::{Format, RowError};
use crate::clock::Timestamp;
use crate::model::json_object::parse_object;
use crate::model::{Json, JsonError, JsonObject, Resource};
use crate::store::{Actor, ChangeContext, DatabaseError, IdSet, Reading, TenantFile, Writing};

/// An import.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    /// The resource of the records.
    pub resource: &'static Resource,
    /// The format of the file.
    pub format: Format,
    /// Keep the ids of the file. The resource must never have held a record.
    pub keep_ids: bool,
    /// Validate the file without storing anything.
    pub dry_run: bool,
}

/// The current phase of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportPhase {
    /// The file is validated.
    Checking,
    /// The rows are stored.
    Storing,
}

/// Observes an import.
pub trait ProgressObserver {
    /// Called for each error in a row when it is found. The number of errors is not limited.
    fn row_error(&mut self, error: &RowError);
    /// Called before the import waits for another import into the tenant.
    fn waiting(&mut self);
    /// Called regularly while rows are checked or stored, with the number of bytes that the current
    /// phase has read.
    fn progress(&mut self, phase: ImportPhase, bytes: u64);
}

/// Why an import failed. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// Rows are invalid. The observer has received each error.
    #[error("{errors} {} in {rows} {}; nothing was imported", plural(*.errors, "fault"), plural(*.rows, "row"))]
    InvalidRows {
        /// The number of errors.
        errors: u64,
        /// The number of rows with errors.
        rows: u64,
    },
    /// Ids cannot be kept: the resource with this plural name holds records, or held some before.
    #[error(
        "--keep-ids takes ids only into a resource that has never held a record, and {0} has; nothing was imported"
    )]
    HasHeldRecords(&'static str),
    /// The file had other rows when it was read again.
    #[error("the file was changed while it was read; nothing was imported")]
    Changed,
    /// The tenant's database failed.
    #[error("the tenant's file cannot be used: {0}; nothing was imported")]
    File(#[from] DatabaseError),
}

fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// The number of rows between two progress reports.
const PROGRESS_INTERVAL: u64 = 256;

/// The size of the read buffer in bytes.
const BUFFER: usize = 64 * 1024;

impl Import {
    /// Imports all rows of `source` and returns their number. The records are dated `now`.
    pub fn run(
        &self,
        source: &mut (impl Read + Seek),
        file: &mut TenantFile,
        now: Timestamp,
        observer: &mut dyn ProgressObserver,
    ) -> Result<u64, ImportError> {
        let rows = self.check(source, file, observer)?;
        if self.dry_run || rows == 0 {
            return Ok(rows);
        }
        source.rewind()?;
        let import = file.begin_import(self.resource, rows, || observer.waiting())?;
        let writing = import.writing();
        if self.keep_ids && writing.has_ever_held(self.resource)? {
            return Err(ImportError::HasHeldRecords(self.resource.plural));
        }
        if self.store(source, &writing, now, observer)? != rows {
            return Err(ImportError::Changed);
        }
        drop(writing);
        import.commit(now)?;
        Ok(rows)
    }

    /// Validates all rows of one snapshot. Returns their number.
    fn check(
        &self,
        source: &mut impl Read,
        file: &TenantFile,
        observer: &mut dyn ProgressObserver,
    ) -> Result<u64, ImportError> {
        let layout = Layout::of(self.resource);
        let mut pass =
            Pass { import: self, layout: &layout, phase: ImportPhase::Checking, observer };
        let ids = self.keep_ids.then(|| file.id_set()).transpose()?;
        file.read(|reading| {
            if self.keep_ids && reading.has_ever_held(self.resource)? {
                return Err(ImportError::HasHeldRecords(self.resource.plural));
            }
            pass.run(source, reading, ids.as_ref(), &mut |_| Ok(()))
        })
    }

    /// Stores all rows. Returns their number.
    fn store(
        &self,
        source: &mut impl Read,
        writing: &Writing<'_>,
        now: Timestamp,
        observer: &mut dyn ProgressObserver,
    ) -> Result<u64, ImportError> {
        let layout = Layout::of(self.resource);
        let mut pass =
            Pass { import: self, layout: &layout, phase: ImportPhase::Storing, observer };
        let context = ChangeContext { at: now, actor: Actor::Command("import") };
        let mut add = |ValidRow { id, values }| {
            writing.insert(self.resource, id, values, &context)?;
            Ok(writing.flush_if_large()?)
        };
        let rows = pass.run(source, writing, None, &mut add)?;
        writing.flush()?;
        Ok(rows)
    }
}

/// One pass over the file.
struct Pass<'a> {
    import: &'a Import,
    layout: &'a Layout,
    phase: ImportPhase,
    observer: &'a mut dyn ProgressObserver,
}

impl Pass<'_> {
    /// Reads the whole file and passes each valid row to `store`, up to the first invalid one.
    /// Returns the number of rows.
    fn run(
        &mut self,
        source: impl Read,
        reading: &Reading<'_>,
        ids: Option<&IdSet<'_>>,
        store: &mut dyn FnMut(ValidRow) -> Result<(), ImportError>,
    ) -> Result<u64, ImportError> {
        let bytes = Cell::new(0);
        let source = BufReader::with_capacity(BUFFER, CountingReader { source, bytes: &bytes });
        let validator =
            RowValidator { layout: self.layout, reading, keep_ids: self.import.keep_ids, ids };
        let (observer, phase) = (&mut *self.observer, self.phase);
        let mut rows = RowProcessor {
            validator,
            store,
            observer,
            phase,
            bytes: &bytes,
            counts: Counts::default(),
        };
        match self.import.format {
            Format::Csv => rows.csv(source)?,
            Format::JsonLines => rows.json_lines(source)?,
        }
        rows.observer.progress(phase, bytes.get());
        match rows.counts {
            Counts { rows, errors: 0, .. } => Ok(rows),
            Counts { errors, invalid_rows, .. } => {
                Err(ImportError::InvalidRows { errors, rows: invalid_rows })
            }
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    rows: u64,
    invalid_rows: u64,
    errors: u64,
}

/// Parses, validates and stores the rows of one pass.
struct RowProcessor<'a> {
    validator: RowValidator<'a>,
    store: &'a mut dyn FnMut(ValidRow) -> Result<(), ImportError>,
    observer: &'a mut dyn ProgressObserver,
    phase: ImportPhase,
    bytes: &'a Cell<u64>,
    counts: Counts,
}

impl RowProcessor<'_> {
    fn csv(&mut self, source: impl BufRead) -> Result<(), ImportError> {
        let mut rows = CsvRows::new(source);
        let Some(columns) = self.header(&mut rows)? else { return Ok(()) };
        loop {
            match rows.next()? {
                Next::End => return Ok(()),
                Next::Invalid { line, message } => {
                    self.reject(vec![RowError::malformed(line, message)])
                }
                Next::Fatal { line, message } => {
                    self.reject(vec![RowError::malformed(line, message)]);
                    return Ok(());
                }
                Next::Row { line } if rows.width() != columns.len() => {
                    let message = format!(
                        "The row has {} cells; the header has {}.",
                        rows.width(),
                        columns.len()
                    );
                    self.reject(vec![RowError::malformed(line, message)]);
                }
                Next::Row { line } => {
                    let layout = self.validator.layout;
                    let mut cells = vec![None; layout.columns.len()];
                    for (index, column) in columns.iter().enumerate() {
                        if let (Some(cell), Some(column)) =
                            (cells.get_mut(*column), layout.columns.get(*column))
                        {
                            *cell = Some(columns::input(column.role, rows.cell(index)));
                        }
                    }
                    self.row(line, &cells)?;
                }
            }
        }
    }

    /// Reads the header. Returns the layout's column index for each column of the file, or `None`
    /// if the header is invalid.
    fn header(
        &mut self,
        rows: &mut CsvRows<impl BufRead>,
    ) -> Result<Option<Vec<usize>>, ImportError> {
        let line = match rows.next()? {
            Next::Row { line } => line,
            Next::Invalid { line, message } | Next::Fatal { line, message } => {
                self.reject(vec![RowError::malformed(line, message)]);
                return Ok(None);
            }
            Next::End => {
                let message = "The file is empty. Its first line is a header of field names.";
                self.reject(vec![RowError::malformed(1, message)]);
                return Ok(None);
            }
        };
        let layout = self.validator.layout;
        let mut columns = Vec::new();
        let mut errors = Vec::new();
        for name in (0..rows.width()).map(|index| rows.cell(index)) {
            match layout.find(name) {
                Some(column) => columns.push(column),
                None => errors.push(layout.unknown_column(line, name)),
            }
        }
        errors.extend(layout.conflict(line, &columns));
        if self.validator.keep_ids && !layout.find("id").is_some_and(|id| columns.contains(&id)) {
            errors.push(RowError::new(
                line,
                "id",
                "required",
                "--keep-ids needs the column \"id\".",
            ));
        }
        if errors.is_empty() {
            return Ok(Some(columns));
        }
        self.reject(errors);
        Ok(None)
    }

    fn json_lines(&mut self, source: impl BufRead) -> Result<(), ImportError> {
        let mut lines = LineReader::new(source);
        while let Some((line, text)) = lines.next()? {
            match text.map(parse_object) {
                Err(message) => self.reject(vec![RowError::malformed(line, message)]),
                Ok(Err(JsonError { column, what, .. })) => {
                    let message = format!("The line is no JSON object at column {column}: {what}.");
                    self.reject(vec![RowError::malformed(line, message)]);
                }
                Ok(Ok(object)) => self.object(line, object)?,
            }
        }
        Ok(())
    }

    fn object(&mut self, line: u64, object: JsonObject) -> Result<(), ImportError> {
        let layout = self.validator.layout;
        let mut cells = vec![None; layout.columns.len()];
        let mut present = Vec::new();
        let mut errors = Vec::new();
        for (name, value) in object {
            match layout.find(&name) {
                Some(column) => {
                    present.push(column);
                    if let Some(cell) = cells.get_mut(column) {
                        *cell = Some(value);
                    }
                }
                None => errors.push(layout.unknown_column(line, &name)),
            }
        }
        errors.extend(layout.conflict(line, &present));
        if errors.is_empty() {
            return self.row(line, &cells);
        }
        self.reject(errors);
        Ok(())
    }

    /// Validates one row and stores it, or reports its errors.
    fn row(&mut self, line: u64, cells: &[Option<Json>]) -> Result<(), ImportError> {
        let mut errors = Vec::new();
        match self.validator.validate(line, cells, &mut errors)? {
            // After an error nothing will be stored; the remaining rows are only validated.
            Some(row) if self.counts.errors == 0 => (self.store)(row)?,
            Some(_) => (),
            None => self.reject(errors),
        }
        self.counts.rows += 1;
        if self.counts.rows.is_multiple_of(PROGRESS_INTERVAL) {
            self.observer.progress(self.phase, self.bytes.get());
        }
        Ok(())
    }

    /// Counts and reports the errors of a row or of the header.
    fn reject(&mut self, errors: Vec<RowError>) {
        self.counts.invalid_rows += 1;
        for error in errors {
            self.counts.errors += 1;
            self.observer.row_error(&error);
        }
    }
}

/// Counts the bytes that are read from `source`.
struct CountingReader<'a, R> {
    source: R,
    bytes: &'a Cell<u64>,
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}
