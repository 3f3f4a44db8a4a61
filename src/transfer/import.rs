//! The import: the whole file is checked first, then stored in one transaction, all of it or nothing.
//!
//! The file is read twice. The first time nothing is locked, however long it takes and whatever is wrong; the second time,
//! in the transaction that makes the tenant's other writers wait, nothing but storing is left to do. It is checked again
//! there all the same: a customer may have gone in between.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read, Seek};

use super::columns::{self, Layout};
use super::csv_reader::{CsvRows, Next};
use super::line_reader::Lines;
use super::row::{Checker, Sound};
use super::{Format, RowFault};
use crate::model::field::Input;
use crate::model::{JsonError, JsonObject, Resource};
use crate::store::DatabaseError;
use crate::store::Reading;
use crate::store::tenant_file::{IdSet, TenantFile};

/// What is to be imported, and how.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    pub resource: &'static Resource,
    pub format: Format,
    /// Take the ids of the file, into a resource that has never held a record.
    pub keep_ids: bool,
    /// Check everything, store nothing.
    pub dry_run: bool,
}

/// What an import does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Checking,
    Storing,
}

/// Who is told how an import goes.
pub trait Watcher {
    /// Something is wrong with a row. It is told as it is found, of any number of rows.
    fn fault(&mut self, fault: &RowFault);
    /// So many bytes of the file are behind us.
    fn progress(&mut self, stage: Stage, bytes: u64);
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("{faults} {} in {rows} {}; nothing was imported", plural(*.faults, "fault"), plural(*.rows, "row"))]
    Faulty { faults: u64, rows: u64 },
    #[error(
        "--keep-ids takes ids only into a resource that has never held a record, and {0} has; nothing was imported"
    )]
    HasHeldRecords(&'static str),
    #[error("the tenant's file cannot be used: {0}; nothing was imported")]
    File(#[from] DatabaseError),
}

fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// Rows between two words about progress.
const STEP: u64 = 256;

const BUFFER: usize = 64 * 1024;

impl Import {
    /// Imports `source` and returns the number of its rows. `now` is RFC 3339.
    pub fn run(
        &self,
        source: &mut (impl Read + Seek),
        file: &mut TenantFile,
        now: &str,
        watcher: &mut dyn Watcher,
    ) -> Result<u64, ImportError> {
        let layout = Layout::of(self.resource);
        let mut pass = Pass { import: self, layout: &layout, stage: Stage::Checking, watcher };
        let ids = self.keep_ids.then(|| file.id_set()).transpose()?;
        let rows = file.read(|reading| pass.run(&mut *source, reading, ids.as_ref(), &mut |_| Ok(())))?;
        if self.dry_run {
            return Ok(rows);
        }
        source.rewind()?;
        pass.stage = Stage::Storing;
        file.add(self.resource, |adding| {
            pass.run(source, adding.reading(), None, &mut |row| adding.record(row.id, row.values, now))
        })
    }
}

/// One reading of the file.
struct Pass<'a> {
    import: &'a Import,
    layout: &'a Layout,
    stage: Stage,
    watcher: &'a mut dyn Watcher,
}

