//! The tools of operators: supervision, metrics, `doctor`, help texts and the examples.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

mod doctor;
mod examples;
mod guide;
mod help;
mod metrics;
mod monitoring;
mod package;
mod pair;
mod secrets;
mod spreadsheets;
mod supervisor;
mod sync;
mod webhook;
