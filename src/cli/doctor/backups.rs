//! The newest backup of all tenants: when it was made, and whether its files are there.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;

use super::{Report, State};
use crate::clock::Moment;

/// What of a backup's manifest is of interest here.
#[derive(Debug, Deserialize)]
struct Manifest {
    /// RFC 3339.
    created_at: String,
    kind: String,
    #[serde(default)]
    left_out: Vec<LeftOut>,
    files: Vec<Saved>,
}

/// A tenant that could not be read.
#[derive(Debug, Deserialize)]
struct LeftOut {
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Saved {
    path: PathBuf,
    bytes: u64,
}

/// Looks at the newest backup in `dir`; one older than `days` is a fault.
pub fn newest(dir: &Path, now: Moment, days: u16) -> Report {
    let report = |state, says: String| Report::new("backup", state, says);
    let found = match all(dir) {
        Ok(found) => found,
        Err(error) => return report(State::Fault, format!("{}: {error}", dir.display())),
    };
    let dated = found.into_iter().filter(|(_, manifest)| manifest.kind == "all").filter_map(|(folder, manifest)| {
        let made: Timestamp = manifest.created_at.parse().ok()?;
        Some((made, folder, manifest))
    });
    // Of those made in one second the later one has the longer name, or the higher number at its end.
    let order = |made: &Timestamp, folder: &Path| (*made, folder.as_os_str().len(), folder.to_owned());
    let Some((made, folder, manifest)) = dated.max_by_key(|(made, folder, _)| order(made, folder)) else {
        return report(State::Fault, format!("{} holds no backup of all tenants", dir.display()));
    };
    for file in &manifest.files {
        let path = folder.join(&file.path);
        if fs::metadata(&path).map(|metadata| metadata.len()).ok() != Some(file.bytes) {
            return report(State::Fault, format!("{} is missing or not as it was saved", path.display()));
        }
    }
    if let Some(LeftOut { name, reason }) = manifest.left_out.first() {
        let others = match manifest.left_out.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        return report(State::Fault, format!("{} lacks the tenant {name} ({reason}){others}", folder.display()));
    }
    let hours = (now.unix_seconds() - made.as_second()).max(0) / 3600;
    let says = format!("{} is {hours} hours old, with {} files", folder.display(), manifest.files.len());
    let state = if hours > i64::from(days) * 24 { State::Fault } else { State::Good };
    report(state, says)
}

/// Every whole backup in the folder. One that is being made, or removed, has a name that begins with a dot.
fn all(dir: &Path) -> std::io::Result<Vec<(PathBuf, Manifest)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let folder = entry?.path();
        let hidden = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let manifest = fs::read(folder.join("manifest.json")).ok();
        if let Some(manifest) = manifest.filter(|_| !hidden).and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            found.push((folder, manifest));
        }
    }
    Ok(found)
}
