//! Marks of files whose tenant is being created, restored or deleted.
//!
//! A change of the registry and one of the folder cannot be one transaction. A mark beside the file, `1.db.uncommitted`, says that
//! such a change is under way. It is synced before the registry commits. After a crash the registry decides: a marked file without
//! a tenant is removed, one with a tenant stays.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::files::{file, folder};
use crate::files::{create_private, ignore_missing, sync_parent};
use crate::store::connection::sibling_path;

const SUFFIX: &str = ".uncommitted";

/// Returns the path of the mark of the tenant's file `database`.
pub(super) fn mark_path(database: &Path) -> PathBuf {
    sibling_path(database, SUFFIX)
}

/// Marks the tenant's file `database` and syncs the mark. `deleted` is the name of the tenant that is being deleted, otherwise
/// empty.
///
/// # Errors
///
/// Those of the file system.
pub(in crate::store) fn mark(database: &Path, deleted: &str) -> io::Result<()> {
    let path = mark_path(database);
    ignore_missing(fs::remove_file(&path))?;
    let mut mark = create_private(&path)?;
    mark.write_all(deleted.as_bytes())?;
    mark.sync_all()?;
    sync_parent(&path)
}

/// Removes the mark of the tenant's file `database`. An error is ignored: beside the file of a tenant, a mark has no effect.
pub(in crate::store) fn unmark(database: &Path) {
    let _ = fs::remove_file(mark_path(database));
}

/// A marked file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct MarkedFile {
    /// The tenant's id.
    pub id: i64,
    /// The name of the tenant that was being deleted, otherwise empty.
    pub deleted: String,
}

/// Returns the marked files of a data directory.
///
/// # Errors
///
/// Those of the file system, unless the folder does not exist.
pub(in crate::store) fn marked_files(data_dir: &Path) -> io::Result<Vec<MarkedFile>> {
    let folder = folder(data_dir);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut marked = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)?.strip_suffix(".db"));
        if let Some(id) = stem.and_then(|stem| stem.parse().ok()) {
            // The process that made the mark may remove it meanwhile.
            let deleted = fs::read_to_string(mark_path(&file(&folder, id))).unwrap_or_default();
            marked.push(MarkedFile { id, deleted });
        }
    }
    Ok(marked)
}
