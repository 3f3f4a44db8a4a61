//! The suite of `tests/proxies` through a real nginx with the configuration of `examples/nginx`, over TLS. Left out, loudly, where
//! there is no nginx; a failure in CI.

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

#[path = "../proxies/suite.rs"]
mod suite;
