//! The import of a file in one transaction: all rows or none (contract section 10, `import`).
//!
//! Each row is validated and stored before the next row is read, so memory holds no rows. Memory
//! holds the keys: with `--keep-ids` and `--update-by` as they are, else as hashes. The first error
//! rolls back at once. The rest of the file is then only validated. (After a wrong header, the rows
//! are not read.)
//!
//! Example: a file has 100,000 rows. Row 3 has a wrong date and row 90,000 a wrong e-mail address.
//! Row 3 rolls back rows 1 and 2, and other writers of the tenant go on. Rows 4 to 100,000 are
//! validated, and the operator sees both errors in one run. If the transaction stayed open until
//! row 100,000, other writers would get 503 after 5 seconds, for an import that fails anyway.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher as _;
use std::io;

use super::columns::{Column, Columns, Converted, column_letters, is_total};
use super::merge::{ChangedRecord, FieldChange};
use super::row::{Mode, RowValidator};
use super::{
    Cell, FileFormat, InputFile, InputRow, MAX_COLUMNS, Map, Place, RowError, TransferError,
};
use crate::model::{Field, Json, Resource, Value};
use crate::store::{
    ChangeContext, Draft, FileTransaction, Reading, StoreError, Target, TenantFile, Writing,
};

#[derive(Clone, Copy, Debug)]
pub struct Import<'a> {
    pub resource: &'static Resource,
    pub map: &'a Map,
    pub mode: Mode,
    /// Store the file's values, whatever others have changed since the export.
    pub overwrite: bool,
    /// Read the whole file without storing anything.
    pub dry_run: bool,
}

/// How many records were created, changed and left as they are; in a dry run, would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub created: u64,
    pub changed: u64,
    pub unchanged: u64,
    /// For each field or `custom.NAME`, the number of records in which it changes.
    pub fields: Counts,
    /// For each field or `custom.NAME`, the number of records in which a text became a number:
    /// `007` becomes `7`, `+49` becomes `49`, `1E1` becomes `1.00E+01`.
    pub numbers: Counts,
    /// For each natural key, the number of new records whose value an older record or an earlier
    /// row has, too. Of each row, only the first natural key with a value is compared.
    pub repeated_keys: Counts,
    /// For each column of a workbook, the number of cells that show other characters around a
    /// number. The number alone is imported.
    pub decorated: Counts,
    /// The headings of the map that the file does not have.
    pub absent_headings: Vec<String>,
    /// For each column, the rows whose cell counts as not edited, although the newest version of the
    /// second in `updated_at` has another value.
    pub earlier: BTreeMap<String, Vec<Place>>,
    /// How many values that others have changed since the export are replaced.
    pub set_back: u64,
}

type Counts = BTreeMap<String, u64>;

/// An import ends after so many errors.
pub const MAX_FAULTS: u64 = 100_000;

/// What an import finds in a row.
#[derive(Debug)]
pub enum Finding<'a> {
    Fault(&'a RowError),
    /// An update changes this record.
    Change(&'a ChangedRecord),
}

/// Takes each finding when it is found. An error ends the import, and nothing is stored.
type Report<'a> = dyn FnMut(Finding<'_>) -> io::Result<()> + 'a;

impl Import<'_> {
    /// Imports all rows of `source`. Calls `wait` before it waits for another import into the tenant.
    /// Calls `context` afterwards, so that the changes are dated after the other import's changes.
    pub fn run(
        &self,
        source: InputFile<'_>,
        file: &mut TenantFile,
        context: impl FnOnce() -> ChangeContext,
        wait: impl FnOnce(),
        report: &mut Report<'_>,
    ) -> Result<Imported, TransferError> {
        if self.dry_run {
            return file.read(|reading| self.import_rows(source, reading, None, report));
        }
        // An update finds its records along the indexes.
        let filled = if self.mode.key().is_some() { None } else { Some(self.resource) };
        let transaction = file.begin(filled, wait)?;
        let context = context();
        let writing = transaction.writing(&context);
        let writer = RowWriter { transaction: &transaction, writing: &writing };
        let imported = self.import_rows(source, &writing, Some(writer), report)?;
        transaction.commit()?;
        Ok(imported)
    }

    /// Reads the whole file. Stores its rows until the first invalid row.
    fn import_rows(
        &self,
        source: InputFile<'_>,
        reading: &Reading<'_>,
        writer: Option<RowWriter<'_>>,
        report: &mut Report<'_>,
    ) -> Result<Imported, TransferError> {
        if matches!(self.mode, Mode::KeepIds) && reading.has_ever_held(self.resource)? {
            return Err(TransferError::HasHeldRecords(self.resource.plural));
        }
        let columns = Columns::of(self.resource, self.map);
        let validator = RowValidator::new(
            &columns,
            reading,
            self.mode,
            matches!(self.mode, Mode::UpdateBy(_)) && !self.overwrite,
        );
        let is_compared = matches!(self.mode, Mode::Add) && reading.count(self.resource)? > 0;
        let is_table = source.format != FileFormat::JsonLines;
        let is_workbook = source.format == FileFormat::Xlsx;
        let mut rows = RowImporter {
            validator,
            writer,
            report,
            header: None,
            is_table,
            is_workbook,
            is_compared,
            keys: HashSet::new(),
            hasher: RandomState::new(),
            imported: Imported::default(),
            invalid_rows: 0,
            errors: 0,
        };
        source
            .read(&mut |place, row| Ok(rows.take_row(place, row)? && rows.errors < MAX_FAULTS))?;
        if is_table && rows.header.is_none() && rows.errors == 0 {
            const EMPTY: &str = "The file is empty. Its first line is a header of field names.";
            let place = Place { line: u64::from(!is_workbook), row: 1 };
            rows.reject(vec![RowError::malformed(place, EMPTY.to_owned())])?;
        }
        let RowImporter { errors, invalid_rows, imported, .. } = rows;
        if errors > 0 {
            return Err(TransferError::InvalidRows { errors, rows: invalid_rows });
        }
        Ok(imported)
    }
}

