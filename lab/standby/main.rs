//! The warm copy on a second machine, as `examples/standby` configures it, with the real Litestream
//! and sshd. If one is not installed, the tests are skipped with a message, or fail if `CI` is set.
//!
//! `LITESTREAM` names the program where it is not in the PATH.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../../tests/support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

mod account;
mod load;
mod log_restarts;
mod machines;
mod moments;
mod rounds;
mod together;
mod units;
