//! Directories that a command creates, and removes again if it fails (contract section 10).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::files;

/// The directories that [`NewDirectories::create`] has created. Dropping the value removes those
/// that are empty.
#[derive(Debug)]
pub(crate) struct NewDirectories {
    /// Each directory before its parent.
    created: Vec<PathBuf>,
}

impl NewDirectories {
    /// Creates the directory `path` and its parents with the permissions `mode`, as far as they do
    /// not exist. The names of the new directories are synced.
    ///
    /// # Errors
    ///
    /// The error of the file system. The directories that were created are removed.
    pub(crate) fn create(path: &Path, mode: u32) -> io::Result<NewDirectories> {
        let named = path.ancestors().filter(|directory| !directory.as_os_str().is_empty());
        let missing = named.take_while(|directory| !directory.exists());
        let directories = NewDirectories { created: missing.map(Path::to_owned).collect() };
        DirBuilder::new().recursive(true).mode(mode).create(path)?;
        directories.created.iter().try_for_each(|directory| files::sync_parent(directory))?;
        Ok(directories)
    }

    /// Takes over what `other` has created, which lies inside.
    pub(crate) fn extend(&mut self, mut other: NewDirectories) {
        self.created.splice(0..0, other.created.drain(..));
    }

    /// Keeps all directories when the value is dropped, also empty ones.
    pub(crate) fn keep(&mut self) {
        self.created.clear();
    }
}

impl Drop for NewDirectories {
    fn drop(&mut self) {
        for directory in &self.created {
            // Removal fails for a directory that is not empty, as intended.
            let _ = fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_created_and_empty_directories_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let inner = home.path().join("a/b/c");
        drop(NewDirectories::create(&inner, 0o700).unwrap());
        assert!(!home.path().join("a").exists() && home.path().exists());
        let directories = NewDirectories::create(&inner, 0o700).unwrap();
        fs::write(home.path().join("a/b/file"), "").unwrap();
        drop(directories);
        assert!(home.path().join("a/b/file").exists() && !inner.exists());
        let mut kept = NewDirectories::create(&inner, 0o700).unwrap();
        kept.keep();
        drop(kept);
        assert!(inner.exists());
    }
}
