//! What stands in a backup beside its files: `manifest.json`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The form of manifest that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The manifest's name in the backup's folder.
pub const NAME: &str = "manifest.json";

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackupKind {
    All,
    /// One tenant.
    Tenant,
}

/// All that is said about a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The version of the program that made it.
    pub tenantdesk: String,
    /// RFC 3339.
    pub created_at: String,
    pub kind: BackupKind,
    pub tenants: Vec<SavedTenant>,
    /// Tenants whose files could not be read. Their rows and keys are in the backup's registry.
    #[serde(default)]
    pub left_out: Vec<LeftOutTenant>,
    pub files: Vec<SavedFile>,
}

/// One tenant of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTenant {
    pub id: i64,
    pub name: String,
    /// Resource → number of its records.
    pub records: BTreeMap<String, i64>,
}

/// One tenant that a backup of all tenants lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutTenant {
    pub id: i64,
    pub name: String,
    /// Why its file could not be read.
    pub reason: String,
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFile {
    /// `registry.db` or `tenants/1.db`.
    pub path: String,
    pub schema: u32,
    pub bytes: u64,
    /// Hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// The manifest of the backup in `folder`.
    pub fn read(folder: &Path) -> io::Result<Manifest> {
        let invalid = |cause: String| io::Error::new(io::ErrorKind::InvalidData, cause);
        let text = fs::read_to_string(folder.join(NAME))?;
        /// Read first: the rest may have changed in a newer form.
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let Form { format } = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        if format > FORMAT {
            return Err(invalid(format!("it was written by a newer version of tenantdesk (format {format})")));
        }
        serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))
    }

    /// The tenant of this name.
    pub fn tenant(&self, name: &str) -> Option<&SavedTenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    /// The tenant of this name among those that were left out.
    pub fn left_out(&self, name: &str) -> Option<&LeftOutTenant> {
        self.left_out.iter().find(|tenant| tenant.name == name)
    }

    /// The file of this path.
    pub fn file(&self, path: &str) -> Option<&SavedFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

/// Length and SHA-256, in hexadecimal, of what `source` yields, which is written to `target` on the way.
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

/// What the manifest will say of a file that lies at `path` in the backup's `folder`.
pub fn describe(folder: &Path, path: &str, schema: u32) -> io::Result<SavedFile> {
    let (bytes, sha256) = digest(File::open(folder.join(path))?, io::sink())?;
    Ok(SavedFile { path: path.to_owned(), schema, bytes, sha256 })
}
