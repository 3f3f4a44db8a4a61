//! Databases with a schema: opened, created, and migrated from older versions. `migrations/README.md` says how to add a
//! migration.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};

use super::connection::{self, OpenError, open_error, unusable};
use super::page_copy::copy_to;
use crate::files;

/// The schema of one kind of database, and the migrations to it.
#[derive(Debug)]
pub struct Schema {
    /// The kind of database, for messages: `registry`, `tenant`.
    pub name: &'static str,
    /// The version of `sql`. A database stores its version in `user_version`.
    pub version: u32,
    /// Creates the schema in an empty database.
    pub sql: &'static str,
    /// `migrations[n]` migrates version `n + 1` to version `n + 2`.
    pub migrations: &'static [Migration],
}

/// One step from a schema version to the next.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// The statements, which run first.
    pub sql: &'static str,
    /// What SQL cannot do.
    pub then: fn(&Connection) -> rusqlite::Result<()>,
}

impl Migration {
    /// A step that is done in SQL alone.
    pub const fn new(sql: &'static str) -> Migration {
        Migration { sql, then: |_| Ok(()) }
    }
}

/// Opens an existing database for reading and writing, and migrates it if its schema is older.
///
/// # Errors
///
/// [`OpenError`]. After a failed migration the file is unchanged.
pub fn open(path: &Path, schema: &Schema) -> Result<Connection, OpenError> {
    match fs::metadata(path) {
        Ok(database) => match_file_modes(path, &database),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(OpenError::Missing(path.to_owned())),
        Err(error) => return Err(unusable(path, error)),
    }
    let mut connection = connection::connect(path).map_err(|error| open_error(path, &error))?;
    match version(&connection).map_err(|error| open_error(path, &error))? {
        0 => Err(OpenError::Damaged { path: path.to_owned(), cause: "it has no schema".to_owned() }),
        found if found == schema.version => Ok(connection),
        found if found > schema.version => {
            Err(OpenError::Newer { path: path.to_owned(), found, known: schema.version })
        }
        _older => {
            migrate(path, &mut connection, schema)?;
            Ok(connection)
        }
    }
}

/// Gives the files `-wal` and `-shm` the mode of the database. SQLite copies the mode when it creates them, so they are still
/// read-only if the database was read-only then. An error is ignored: opening the database reports it.
fn match_file_modes(path: &Path, database: &Metadata) {
    for suffix in ["-wal", "-shm"] {
        let sibling = connection::sibling_path(path, suffix);
        if fs::metadata(&sibling).is_ok_and(|found| found.permissions() != database.permissions()) {
            let _ = fs::set_permissions(&sibling, database.permissions());
        }
    }
}

/// Creates a database, private to the owner. Opens the file instead if it exists. A file whose creation was interrupted is
/// replaced.
///
/// # Errors
///
/// [`OpenError`]. A new file is removed.
pub fn create(path: &Path, schema: &Schema) -> Result<Connection, OpenError> {
    match open(path, schema) {
        Err(OpenError::Missing(_)) => (),
        Err(OpenError::Damaged { .. }) if is_unfinished(path) => (),
        opened => return opened,
    }
    place_new(path, schema)?;
    open(path, schema).inspect_err(|_| connection::remove_database(path))
}

/// Returns whether the creation of the database was interrupted: the file is empty, or a database without a table.
pub fn is_unfinished(path: &Path) -> bool {
    let count = "SELECT count(*) FROM sqlite_schema";
    let tables = |connection: Connection| connection.query_row(count, [], |row| row.get::<_, i64>(0));
    path.exists() && connection::open_raw(path).and_then(tables) == Ok(0)
}

/// Creates the database under a temporary name, and renames it when it is complete and synced. A crash at any moment leaves the
/// whole database under its name, or none.
fn place_new(path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let failed = |error: io::Error| unusable(path, error);
    let folder = files::open_parent(path).map_err(failed)?;
    // Another process may create the same database.
    folder.lock().map_err(failed)?;
    if path.exists() && !is_unfinished(path) {
        return Ok(());
    }
    let partial = connection::sibling_path(path, ".partial");
    connection::remove_database(&partial);
    let place = || -> Result<(), OpenError> {
        write_schema(&partial, schema)?;
        connection::remove_database(path);
        fs::rename(&partial, path).and_then(|()| folder.sync_all()).map_err(failed)
    };
    place().inspect_err(|_| {
        connection::remove_database(&partial);
        connection::remove_database(path);
    })
}

/// Writes a new database with the schema, and syncs it.
fn write_schema(path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let file = files::create_private(path).map_err(|error| unusable(path, error))?;
    let write = || -> rusqlite::Result<()> {
        let mut connection = connection::open_raw(path)?;
        // Nobody reads the file before it is complete, and it is synced once.
        connection.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF")?;
        let transaction = connection.transaction()?;
        transaction.execute_batch(schema.sql)?;
        transaction.pragma_update(None, "user_version", schema.version)?;
        transaction.commit()?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.close().map_err(|(_, error)| error)
    };
    write().map_err(|error| open_error(path, &error))?;
    file.sync_all().map_err(|error| unusable(path, error))
}

/// Returns the schema version of the database, 0 for an empty one.
///
/// # Errors
///
/// Those of SQLite: the file is no database or cannot be read.
pub fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Keeps a copy of the file, then runs all steps in one transaction. If several processes migrate the same file, the first does
/// it and the others find the current version.
fn migrate(path: &Path, connection: &mut Connection, schema: &Schema) -> Result<(), OpenError> {
    let failed = |error: rusqlite::Error| open_error(path, &error);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = version(&transaction).map_err(failed)?;
    if found >= schema.version {
        return Ok(());
    }
    let copy = copy_before_migration(path, found)?;
    let completed = usize::try_from(found.saturating_sub(1)).unwrap_or(usize::MAX);
    let run_steps = || -> rusqlite::Result<()> {
        for step in schema.migrations.iter().skip(completed) {
            transaction.execute_batch(step.sql)?;
            (step.then)(&transaction)?;
        }
        transaction.pragma_update(None, "user_version", schema.version)
    };
    run_steps().and_then(|()| connection::commit(transaction)).map_err(|error| {
        // An older program may still write to the file. The next attempt makes its own copy.
        if let Some(copy) = copy {
            let _ = fs::remove_file(copy);
        }
        let cause = format!("migrating it from schema {found} to {} failed ({error})", schema.version);
        unusable(path, cause)
    })?;
    tracing::info!(file = %path.display(), from = found, to = schema.version, "schema migrated");
    Ok(())
}

/// Copies `1.db` to `1.db.v1` and returns the path of the copy, or `None` if it exists already. The caller's transaction blocks
/// writers but not the reads of the copy.
fn copy_before_migration(path: &Path, found: u32) -> Result<Option<PathBuf>, OpenError> {
    let copy = path.with_extension(format!("db.v{found}"));
    if copy.try_exists().map_err(|error| unusable(path, error))? {
        return Ok(None);
    }
    let partial = path.with_extension(format!("db.v{found}.partial"));
    files::ignore_missing(fs::remove_file(&partial)).map_err(|error| unusable(&partial, error))?;
    let source = connection::open_raw(path).map_err(|error| open_error(path, &error))?;
    copy_to(&source, &partial)?;
    let renamed = fs::rename(&partial, &copy).and_then(|()| files::sync_parent(&copy));
    renamed.map_err(|error| {
        connection::remove_database(&partial);
        connection::remove_database(&copy);
        unusable(&copy, error)
    })?;
    Ok(Some(copy))
}
