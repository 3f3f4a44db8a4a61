//! Folders that a command makes on its way, and removes again where it fails (contract section 10).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// A folder and its parents, as far as they did not exist. Those that are still empty are removed when this is dropped.
#[derive(Debug)]
pub struct NewFolders {
    /// Each before the one that holds it.
    made: Vec<PathBuf>,
}

impl NewFolders {
    /// Makes the folder `path` and its parents, with `mode`, where they do not exist.
    ///
    /// # Errors
    ///
    /// Those of the file system. What was made is removed.
    pub fn make(path: &Path, mode: u32) -> io::Result<NewFolders> {
        let named = path.ancestors().filter(|folder| !folder.as_os_str().is_empty());
        let missing = named.take_while(|folder| !folder.exists());
        let folders = NewFolders { made: missing.map(Path::to_owned).collect() };
        DirBuilder::new().recursive(true).mode(mode).create(path)?;
        Ok(folders)
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    /// They stay, empty or not.
    pub fn keep(&mut self) {
        self.made.clear();
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        for folder in &self.made {
            // One that is not empty stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_and_is_empty_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let inner = home.path().join("a/b/c");
        drop(NewFolders::make(&inner, 0o700).unwrap());
        assert!(!home.path().join("a").exists() && home.path().exists());
        let folders = NewFolders::make(&inner, 0o700).unwrap();
        fs::write(home.path().join("a/b/file"), "").unwrap();
        drop(folders);
        assert!(home.path().join("a/b/file").exists() && !inner.exists());
        let mut kept = NewFolders::make(&inner, 0o700).unwrap();
        kept.keep();
        drop(kept);
        assert!(inner.exists());
    }
}
