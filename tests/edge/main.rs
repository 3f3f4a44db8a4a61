//! The edge as a client sees it: raw bytes over TCP. They go to the library with a small handler
//! (`edge_server`), or to the shipped binary with its databases (`fixture`).

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

mod edge_server;
mod fixture;
mod framing;
mod fuzz;
mod limits;
mod overload;
mod tls;
