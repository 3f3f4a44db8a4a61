//! One type for the registry and for tenants' files: where it is, how it is opened, and how a
//! commit reaches the disk.
//!
//! | file | its concern |
//! |---|---|
//! | `connection` | connections and their pragmas |
//! | `schema` | creation, versions, migration, comparison |
//! | `wal` | commits, checkpoints, and the end of the process at a failed sync |
//! | `copy` | whole databases, page by page |
//! | `replica` | tables and files of a replicator in and beside a database |

mod connection;
mod copy;
pub(crate) mod replica;
mod schema;
mod wal;

use std::ffi::OsStr;
use std::fs;
use std::iter;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode};

pub(crate) use connection::{LOCK_WAIT, open_plain, version, wait_for};
pub(crate) use copy::{copy_pages, is_write_error, replace_content};
pub(crate) use schema::{SQL_CURE, Schema, differences};
pub(crate) use wal::{LAST_LINE, commit, make_durable, recover};

use super::error::OpenError;
use crate::clock::Timestamp;

/// The registry or a tenant's file.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    path: PathBuf,
    pub(crate) schema: &'static Schema,
}

/// The purpose of a connection, which decides the size of its page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Reads of requests.
    Reader,
    /// Writes of requests. 100 changes touch about 1,000 pages.
    Writer,
    /// A command that reads or writes whole tables, and a dozen indexes with them.
    Bulk,
}

impl Database {
    pub(crate) fn new(path: impl Into<PathBuf>, schema: &'static Schema) -> Database {
        Database { path: path.into(), schema }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name in a data directory or a backup: `registry.db`, `tenants/1.db`.
    pub(crate) fn name_in(&self, directory: &Path) -> String {
        let name = self.path.strip_prefix(directory).unwrap_or(&self.path);
        name.to_string_lossy().into_owned()
    }

    /// The path of a file that SQLite keeps beside the database.
    pub(crate) fn companion(&self, suffix: &str) -> PathBuf {
        companion(&self.path, suffix)
    }

    /// The database and what SQLite keeps beside it.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let companions = ["-wal", "-shm", "-journal"].map(|suffix| self.companion(suffix));
        iter::once(self.path.clone()).chain(companions)
    }

    /// Removes the database's files. Errors are ignored: the caller has just created the files, and
    /// nothing uses them.
    pub(crate) fn remove(&self) {
        for file in self.files() {
            let _ = fs::remove_file(file);
        }
    }

    pub(crate) fn attach_to(&self, connection: &Connection, name: &str) -> rusqlite::Result<()> {
        let path = self.path.to_str().filter(|_| self.require_file().is_ok());
        let path = path.ok_or_else(|| rusqlite::Error::InvalidPath(self.path.clone()))?;
        connection.execute(&format!("ATTACH ? AS {name}"), [path]).map(drop)
    }

    /// An error about this database with the text of `cause`.
    pub(crate) fn unusable(&self, cause: impl ToString) -> OpenError {
        OpenError::unusable(&self.path, cause)
    }

    /// The error for one of SQLite. Damage of the file is told apart.
    pub(crate) fn error(&self, error: &rusqlite::Error) -> OpenError {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                OpenError::Damaged { path: self.path.clone(), cause: error.to_string() }
            }
            _ => self.unusable(error),
        }
    }

    /// Identifies the file that the path names now.
    pub(crate) fn identity(&self) -> Result<FileIdentity, OpenError> {
        let found = fs::symlink_metadata(&self.path).map_err(|error| self.unusable(error))?;
        Ok((found.dev(), found.ino()))
    }
}

/// Device and inode. An open connection goes on with a file that was removed or replaced; two
/// equal identities show that it was not.
pub(crate) type FileIdentity = (u64, u64);

/// The path of a file that SQLite keeps beside the database at `path`.
pub(crate) fn companion(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Runs a statement that returns nothing, prepared once for each connection.
pub(crate) fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// RFC 3339 in UTC and whole seconds, whose order as text is that of time.
impl ToSql for Timestamp {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.to_string().into())
    }
}

impl FromSql for Timestamp {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Timestamp> {
        value.as_str()?.parse().map_err(FromSqlError::other)
    }
}

#[cfg(test)]
mod tests;
