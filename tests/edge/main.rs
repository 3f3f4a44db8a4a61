//! The edge as a client sees it: raw bytes over TCP. They go to the library with a small handler
//! (`edge_server`), or to the shipped binary with its databases (`fixture`).

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "each test binary needs another part of it")]
mod support;

mod attacks;
mod edge_server;
mod faults;
mod fixture;
mod framing;
mod fuzz;
mod limits;
mod overload;
mod shares;
mod tls;
