//! Where a tenant's file is, and what belongs to it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::uncommitted::mark_path;
use crate::files::{self, ignore_missing};
use crate::store::connection;

/// The folder of the tenants' files in a data directory.
pub fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("tenants")
}

/// The file of the tenant `id` in `folder`.
pub fn file(folder: &Path, id: i64) -> PathBuf {
    folder.join(format!("{id}.db"))
}

/// Returns the ids of the tenants' files in a data directory. Files with other names are ignored.
///
/// # Errors
///
/// Those of the file system, unless the folder does not exist.
pub(in crate::store) fn file_ids(data_dir: &Path) -> io::Result<BTreeSet<i64>> {
    let mut ids = BTreeSet::new();
    let entries = match fs::read_dir(folder(data_dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ids),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".db")).and_then(|stem| stem.parse().ok());
        ids.extend(id.filter(|id: &i64| *id > 0));
    }
    Ok(ids)
}

/// Removes a tenant's file, what SQLite and Litestream keep beside it, and copies from before migrations. Its mark is removed last,
/// when all else is durably gone.
///
/// # Errors
///
/// The first file that cannot be removed. A file that does not exist is no error.
pub fn remove_file(data_dir: &Path, id: i64) -> io::Result<()> {
    let path = file(&folder(data_dir), id);
    let mark = mark_path(&path);
    for name in files_of(&path)?.into_iter().filter(|name| *name != mark) {
        ignore_missing(fs::remove_file(&name))?;
    }
    ignore_missing(fs::remove_dir_all(litestream_folder(&path)))?;
    files::sync_parent(&path)?;
    ignore_missing(fs::remove_file(mark))
}

/// The folder in which Litestream keeps the last changes of a database: `.1.db-litestream`.
pub(in crate::store) fn litestream_folder(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push("-litestream");
    path.with_file_name(name)
}

/// The file itself first, then every file whose name begins with its name and a hyphen or a dot.
fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = vec![path.to_owned()];
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(files) };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?.file_name();
        let rest = entry.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        if rest.is_some_and(|rest| rest.starts_with(b".") || rest.starts_with(b"-")) {
            files.push(folder.join(entry));
        }
    }
    Ok(files)
}

/// A database's file and the two that SQLite keeps beside it.
pub(in crate::store) fn with_companions(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| connection::sibling_path(path, suffix))
}
