//! Parts of this suite run again in other deployments: over HTTPS, and behind the proxies of
//! `examples/`.
//!
//! The binary runs itself with an environment variable that tells the harness how to start and
//! reach every server.

use std::process::Command;

use crate::support::proxy::{self, Deployment, Kind};
use crate::support::server::OVER_TLS;

/// The modules that HTTPS can change: operations, bodies and idempotency.
const OVER_TLS_AGAIN: &[&str] = &["operations::", "idempotency::"];

/// The modules that a proxy can change: addressing, errors, framing, headers, limits, idempotency
/// and versions.
const BEHIND_A_PROXY_AGAIN: &[&str] = &[
    "addressing::",
    "idempotency::",
    "operations::",
    "order_of_checks::",
    "rate_limit::",
    "versions::",
];

/// The module that the choice of the machine can change. All else is configured as in front of one
/// machine.
const IN_FRONT_OF_SEVERAL_AGAIN: &[&str] = &["addressing::"];

#[track_caller]
fn run_again(modules: &[&str], variable: &str, value: &str) {
    let this = std::env::current_exe().unwrap();
    let run = Command::new(this).args(modules).env(variable, value).output().unwrap();
    let report = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{variable}={value}: {report}");
    for module in modules {
        assert!(report.contains(&format!("test {module}")), "{module} did not run: {report}");
    }
}

#[track_caller]
fn run_behind(kind: Kind, several_machines: bool) {
    let name = Deployment { kind, several_machines }.name();
    let modules = if several_machines { IN_FRONT_OF_SEVERAL_AGAIN } else { BEHIND_A_PROXY_AGAIN };
    run_again(modules, proxy::BEHIND_PROXY, name);
}

#[test]
#[ignore = "takes 5 s; `make proof` runs it"]
fn proof_the_contract_holds_over_https() {
    run_again(OVER_TLS_AGAIN, OVER_TLS, "1");
}

#[test]
#[ignore = "takes 10 s; `make proof` runs it"]
fn proof_the_contract_holds_behind_nginx() {
    run_behind(Kind::Nginx, false);
}

#[test]
#[ignore = "takes 10 s; `make proof` runs it"]
fn proof_the_contract_holds_behind_caddy() {
    run_behind(Kind::Caddy, false);
}

#[test]
#[ignore = "takes 2 s; `make proof` runs it"]
fn proof_the_contract_holds_behind_nginx_with_several_machines() {
    run_behind(Kind::Nginx, true);
}

#[test]
#[ignore = "takes 2 s; `make proof` runs it"]
fn proof_the_contract_holds_behind_caddy_with_several_machines() {
    run_behind(Kind::Caddy, true);
}