impl Pass<'_> {
    /// The number of rows, if all are sound.
    fn run(
        &mut self,
        source: impl Read,
        reading: &Reading<'_>,
        ids: Option<&IdSet<'_>>,
        store: &mut dyn FnMut(Sound) -> Result<(), DatabaseError>,
    ) -> Result<u64, ImportError> {
        if self.import.keep_ids && reading.has_ever_held(self.import.resource)? {
            return Err(ImportError::HasHeldRecords(self.import.resource.plural));
        }
        let bytes = Cell::new(0);
        let source = BufReader::with_capacity(BUFFER, Counted { source, bytes: &bytes });
        let checker = Checker { layout: self.layout, reading, keep_ids: self.import.keep_ids, ids };
        let mut rows =
            Rows { checker, store, watcher: self.watcher, stage: self.stage, bytes: &bytes, tally: Tally::default() };
        match self.import.format {
            Format::Csv => rows.csv(source)?,
            Format::JsonLines => rows.json_lines(source)?,
        }
        rows.watcher.progress(self.stage, bytes.get());
        match rows.tally {
            Tally { rows, faults: 0, .. } => Ok(rows),
            Tally { faults, faulty, .. } => Err(ImportError::Faulty { faults, rows: faulty }),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Tally {
    rows: u64,
    faulty: u64,
    faults: u64,
}

/// The rows on their way from the file to the store.
struct Rows<'a> {
    checker: Checker<'a>,
    store: &'a mut dyn FnMut(Sound) -> Result<(), DatabaseError>,
    watcher: &'a mut dyn Watcher,
    stage: Stage,
    bytes: &'a Cell<u64>,
    tally: Tally,
}

impl Rows<'_> {
    fn csv(&mut self, source: impl BufRead) -> Result<(), ImportError> {
        let mut rows = CsvRows::new(source);
        let Some(columns) = self.header(&mut rows)? else { return Ok(()) };
        loop {
            match rows.next()? {
                Next::End => return Ok(()),
                Next::Broken { line, why } => self.bad(vec![RowFault::unreadable(line, why)]),
                Next::Lost { line, why } => {
                    self.bad(vec![RowFault::unreadable(line, why)]);
                    return Ok(());
                }
                Next::Row { line } if rows.width() != columns.len() => {
                    let message = format!("The row has {} cells; the header has {}.", rows.width(), columns.len());
                    self.bad(vec![RowFault::unreadable(line, message)]);
                }
                Next::Row { line } => {
                    let mut cells = vec![None; self.checker.layout.slots.len()];
                    for (at, column) in columns.iter().enumerate() {
                        if let (Some(place), Some(slot)) =
                            (cells.get_mut(*column), self.checker.layout.slots.get(*column))
                        {
                            *place = Some(columns::input(slot.role, rows.cell(at)));
                        }
                    }
                    self.row(line, &cells)?;
                }
            }
        }
    }

    /// For each column the slot that it fills; nothing where the header is at fault.
    fn header(&mut self, rows: &mut CsvRows<impl BufRead>) -> Result<Option<Vec<usize>>, ImportError> {
        let line = match rows.next()? {
            Next::Row { line } => line,
            Next::Broken { line, why } | Next::Lost { line, why } => {
                self.bad(vec![RowFault::unreadable(line, why)]);
                return Ok(None);
            }
            Next::End => {
                let message = "The file is empty. Its first line is a header of field names.";
                self.bad(vec![RowFault::unreadable(1, message)]);
                return Ok(None);
            }
        };
        let layout = self.checker.layout;
        let mut columns = Vec::new();
        let mut faults = Vec::new();
        for name in (0..rows.width()).map(|at| rows.cell(at)) {
            match layout.find(name) {
                Some(slot) => columns.push(slot),
                None => faults.push(layout.unknown(line, name)),
            }
        }
        faults.extend(layout.rivals(&columns).map(|(first, second)| Layout::rivalry(line, first, second)));
        if self.checker.keep_ids && !layout.find("id").is_some_and(|id| columns.contains(&id)) {
            faults.push(RowFault::new(line, "id", "required", "--keep-ids needs the column \"id\"."));
        }
        if faults.is_empty() {
            return Ok(Some(columns));
        }
        self.bad(faults);
        Ok(None)
    }

    fn json_lines(&mut self, source: impl BufRead) -> Result<(), ImportError> {
        let mut lines = Lines::new(source);
        while let Some((line, text)) = lines.next()? {
            match text.map(JsonObject::parse) {
                Err(why) => self.bad(vec![RowFault::unreadable(line, why)]),
                Ok(Err(JsonError { column, what, .. })) => {
                    let message = format!("The line is no JSON object at column {column}: {what}.");
                    self.bad(vec![RowFault::unreadable(line, message)]);
                }
                Ok(Ok(object)) => self.object(line, &object)?,
            }
        }
        Ok(())
    }

    fn object(&mut self, line: u64, object: &JsonObject<'_>) -> Result<(), ImportError> {
        let layout = self.checker.layout;
        let mut cells = vec![None; layout.slots.len()];
        let mut named = Vec::new();
        let mut faults = Vec::new();
        for name in object.names() {
            match layout.find(name) {
                // Of a member given twice the last counts, as in the API.
                Some(slot) if named.contains(&slot) => (),
                Some(slot) => {
                    named.push(slot);
                    if let Some(place) = cells.get_mut(slot) {
                        *place = object.get(name).cloned();
                    }
                }
                None => faults.push(layout.unknown(line, name)),
            }
        }
        faults.extend(layout.rivals(&named).map(|(first, second)| Layout::rivalry(line, first, second)));
        match faults.is_empty() {
            true => self.row(line, &cells),
            false => {
                self.bad(faults);
                Ok(())
            }
        }
    }

    fn row(&mut self, line: u64, cells: &[Option<Input<'_>>]) -> Result<(), ImportError> {
        let mut faults = Vec::new();
        match self.checker.check(line, cells, &mut faults)? {
            // Once something is wrong nothing will be stored, and the rest is only looked at.
            Some(row) if self.tally.faults == 0 => (self.store)(row)?,
            Some(_) => (),
            None => self.bad(faults),
        }
        self.tally.rows += 1;
        if self.tally.rows.is_multiple_of(STEP) {
            self.watcher.progress(self.stage, self.bytes.get());
        }
        Ok(())
    }

    /// One row, or header, with all that is wrong with it.
    fn bad(&mut self, faults: Vec<RowFault>) {
        self.tally.faulty += 1;
        for fault in faults {
            self.tally.faults += 1;
            self.watcher.fault(&fault);
        }
    }
}

/// Counts the bytes that are read.
struct Counted<'a, R> {
    source: R,
    bytes: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}
