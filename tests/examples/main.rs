//! What users copy runs as it is printed: `examples/`, the README, the guide, the package.

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

mod clients;
mod guide;
mod package;
mod settings;
mod webhook;
