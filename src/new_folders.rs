//! Folders that a command creates, and removes again if it fails (contract section 10).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::files;

/// The folders that [`NewFolders::create`] has created. Dropping the value removes those that are empty.
#[derive(Debug)]
pub struct NewFolders {
    /// Each folder before its parent.
    created: Vec<PathBuf>,
}

impl NewFolders {
    /// Creates the folder `path` and its parents with the permissions `mode`, as far as they do not exist. The names of the new
    /// folders are synced.
    ///
    /// # Errors
    ///
    /// The error of the file system. The folders that were created are removed.
    pub fn create(path: &Path, mode: u32) -> io::Result<NewFolders> {
        let named = path.ancestors().filter(|folder| !folder.as_os_str().is_empty());
        let missing = named.take_while(|folder| !folder.exists());
        let folders = NewFolders { created: missing.map(Path::to_owned).collect() };
        DirBuilder::new().recursive(true).mode(mode).create(path)?;
        folders.created.iter().try_for_each(|folder| files::sync_parent(folder))?;
        Ok(folders)
    }

    /// Takes over what `other` has created, which lies inside.
    pub fn extend(&mut self, mut other: NewFolders) {
        self.created.splice(0..0, other.created.drain(..));
    }

    /// Keeps all folders when the value is dropped, also empty ones.
    pub fn keep(&mut self) {
        self.created.clear();
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        for folder in &self.created {
            // Removal fails for a folder that is not empty, as intended.
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_created_and_empty_folders_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let inner = home.path().join("a/b/c");
        drop(NewFolders::create(&inner, 0o700).unwrap());
        assert!(!home.path().join("a").exists() && home.path().exists());
        let folders = NewFolders::create(&inner, 0o700).unwrap();
        fs::write(home.path().join("a/b/file"), "").unwrap();
        drop(folders);
        assert!(home.path().join("a/b/file").exists() && !inner.exists());
        let mut kept = NewFolders::create(&inner, 0o700).unwrap();
        kept.keep();
        drop(kept);
        assert!(inner.exists());
    }
}
