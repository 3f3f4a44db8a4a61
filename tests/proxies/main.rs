//! nginx and Caddy with the configurations of `examples/`: the client's address, the proxy's
//! limits, and a tenant that moves between two machines. The modules of `tests/contract` that a
//! proxy can change run behind them in `contract/deployments.rs`.

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

mod limits;
mod moving;
