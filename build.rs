//! Finds the commit that `tenantdesk --version` prints: `TENANTDESK_COMMIT` of the environment,
//! else the file `release/commit`, which `git archive` fills, else git. A debug build does not ask
//! git: each commit would compile it again.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-env-changed=TENANTDESK_COMMIT");
    println!("cargo::rerun-if-changed=release/commit");
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit =
        from_environment().or_else(from_archive).or_else(|| release.then(from_git).flatten());
    if let Some(commit) = commit {
        println!("cargo::rustc-env=TENANTDESK_COMMIT={:.12}", commit.trim());
    }
}

fn from_environment() -> Option<String> {
    env::var("TENANTDESK_COMMIT").ok()
}

fn from_archive() -> Option<String> {
    let commit = fs::read_to_string("release/commit").ok()?;
    commit.starts_with(|first: char| first.is_ascii_hexdigit()).then_some(commit)
}

fn from_git() -> Option<String> {
    // Without this, git would look in the directories above.
    if !Path::new(".git").exists() {
        return None;
    }
    // The log changes with each commit and each checkout.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
