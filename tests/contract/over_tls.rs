//! The core of the contract once more, with every desk serving HTTPS.

use std::process::Command;

use crate::support::server::OVER_TLS;

/// What is run again: the operations, their order of checks, keys and idempotency.
const CORE: [&str; 4] = ["operations::", "json::", "keys::", "idempotency::"];

#[test]
fn the_core_holds_over_https() {
    let this = std::env::current_exe().unwrap();
    let run = Command::new(this).args(CORE).env(OVER_TLS, "1").output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    assert!(said.contains("test operations::") && said.contains("test keys::"), "{said}");
}
