//! The tables and files of Litestream, if it replicates the data directory. The rest of the program
//! knows Litestream only as the replicator.

use std::fs;
use std::io;
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension as _};

use super::Database;
use crate::files;

/// The replicator's tables in a database.
pub(super) const TABLES: [&str; 2] = ["_litestream_seq", "_litestream_lock"];

/// The advice to the operator after a file was replaced by another one.
pub(crate) const RESTART: &str = "if Litestream replicates this directory, restart it (systemctl \
     restart tenantdesk-copy): files were replaced, and it may not detect that";

impl Database {
    fn replica_directory(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}-litestream"))
    }

    /// Whether the database is replicated.
    pub(crate) fn is_replicated(&self) -> bool {
        self.replica_directory().is_dir()
    }

    pub(crate) fn remove_replica_directory(&self) -> io::Result<()> {
        files::ignore_missing(fs::remove_dir_all(self.replica_directory()))
    }
}

/// Drops the replicator's tables.
pub(crate) fn forget(connection: &Connection) -> rusqlite::Result<()> {
    let drop = |table| connection.execute_batch(&format!("DROP TABLE IF EXISTS main.{table}"));
    TABLES.into_iter().try_for_each(drop)
}

/// Copies the replicator's tables from the attached database `live`.
pub(crate) fn take_over(connection: &Connection) -> rusqlite::Result<()> {
    for table in TABLES {
        let sql = "SELECT sql FROM live.sqlite_schema WHERE type = 'table' AND name = ?";
        let created = connection.query_row(sql, [table], |row| row.get::<_, String>(0));
        if let Some(create) = created.optional()? {
            let copy = format!("INSERT INTO main.{table} SELECT * FROM live.{table}");
            connection.execute_batch(&format!("{create}; {copy}"))?;
        }
    }
    Ok(())
}