/// Stores rows in the import's transaction.
struct RowWriter<'a> {
    transaction: &'a FileTransaction<'a>,
    writing: &'a Writing<'a>,
}

/// Parses, validates and stores the rows of a file.
struct RowImporter<'a> {
    validator: RowValidator<'a>,
    /// `None` in a dry run, and from the first error on.
    writer: Option<RowWriter<'a>>,
    report: &'a mut Report<'a>,
    /// The header of a table, once it is read.
    header: Option<Vec<Column>>,
    is_table: bool,
    is_workbook: bool,
    /// Whether natural keys are compared with those of older records. An empty table has none, and
    /// its indexes are made after the rows.
    is_compared: bool,
    /// The hashes of the natural keys so far.
    keys: HashSet<u64>,
    hasher: RandomState,
    imported: Imported,
    invalid_rows: u64,
    errors: u64,
}

impl RowImporter<'_> {
    /// Takes a row, or the message about a malformed one. Returns whether to go on.
    fn take_row(
        &mut self,
        place: Place,
        row: Result<InputRow, String>,
    ) -> Result<bool, TransferError> {
        match row {
            Err(message) => {
                self.reject(vec![RowError::malformed(place, message)])?;
                // Without a header, the other rows have no meaning.
                return Ok(self.header.is_some() || !self.is_table);
            }
            Ok(InputRow::Object(members)) => {
                if members.len() > MAX_COLUMNS {
                    let message = format!("The line has more than {MAX_COLUMNS} members.");
                    self.reject(vec![RowError::malformed(place, message)])?;
                    return Ok(true);
                }
                let columns = self.validator.columns;
                let present: Vec<_> =
                    members.keys().map(|name| columns.find_member(name)).collect();
                let errors = columns.check(place, &present, false);
                if errors.is_empty() {
                    let row = columns.convert_members(&present, members);
                    self.import_row(place, &present, row)?;
                } else {
                    self.reject(errors)?;
                }
            }
            Ok(InputRow::Cells(cells)) => {
                let Some(header) = self.header.take() else {
                    return self.take_header(place, &cells);
                };
                if is_total(&header, &cells) {
                    self.reject(vec![RowError::malformed(place, TOTAL.to_owned())])?;
                } else {
                    let columns = self.validator.columns;
                    let row = columns.convert_cells(&header, cells, self.is_workbook);
                    self.import_row(place, &header, row)?;
                }
                self.header = Some(header);
            }
        }
        Ok(true)
    }

    fn take_header(&mut self, place: Place, cells: &[Cell]) -> Result<bool, TransferError> {
        let known = self.validator.columns;
        for (index, cell) in cells.iter().enumerate() {
            if let Cell::Fault(message) = cell {
                let mut error = RowError::malformed(place, message.clone());
                error.column = Some(column_letters(index));
                self.reject(vec![error])?;
                return Ok(false);
            }
        }
        let columns: Vec<_> = cells.iter().map(|cell| known.find(cell.text())).collect();
        let mut errors = known.check(place, &columns, true);
        if let Some(Field { name: key, .. }) = self.validator.mode.key()
            && columns.iter().all(|column| column.name.as_deref() != Some(key))
        {
            let message = format!("The file has no column \"{key}\"; every row needs it.");
            errors.push(RowError::new(place, key, "required", message));
        }
        if errors.is_empty() {
            self.imported.absent_headings = known.absent_headings(&columns);
            self.header = Some(columns);
            return Ok(true);
        }
        if columns.iter().all(|column| column.used_name().is_none()) {
            errors.push(RowError::malformed(place, TITLE.to_owned()));
        }
        self.reject(errors)?;
        Ok(false)
    }

    /// Validates one row, and stores it or reports its errors.
    fn import_row(
        &mut self,
        place: Place,
        columns: &[Column],
        Converted { object, mut faults, decorated, stray }: Converted,
    ) -> Result<(), TransferError> {
        for name in &decorated {
            count(&mut self.imported.decorated, name);
        }
        let draft = self.validator.validate(place, &object, &mut faults)?;
        if !faults.is_empty() {
            let mut errors = Vec::new();
            for (field, code, mut message) in faults {
                let is_word = matches!(code, "not_in_list" | "invalid_bool");
                if is_word && self.validator.columns.map.has_words(&field) {
                    let section = format!("[values.{field}]");
                    message += &format!(" The map has no such word in {section}; case matters.");
                }
                let mut error = RowError::new(place, &field, code, message);
                let is_own = |column: &Column| column.used_name() == Some(&field);
                let index = columns.iter().position(is_own);
                let index = index.or(stray.filter(|_| field == "-"));
                error.column = index.filter(|_| self.is_workbook).map(column_letters);
                let column = index.and_then(|index| columns.get(index)).filter(|_| field != "-");
                error.heading = column.and_then(|column| column.other_heading(&field));
                errors.push(error);
            }
            return self.reject(errors);
        }
        for name in self.validator.earlier.drain(..) {
            self.imported.earlier.entry(name).or_default().push(place);
        }
        self.imported.set_back += self.validator.set_back as u64;
        let Some(draft) = draft else {
            self.imported.unchanged += 1;
            return Ok(());
        };
        self.count_effect(place, &draft)?;
        if let Some(RowWriter { writing, .. }) = &self.writer {
            writing.save(draft)?;
        }
        Ok(())
    }

    /// Counts the effect of a row for the summary that the operator sees.
    fn count_effect(&mut self, place: Place, draft: &Draft) -> Result<(), TransferError> {
        let imported = &mut self.imported;
        let Target::Stored(record) = &draft.target else {
            imported.created += 1;
            return Ok(self.count_repeated_key(draft)?);
        };
        if record.values == draft.values {
            imported.unchanged += 1;
            return Ok(());
        }
        imported.changed += 1;
        let change = ChangedRecord::new(place, draft.resource, record, &draft.values);
        for (name, FieldChange { old, new }) in &change.fields {
            count(&mut imported.fields, name);
            if let (Json::String(old), Json::String(new)) = (old, new)
                && is_number_now(old, new)
            {
                count(&mut imported.numbers, name);
            }
        }
        Ok((self.report)(Finding::Change(&change))?)
    }

    /// Counts a new record if an earlier row or an older record has its first natural key.
    fn count_repeated_key(&mut self, draft: &Draft) -> Result<(), StoreError> {
        if !matches!(self.validator.mode, Mode::Add) {
            return Ok(());
        }
        for (field, value) in draft.resource.fields.iter().zip(&draft.values) {
            if draft.resource.natural_keys.contains(&field.name) && *value != Value::Null {
                let reading = self.validator.reading;
                let is_first = self.keys.insert(self.hasher.hash_one((field.name, value)));
                if !is_first
                    || self.is_compared
                        && !reading.find_all(draft.resource, &[(field, value)])?.is_empty()
                {
                    count(&mut self.imported.repeated_keys, field.name);
                }
                break;
            }
        }
        Ok(())
    }

    /// Counts and reports the errors of a row. The header counts as a row. The first call rolls
    /// back the import, and nothing is stored from then on.
    fn reject(&mut self, errors: Vec<RowError>) -> Result<(), TransferError> {
        if let Some(writer) = self.writer.take() {
            writer.transaction.abandon()?;
        }
        self.invalid_rows += 1;
        for error in &errors {
            if self.errors < MAX_FAULTS {
                self.errors += 1;
                (self.report)(Finding::Fault(error))?;
            }
        }
        Ok(())
    }
}

const TITLE: &str = "No heading of this row is known. If the row is a title, delete the rows above \
                     the header.";
const TOTAL: &str = "The row looks like a total below the table. Delete it. If it is a record, fill \
                     in another text.";

fn count(counts: &mut Counts, name: &str) {
    *counts.entry(name.to_owned()).or_default() += 1;
}

/// Whether a spreadsheet may have turned a text into a number. It turns `007` into `7`, `+49` into
/// `49`, and long or scientific numbers into texts such as `1.00E+01`.
fn is_number_now(old: &str, new: &str) -> bool {
    let number = |text: &str| text.replace(',', ".").parse::<f64>();
    // A value that gets its zeros back is longer.
    let is_shorter = new.len() < old.len();
    let (Ok(old), Ok(number)) = (number(old), number(new)) else { return false };
    is_shorter && old == number || new.contains(['e', 'E'])
}
