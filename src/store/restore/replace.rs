//! Replacement of tenants' files, each of which can be undone.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::error::{RestoreError, at};
use super::staging::{StagingDir, put_back, set_aside};
use crate::files;
use crate::store::connection::{self, OpenError};
use crate::store::{check, page_copy, records, schema, tenants};

/// The replacements of one restore, in their order.
pub(super) struct Replacements<'a> {
    staging: &'a StagingDir,
    steps: Vec<UndoStep>,
}

/// How to undo one replacement.
enum UndoStep {
    /// Copy the content of `previous` into `live`.
    Content { live: PathBuf, previous: PathBuf },
    /// Rename `previous` to `live`. There is no `previous` if the file was missing.
    File { live: PathBuf, previous: PathBuf },
}

impl<'a> Replacements<'a> {
    pub(super) fn new(staging: &'a StagingDir) -> Replacements<'a> {
        Replacements { staging, steps: Vec::new() }
    }

    /// Ends the replacements when all tenants are in the registry. Returns the paths that name another file than before.
    pub(super) fn finish(self) -> Vec<PathBuf> {
        let renamed = |step| match step {
            UndoStep::File { live, .. } => Some(live),
            UndoStep::Content { .. } => None,
        };
        let renamed: Vec<PathBuf> = self.steps.into_iter().filter_map(renamed).collect();
        renamed.iter().for_each(|live| tenants::unmark(live));
        renamed
    }

    /// Replaces the content of the file `live` with that of `staged`. A missing or damaged file is replaced itself.
    pub(super) fn replace(&mut self, live: &Path, staged: &Path) -> Result<(), RestoreError> {
        let connection = match open_undamaged(live) {
            Ok(connection) => connection,
            Err(error @ OpenError::Unusable { .. }) => return Err(error.into()),
            Err(_) => return self.replace_file(live, staged),
        };
        let previous = self.staging.replaced(live);
        page_copy::copy_to(&connection, &previous).map_err(OpenError::from)?;
        replace_content(connection, live, staged)?;
        self.steps.push(UndoStep::Content { live: live.to_owned(), previous });
        Ok(())
    }

    /// Renames `staged` to `live`. The write-ahead log of the previous file is moved away with it: SQLite would apply it to the
    /// new file.
    fn replace_file(&mut self, live: &Path, staged: &Path) -> Result<(), RestoreError> {
        if live.try_exists().map_err(at(live))? {
            // An error is ignored: the counters of a damaged file are taken over only if they can be read.
            let _ = connection::open_raw(staged).and_then(|connection| {
                connection::attach(&connection, live, "live")?;
                connection::raise_id_counters(&connection, "live")?;
                records::renew_journal(&connection, Some("live"))
            });
        }
        let previous = self.staging.replaced(live);
        self.steps.push(UndoStep::File { live: live.to_owned(), previous: previous.clone() });
        set_aside(live, &previous)?;
        // Until the registry has the tenant, the file is one that an interrupted restore has left.
        tenants::mark(live, "").map_err(at(live))?;
        fs::rename(staged, live).and_then(|()| files::sync_parent(live)).map_err(at(live))
    }

    /// Undoes all replacements, the last first. Returns the error to report for `cause`.
    pub(super) fn undo(self, cause: RestoreError) -> RestoreError {
        let cause = Box::new(cause);
        for step in self.steps.into_iter().rev() {
            if let Err(undoing) = step.undo() {
                return RestoreError::Stuck { cause, undoing: Box::new(undoing), kept: self.staging.keep() };
            }
        }
        RestoreError::Undone { cause }
    }
}

impl UndoStep {
    fn undo(&self) -> Result<(), RestoreError> {
        match self {
            UndoStep::Content { live, previous } => {
                replace_content(schema::open(live, &tenants::SCHEMA)?, live, previous)
            }
            UndoStep::File { live, previous } => {
                put_back(live, previous)?;
                tenants::unmark(live);
                Ok(())
            }
        }
    }
}

/// Opens a tenant's file and checks its integrity.
fn open_undamaged(live: &Path) -> Result<Connection, OpenError> {
    let connection = schema::open(live, &tenants::SCHEMA)?;
    match check::first_problem(&connection, &tenants::SCHEMA) {
        Some(cause) => Err(OpenError::Damaged { path: live.to_owned(), cause }),
        None => Ok(connection),
    }
}

/// Replaces every page of `live` in one transaction. The counters of ids and of the journal are taken over when the file is locked:
/// no connection can change a record then.
fn replace_content(mut connection: Connection, live: &Path, staged: &Path) -> Result<(), RestoreError> {
    connection::use_long_busy_timeout(&connection)?;
    let staged = connection::open_raw(staged)?;
    connection::attach(&staged, live, "live")?;
    page_copy::replace_content(&staged, &mut connection, || {
        let transaction = staged.unchecked_transaction()?;
        connection::raise_id_counters(&transaction, "live")?;
        records::renew_journal(&transaction, Some("live"))?;
        keep_litestream_tables(&transaction)?;
        transaction.commit()
    })?;
    Ok(())
}

/// Replaces Litestream's tables in the main database with those of `live`: Litestream continues with that file.
fn keep_litestream_tables(connection: &Connection) -> rusqlite::Result<()> {
    for table in litestream_tables(connection, "main")? {
        connection.execute(&format!("DROP TABLE main.\"{}\"", table.name), [])?;
    }
    for LitestreamTable { name, sql, columns } in litestream_tables(connection, "live")? {
        connection.execute(&sql, [])?;
        let copy = format!("INSERT INTO main.\"{name}\" ({columns}) SELECT {columns} FROM live.\"{name}\"");
        connection.execute(&copy, [])?;
    }
    Ok(())
}

struct LitestreamTable {
    name: String,
    /// The statement that creates it.
    sql: String,
    /// The quoted names of its columns, separated by commas.
    columns: String,
}

fn litestream_tables(connection: &Connection, schema: &str) -> rusqlite::Result<Vec<LitestreamTable>> {
    let mut statement = connection.prepare(&format!(
        "SELECT name, sql, (SELECT group_concat('\"' || c.name || '\"') FROM pragma_table_info(t.name, '{schema}') AS c)
         FROM {schema}.sqlite_master AS t WHERE type = 'table' AND name LIKE '\\_litestream\\_%' ESCAPE '\\'"
    ))?;
    let read =
        |row: &rusqlite::Row<'_>| Ok(LitestreamTable { name: row.get(0)?, sql: row.get(1)?, columns: row.get(2)? });
    statement.query_map([], read)?.collect()
}
