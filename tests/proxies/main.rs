//! nginx and Caddy with the configurations of `examples/`: what they pass on unchanged, the client's
//! address, the proxy's limits, and a tenant that moves between two machines.

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

mod limits;
mod moving;
mod unchanged;
