//! Finds the commit that `tenantdesk --version` prints: `TENANTDESK_COMMIT` of the environment,
//! else the file `release/commit`, which `git archive` fills.

use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-env-changed=TENANTDESK_COMMIT");
    println!("cargo::rerun-if-changed=release/commit");
    let commit = env::var("TENANTDESK_COMMIT").ok().or_else(from_archive);
    if let Some(commit) = commit.filter(|commit| !commit.trim().is_empty()) {
        println!("cargo::rustc-env=TENANTDESK_COMMIT={:.12}", commit.trim());
    }
}

fn from_archive() -> Option<String> {
    let commit = fs::read_to_string("release/commit").ok()?;
    commit.starts_with(|first: char| first.is_ascii_hexdigit()).then_some(commit)
}
