//! The tables and files of Litestream, if it replicates the data directory. After a restore, the
//! operator restarts it (examples/standby).

use std::fs;
use std::io;
use std::path::PathBuf;

use super::Database;
use crate::files;

/// The replicator's tables in a database.
pub(super) const TABLES: [&str; 2] = ["_litestream_seq", "_litestream_lock"];

impl Database {
    fn replica_directory(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}-litestream"))
    }

    /// Whether the database is replicated.
    pub(super) fn is_replicated(&self) -> bool {
        self.replica_directory().is_dir()
    }

    pub(crate) fn remove_replica_directory(&self) -> io::Result<()> {
        files::ignore_missing(fs::remove_dir_all(self.replica_directory()))
    }
}
