//! The manifest of a backup, `manifest.json`: its tenants, and the length and SHA-256 of its files.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::clock::Timestamp;
use crate::model::TenantId;
use crate::store::registry::check_tenant_name;

/// The format that this program writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;

/// The name of the manifest in the backup.
pub(super) const NAME: &str = "manifest.json";

/// A manifest of 10,000 tenants has 4 MB.
const MAX_LENGTH: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackupKind {
    /// All tenants.
    All,
    /// One tenant.
    Tenant,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The version of the program that made the backup.
    pub tenantdesk: String,
    pub created_at: Timestamp,
    /// One more than that of the newest backup in the same directory; 0 in a manifest of 0.1.0.
    #[serde(default)]
    pub sequence: u64,
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
    ///
    /// # Errors
    ///
    /// `InvalidData` if it is of a newer format, or not as this program writes manifests.
    pub fn read(directory: &Path) -> io::Result<Manifest> {
        let invalid = |cause: String| io::Error::new(io::ErrorKind::InvalidData, cause);
        let mut text = String::new();
        let file = open_regular(&directory.join(NAME))?;
        file.take(MAX_LENGTH).read_to_string(&mut text)?;
        let mut manifest: Manifest =
            serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        if manifest.format > FORMAT {
            let format = manifest.format;
            let what = format!("it was written by a newer version of tenantdesk (format {format})");
            return Err(invalid(what));
        }
        let is_strange = |(_, name): &(TenantId, &str)| check_tenant_name(name).is_err();
        if let Some((_, name)) = manifest.tenant_ids().into_iter().find(is_strange) {
            return Err(invalid(format!("{name:?} is no name of a tenant")));
        }
        for tenant in &mut manifest.left_out {
            tenant.reason = tenant.reason.replace(char::is_control, " ");
        }
        Ok(manifest)
    }

    /// The one tenant of a backup of one tenant.
    pub(super) fn only_tenant(&self) -> Option<TenantId> {
        let tenant = self.tenants.first().filter(|_| self.kind == BackupKind::Tenant);
        tenant.map(|tenant| tenant.id)
    }

    /// Id and name of each tenant in the backup's registry, ordered by id.
    pub(super) fn tenant_ids(&self) -> Vec<(TenantId, &str)> {
        let left_out = self.left_out.iter().map(|tenant| (tenant.id, tenant.name.as_str()));
        let saved = self.tenants.iter().map(|tenant| (tenant.id, tenant.name.as_str()));
        let mut ids: Vec<_> = saved.chain(left_out).collect();
        ids.sort_unstable();
        ids
    }

    /// The saved tenant of this name.
    pub fn tenant(&self, name: &str) -> Option<&SavedTenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    pub fn file(&self, path: &str) -> Option<&SavedFile> {
        self.files.iter().find(|file| file.path == path)
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

/// Opens a file that may be anything: a FIFO would block, a symbolic link leads elsewhere.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let irregular = || io::Error::other("it is not a regular file");
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP | Errno::NXIO) => irregular(),
        _ => error,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}
