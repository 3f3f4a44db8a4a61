//! Folders that are private to the owner (contract section 11).

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::connection::{OpenError, unusable};
use super::tenants;
use crate::new_folders::NewFolders;

/// Creates the data directory if it does not exist.
///
/// An existing folder becomes private to the owner if it is empty except for hidden files, such as a `.gitignore`. A folder that
/// is in use keeps its mode.
///
/// # Errors
///
/// [`OpenError::Unusable`].
pub(super) fn create_data_dir(data_dir: &Path) -> Result<(), OpenError> {
    let is_hidden = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."))
    };
    let create = || {
        create_private_dir(data_dir)?;
        if fs::read_dir(data_dir)?.all(is_hidden) {
            fs::set_permissions(data_dir, Permissions::from_mode(0o700))?;
        }
        create_private_dir(&tenants::folder(data_dir))
    };
    create().map_err(|error| unusable(data_dir, error))
}

/// Creates a folder and its parents, private to the owner, if they do not exist. New names are synced.
///
/// # Errors
///
/// Those of the file system.
pub(super) fn create_private_dir(path: &Path) -> io::Result<()> {
    NewFolders::create(path, 0o700)?.keep();
    Ok(())
}
