//! The manifest of a backup, `manifest.json`: its tenants, and the length and SHA-256 of its files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{ArchiveError, not_read, refused};
use crate::clock::Timestamp;
use crate::model::TenantId;

/// The format that this program writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;

pub(super) const NAME: &str = "manifest.json";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackupKind {
    All,
    Tenant,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The version of the program that made the backup.
    pub tenantdesk: String,
    pub created_at: Timestamp,
    pub kind: BackupKind,
    /// The tenants whose files the backup holds.
    pub tenants: Vec<SavedTenant>,
    /// Tenants whose files could not be read. The backup's registry has their rows and keys.
    #[serde(default)]
    pub left_out: Vec<LeftOutTenant>,
    /// The files of the backup, except the manifest.
    pub files: Vec<SavedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTenant {
    pub id: TenantId,
    pub name: String,
    /// Resource → number of its records.
    pub records: BTreeMap<String, i64>,
}

/// A tenant that a backup of all tenants lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutTenant {
    pub id: TenantId,
    pub name: String,
    /// Why its file could not be read.
    pub reason: String,
}

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
    /// Reads the manifest of the backup in `directory`.
    pub fn read(directory: &Path) -> Result<Manifest, ArchiveError> {
        let path = directory.join(NAME);
        let text = fs::read(&path).map_err(not_read(&path, directory))?;
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&text) else {
            let cause = "it is damaged; use another backup, and move this one away";
            return Err(refused(&path, cause));
        };
        if manifest.format > FORMAT {
            let cause = "it was written by a newer version of tenantdesk; use that version";
            return Err(refused(&path, cause));
        }
        Ok(manifest)
    }

    /// Fails if a file of the backup in `directory` is not as it was made.
    pub fn verify(&self, directory: &Path) -> Result<(), ArchiveError> {
        for saved in &self.files {
            let path = directory.join(&saved.path);
            let file = File::open(&path).map_err(not_read(&path, directory))?;
            let found = digest(file, io::sink()).map_err(not_read(&path, directory))?;
            saved.require(&path, &found)?;
        }
        Ok(())
    }

    /// The one tenant of a backup of one tenant.
    pub(super) fn only_tenant(&self) -> Option<TenantId> {
        let tenant = self.tenants.first().filter(|_| self.kind == BackupKind::Tenant);
        tenant.map(|tenant| tenant.id)
    }

    pub fn tenant(&self, name: &str) -> Option<&SavedTenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    pub fn file(&self, path: &str) -> Option<&SavedFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl SavedFile {
    /// Fails if the length and the SHA-256 that were `found` at `path` are not those of the file.
    pub(super) fn require(&self, path: &Path, found: &(u64, String)) -> Result<(), ArchiveError> {
        if (found.0, &found.1) == (self.bytes, &self.sha256) {
            return Ok(());
        }
        Err(refused(path, "its length or SHA-256 is not that of the manifest"))
    }
}

/// Copies `source` to `target`. Returns the length and the SHA-256 in hexadecimal.
pub(super) fn digest(mut source: impl Read, mut target: impl Write) -> io::Result<(u64, String)> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut buffer = vec![0; 256 << 10];
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
