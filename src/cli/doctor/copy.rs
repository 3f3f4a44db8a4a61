//! The check of the copy that confirms changes.

use std::fs;
use std::path::Path;

use super::{Check, Status, access_by_others};
use crate::clock::Moment;
use crate::copy::{ControlSocket, CopyStatus, MIN_VERSION, Suspension, Version};

/// A copy that is this many seconds behind is a warning: Litestream looks at each database at least every ten seconds.
const MOST_BEHIND: f64 = 15.0;

/// Checks the version of the Litestream process behind `socket`, that it copies `databases`, and how far it is behind.
pub fn check(socket: &ControlSocket, data_dir: &Path, databases: Vec<String>, now: Moment) -> Check {
    let check = |status, message: String| Check::new("copy", status, message);
    let status = match CopyStatus::read(socket, data_dir, databases) {
        Ok(status) => status,
        Err(error) => return check(Status::Fault, format!("cannot be asked: {error}")),
    };
    if let Some(fault) = fault(&status) {
        return check(Status::Fault, fault);
    }
    let (name, seconds) = status.furthest_behind(now).unwrap_or(("", 0.0));
    let message =
        format!("Litestream {}, {} databases; {name} is {seconds:.1} s behind", status.version, status.databases.len());
    match warning(socket, data_dir, &status, seconds) {
        Some(warning) => check(Status::Warning, format!("{warning}; {message}")),
        None => check(Status::Ok, message),
    }
}

fn fault(status: &CopyStatus) -> Option<String> {
    if Version::parse(&status.version).is_some_and(|version| version < MIN_VERSION) {
        let version = &status.version;
        return Some(format!("Litestream {version} can damage databases; install {MIN_VERSION} or later"));
    }
    let missing: Vec<&str> = status.missing().collect();
    let listed = missing.join(", ");
    (!missing.is_empty()).then(|| format!("lacks {listed}; are these paths in Litestream's configuration?"))
}

fn warning(socket: &ControlSocket, data_dir: &Path, status: &CopyStatus, seconds: f64) -> Option<String> {
    if let Ok(Some(since)) = Suspension::of(data_dir).since() {
        return Some(format!("suspended since {since}: changes are reported as done without it"));
    }
    if let Some(access) =
        fs::metadata(socket.path()).ok().and_then(|socket_file| access_by_others(socket.path(), &socket_file))
    {
        return Some(access);
    }
    if Version::parse(&status.version).is_none() {
        return Some(format!("the version of Litestream is unknown; {MIN_VERSION} or later is needed"));
    }
    (seconds > MOST_BEHIND).then(|| "far behind".to_owned())
}
