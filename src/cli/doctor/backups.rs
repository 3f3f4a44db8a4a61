//! The check of the newest backup of all tenants: its age, and the presence of its files.

use std::fs;
use std::path::Path;

use super::{Check, Status};
use crate::clock::Moment;
use crate::store::archive::{BackupKind, LeftOutTenant, backup};

/// Seconds by which the clocks of two machines may differ.
const TOLERANCE: i64 = 120;

/// Checks the newest backup of all tenants in `dir`. It is a fault if the backup is older than
/// `days`, or incomplete.
pub(super) fn newest(dir: &Path, now: Moment, days: u16) -> Check {
    let check = |status, message: String| Check::new("backup", status, message);
    let backups = match backup::list(dir) {
        Ok(backups) => backups,
        Err(error) => return check(Status::Fault, error.to_string()),
    };
    let Some((directory, manifest)) =
        backups.into_iter().find(|(_, manifest)| manifest.kind == BackupKind::All)
    else {
        return check(
            Status::Fault,
            format!("{} contains no backup of all tenants", dir.display()),
        );
    };
    for file in &manifest.files {
        let path = directory.join(&file.path);
        if fs::metadata(&path).map(|metadata| metadata.len()).ok() != Some(file.bytes) {
            return check(
                Status::Fault,
                format!("{} is missing, or its size has changed", path.display()),
            );
        }
    }
    if let Some(LeftOutTenant { name, reason, .. }) = manifest.left_out.first() {
        let others = match manifest.left_out.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        return check(
            Status::Fault,
            format!("{} lacks the tenant {name} ({reason}){others}", directory.display()),
        );
    }
    let age = now.unix_seconds() - manifest.created_at.unix();
    if age < -TOLERANCE {
        return check(
            Status::Warning,
            format!("{} is dated in the future; the clock was wrong, or is", directory.display()),
        );
    }
    let hours = age.max(0) / 3600;
    let status = if hours > i64::from(days) * 24 { Status::Fault } else { Status::Ok };
    check(
        status,
        format!(
            "{} is {hours} hours old, with {} files",
            directory.display(),
            manifest.files.len()
        ),
    )
}
