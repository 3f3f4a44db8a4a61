//! The tools of operators: supervision, metrics, `doctor`, help texts, spreadsheets.

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

mod doctor;
mod metrics;
mod monitoring;
mod spreadsheets;
mod supervisor;
