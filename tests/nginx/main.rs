//! The core of the contract's suite, through a real nginx with the configuration of `examples/nginx`, over TLS; and whose
//! address the service takes a request to come from. Left out, loudly, where there is no nginx; a failure in CI.

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

#[path = "../contract/addressing.rs"]
mod addressing;
#[path = "../proxies/clients.rs"]
mod clients;
#[path = "../contract/errors.rs"]
mod errors;
#[path = "../contract/idempotency.rs"]
mod idempotency;
#[path = "../contract/json.rs"]
mod json;
#[path = "../contract/keys.rs"]
mod keys;
#[path = "../proxies/limits.rs"]
mod limits;
#[path = "../contract/lists.rs"]
mod lists;
#[path = "../contract/operations.rs"]
mod operations;
#[path = "../contract/order_of_checks.rs"]
mod order_of_checks;
#[path = "../contract/paging.rs"]
mod paging;
#[path = "../contract/rate_limit.rs"]
mod rate_limit;
#[path = "../contract/records.rs"]
mod records;
#[path = "../contract/search.rs"]
mod search;
