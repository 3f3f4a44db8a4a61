//! The operator's decision that changes are answered without the copy: a file in the data directory. It outlives the process, and
//! every process that serves or changes the directory sees it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::clock::Moment;
use crate::files;

/// The name of the file. It holds the time of the suspension, RFC 3339.
const FILE: &str = "copy.suspended";

/// Whether changes to a data directory are answered without the copy.
#[derive(Clone, Debug)]
pub struct Suspension {
    path: PathBuf,
}

impl Suspension {
    /// The suspension of the copy of `data_dir`.
    pub fn of(data_dir: &Path) -> Suspension {
        Suspension { path: data_dir.join(FILE) }
    }

    /// Returns whether the copy is suspended.
    pub fn is_active(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }

    /// Returns the time of the suspension, RFC 3339, or `None` if the copy is not suspended.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn since(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Suspends the copy. Returns `false` if it was suspended before. The file is synced.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn begin(&self, now: Moment) -> io::Result<bool> {
        let mut file = match files::create_private(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            file => file?,
        };
        writeln!(file, "{}", now.rfc3339())?;
        file.sync_all()?;
        self.sync_folder()?;
        Ok(true)
    }

    /// Ends the suspension. It is no error if there was none.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn end(&self) -> io::Result<()> {
        files::ignore_missing(fs::remove_file(&self.path))?;
        self.sync_folder()
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_suspension_lasts_until_it_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let suspension = Suspension::of(folder.path());
        let at = |time: &str| Clock::manual(time.parse().unwrap()).now();
        assert!(!suspension.is_active());
        assert!(suspension.begin(at("2026-11-22T10:00:00Z")).unwrap());
        assert!(!suspension.begin(at("2026-11-22T11:00:00Z")).unwrap());
        assert!(Suspension::of(folder.path()).is_active());
        assert_eq!(suspension.since().unwrap().as_deref(), Some("2026-11-22T10:00:00Z"));
        suspension.end().unwrap();
        suspension.end().unwrap();
        assert_eq!((suspension.is_active(), suspension.since().unwrap()), (false, None));
    }
}
