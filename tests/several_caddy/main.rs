//! The suite of `tests/several`: several machines behind a real Caddy with the configuration of `examples/several`. Left out,
//! loudly, where there is no Caddy; a failure in CI.

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

#[path = "../several/suite.rs"]
mod suite;
