//! What a Litestream process says of the copy of a data directory.

use std::path::{Path, PathBuf};
use std::time::Instant;

use jiff::Timestamp;

use super::control_socket::{ControlSocket, SocketError};
use super::{PATIENCE, absolute};
use crate::clock::Moment;

/// The oldest version of Litestream to use. Older ones contain a SQLite that can damage a database when two processes write to it.
pub const MIN_VERSION: Version = Version([0, 5, 17]);

/// A version of Litestream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version([u32; 3]);

impl Version {
    /// Parses `0.5.17` or `v0.5.17`. Returns `None` for the name of a development build.
    pub fn parse(text: &str) -> Option<Version> {
        let mut numbers = text.strip_prefix('v').unwrap_or(text).split('.').map(str::parse);
        let version = Version([numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?]);
        numbers.next().is_none().then_some(version)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Version([major, minor, patch]) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// What Litestream says of itself and of the copy.
#[derive(Clone, Debug)]
pub struct CopyStatus {
    /// Litestream's version, in its own spelling.
    pub version: String,
    /// The databases that were asked for, in that order.
    pub databases: Vec<DatabaseStatus>,
}

/// What Litestream says of one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseStatus {
    /// The path in the data directory.
    pub name: String,
    /// When the copy last had everything that Litestream knew of; `None` if it never had, or if Litestream does not know the database.
    pub last_sync: Option<Timestamp>,
}

impl DatabaseStatus {
    /// How long ago the copy had everything, in seconds. Litestream looks at every database once a second unless it is configured
    /// otherwise, so this is about a second where nothing is behind.
    pub fn seconds_behind(&self, now: Moment) -> Option<f64> {
        Some(now.wall.duration_since(self.last_sync?).as_secs_f64().max(0.0))
    }
}

impl CopyStatus {
    /// Asks Litestream for the databases `names` of `data_dir`.
    ///
    /// # Errors
    ///
    /// [`SocketError`].
    pub fn read(socket: &ControlSocket, data_dir: &Path, names: Vec<String>) -> Result<CopyStatus, SocketError> {
        let deadline = Instant::now() + PATIENCE;
        let version = socket.info(deadline)?.version;
        let known = socket.databases(deadline)?;
        let folder: PathBuf = absolute(data_dir)?;
        let status = |name: String| {
            let path = folder.join(&name);
            let last_sync = known.iter().find(|known| known.path == path).and_then(|known| known.last_sync());
            DatabaseStatus { name, last_sync }
        };
        Ok(CopyStatus { version, databases: names.into_iter().map(status).collect() })
    }

    /// The databases that are not in the copy.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.databases.iter().filter(|database| database.last_sync.is_none()).map(|database| database.name.as_str())
    }

    /// The database that is furthest behind, and the seconds.
    pub fn furthest_behind(&self, now: Moment) -> Option<(&str, f64)> {
        let behind =
            self.databases.iter().filter_map(|database| Some((database.name.as_str(), database.seconds_behind(now)?)));
        behind.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(Version::parse("0.5.9").unwrap() < MIN_VERSION);
        assert!(Version::parse("v0.5.17").unwrap() == MIN_VERSION);
        assert!(Version::parse("0.10.0").unwrap() > MIN_VERSION);
        for other in ["", "(development build)", "0.5", "0.5.17.1", "0.5.x"] {
            assert_eq!(Version::parse(other), None, "{other}");
        }
        assert_eq!(MIN_VERSION.to_string(), "0.5.17");
    }
}
