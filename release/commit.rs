//! Finds the commit that `tenantdesk --version` prints. `build.rs` includes this file.

use std::{env, fs};

/// The first 12 digits of `TENANTDESK_COMMIT` in the environment, else of the file
/// `release/commit`, which `git archive` fills.
pub(crate) fn find() -> Option<String> {
    let commit = env::var("TENANTDESK_COMMIT").ok().or_else(from_archive)?;
    let digits: String = commit.trim().chars().take(12).collect();
    (!digits.is_empty()).then_some(digits)
}

fn from_archive() -> Option<String> {
    let commit = fs::read_to_string("release/commit").ok()?;
    commit.starts_with(|first: char| first.is_ascii_hexdigit()).then_some(commit)
}
