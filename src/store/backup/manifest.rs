//! The manifest of a backup, `manifest.json`: its tenants, and the length and SHA-256 of its files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The format of manifest that this program writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The file name of the manifest in the backup.
pub const NAME: &str = "manifest.json";

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackupKind {
    /// All tenants.
    All,
    /// One tenant.
    Tenant,
}

/// The content of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// See [`FORMAT`].
    pub format: u32,
    /// The version of the program that created the backup.
    pub tenantdesk: String,
    /// RFC 3339.
    pub created_at: String,
    /// One more than that of the newest backup in the same folder; 0 in a manifest of an earlier version.
    #[serde(default)]
    pub sequence: u64,
    /// Whether it holds all tenants or one.
    pub kind: BackupKind,
    /// The tenants whose files the backup holds.
    pub tenants: Vec<SavedTenant>,
    /// The tenants whose files could not be read. The backup's registry holds their rows and keys.
    #[serde(default)]
    pub left_out: Vec<LeftOutTenant>,
    /// The files of the backup, except the manifest.
    pub files: Vec<SavedFile>,
}

/// One tenant of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTenant {
    /// The tenant's id.
    pub id: i64,
    /// The tenant's name.
    pub name: String,
    /// When the tenant was created, RFC 3339; `None` in a manifest of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// Resource → number of its records.
    pub records: BTreeMap<String, i64>,
}

impl SavedTenant {
    /// Returns whether both are the same tenant, perhaps under two names. A tenant of another data directory may have the same id.
    pub fn is_same(&self, other: &SavedTenant) -> bool {
        let is_same_creation = match (&self.created_at, &other.created_at) {
            (Some(own), Some(others)) => own == others,
            _ => self.name == other.name,
        };
        self.id == other.id && is_same_creation
    }
}

/// A tenant that a backup of all tenants lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutTenant {
    /// The tenant's id.
    pub id: i64,
    /// The tenant's name.
    pub name: String,
    /// Why its file could not be read.
    pub reason: String,
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFile {
    /// `registry.db` or `tenants/1.db`.
    pub path: String,
    /// Its schema version.
    pub schema: u32,
    /// Its length.
    pub bytes: u64,
    /// In hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Reads the manifest of the backup in `folder`.
    ///
    /// # Errors
    ///
    /// Those of the file system; `InvalidData` if the manifest is malformed or of a newer format.
    pub fn read(folder: &Path) -> io::Result<Manifest> {
        let invalid = |cause: String| io::Error::new(io::ErrorKind::InvalidData, cause);
        let text = fs::read_to_string(folder.join(NAME))?;
        /// Parsed first, because a newer format may have other members.
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let FormatOnly { format } = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        if format > FORMAT {
            return Err(invalid(format!("it was written by a newer version of tenantdesk (format {format})")));
        }
        serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))
    }

    /// Returns the saved tenant of this name.
    pub fn tenant(&self, name: &str) -> Option<&SavedTenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    /// Returns the tenant of this name if it was left out.
    pub fn left_out(&self, name: &str) -> Option<&LeftOutTenant> {
        self.left_out.iter().find(|tenant| tenant.name == name)
    }

    /// Returns the file of this path.
    pub fn file(&self, path: &str) -> Option<&SavedFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

/// Copies `source` to `target`. Returns the length and the SHA-256 in hexadecimal.
///
/// # Errors
///
/// Those of `source` and `target`.
pub fn digest(mut source: impl Read, mut target: impl Write) -> io::Result<(u64, String)> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = source.read(&mut buffer)?;
        let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else { break };
        hash.update(part);
        target.write_all(part)?;
        bytes += part.len() as u64;
    }
    let sum = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, sum))
}

/// Returns the manifest's entry for the file at `path` in the backup `folder`.
///
/// # Errors
///
/// Those of the file system.
pub fn describe(folder: &Path, path: &str, schema: u32) -> io::Result<SavedFile> {
    let (bytes, sha256) = digest(File::open(folder.join(path))?, io::sink())?;
    Ok(SavedFile { path: path.to_owned(), schema, bytes, sha256 })
}
