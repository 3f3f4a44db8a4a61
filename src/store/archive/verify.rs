//! Files of a backup, copied and verified: what a stranger has prepared is refused (contract
//! section 10). A checksum does not show who made a backup, so everything is checked that the
//! program relies on elsewhere.
//!
//! The databases are checked on private copies. Nothing that a schema brings along is evaluated: a
//! view, a trigger or another table is refused or dropped first.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::manifest::{Manifest, SavedTenant, digest};
use super::{ArchiveError, at, check};
use crate::files;
use crate::store::database::{self, Database, LITESTREAM_TABLES, Schema};
use crate::store::{registry, tenant};

/// The backup that is restored.
pub(super) struct Source {
    pub(super) directory: PathBuf,
    pub(super) manifest: Manifest,
}

impl Source {
    /// Copies the registry, without sessions, to the directory `staging`.
    pub(super) fn copy_registry(&self, staging: &Path) -> Result<Connection, ArchiveError> {
        let connection = self.copy(registry::FILE, &registry::SCHEMA, staging)?;
        let tenants = check::tenants(&connection)?;
        let ids = tenants.iter().map(|tenant| (tenant.id, tenant.name.as_str()));
        if !ids.eq(self.manifest.tenant_ids()) {
            let path = self.directory.join(registry::FILE);
            return Err(refused(&path, "does not have the tenants of the manifest"));
        }
        connection.execute("DELETE FROM sessions", [])?;
        Ok(connection)
    }

    /// Copies a tenant's file to the directory `staging`.
    pub(super) fn copy_tenant(
        &self,
        saved: &SavedTenant,
        staging: &Path,
    ) -> Result<Connection, ArchiveError> {
        self.copy(&saved.file(), &tenant::SCHEMA, staging)
    }

    /// Copies a database and migrates it if it is older. Returns it open, without Litestream's
    /// tables.
    fn copy(
        &self,
        file: &str,
        schema: &'static Schema,
        staging: &Path,
    ) -> Result<Connection, ArchiveError> {
        let (from, to) = (self.directory.join(file), staging.join(file));
        let refuse = |what: &str| refused(&from, what);
        let unusable = |error: &dyn Display| refuse(&format!("cannot be used ({error})"));
        let saved = self.manifest.file(file).ok_or_else(|| refuse("is not in the manifest"))?;
        let source =
            open_regular(&from).map_err(|error| refuse(&format!("cannot be read ({error})")))?;
        let target = files::create_private(&to).map_err(at(&to))?;
        let (_, sum) = digest(source.take(saved.bytes), target).map_err(at(&to))?;
        if sum != saved.sha256 {
            return Err(refuse("is not what the manifest's SHA-256 says"));
        }
        let is_strange = |what: String| refuse(&format!("is not as tenantdesk makes it: {what}"));
        let problems = unsafe_to_migrate(&to, schema).map_err(|error| unusable(&error))?;
        problems.into_iter().next().map_or(Ok(()), |what| Err(is_strange(what)))?;
        Database::new(&to, schema).migrate().map_err(|error| unusable(&error))?;
        let connection = open_staged(&to)?;
        let mut problems = check::faults(&connection, schema);
        if problems.is_empty() {
            problems = check::strange_values(&connection, schema);
        }
        problems.into_iter().next().map_or(Ok(()), |what| Err(is_strange(what)))?;
        for table in LITESTREAM_TABLES {
            connection.execute_batch(&format!("DROP TABLE IF EXISTS main.{table}"))?;
        }
        Ok(connection)
    }
}

/// Opens a file that may be anything: a FIFO would block, a symbolic link leads elsewhere.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let irregular = || io::Error::other("it is not a regular file");
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP | Errno::NXIO) => irregular(),
        _ => error,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

/// Refuses the file of the backup at `path`. `what` may quote it.
fn refused(path: &Path, what: &str) -> ArchiveError {
    let what = what.replace(char::is_control, " ");
    ArchiveError::Refused { path: path.to_owned(), what }
}

fn open_staged(path: &Path) -> rusqlite::Result<Connection> {
    let connection = database::open_plain(path)?;
    // It is synced once, when it is complete. One file is renamed, so it has no WAL.
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = DELETE")?;
    Ok(connection)
}

/// A migration runs in a schema that is not known to be the program's, and drops its triggers. So
/// there may be no views, and nothing is damaged. Returns what is wrong.
fn unsafe_to_migrate(path: &Path, schema: &Schema) -> rusqlite::Result<Vec<String>> {
    let connection = open_staged(path)?;
    if database::version(&connection)? >= schema.version {
        return Ok(Vec::new());
    }
    let unknown = "SELECT 'it has ' || name FROM pragma_table_list WHERE schema = 'main'
        AND (type = 'view' OR type = 'virtual' AND name NOT LIKE '%\\_search' ESCAPE '\\')";
    let problems = check::texts(&connection, unknown)?;
    if problems.is_empty() { check::integrity_problems(&connection) } else { Ok(problems) }
}
