//! The panel (contract section 9). Most tests call the library with a manual clock; `sockets` uses
//! the running service. `tests/browser` tests the pages in a browser.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod browser_session;
mod changes;
mod keys;
mod sessions;
mod sockets;
#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the harness serves other suites too")]
mod support;
