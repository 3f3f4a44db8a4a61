//! Fuzzing on stable Rust: inputs are mutated from a few seeds and from pieces that matter, for as
//! long as `FUZZ_SECONDS` says (1 without it). Each place that reads bytes of strangers is a target:
//!
//!     FUZZ_SECONDS=1800 cargo test --release --test fuzz edge
//!
//! An input that fails is printed as a literal. Add the literal to the seeds of the target, together
//! with the correction.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod body;
mod cursor;
mod edge;
mod mutate;
mod query;
#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;
