//! Several machines behind a real nginx with the configuration of `examples/several`: the core of the contract's suite, and a
//! tenant that moves from one to the other while its clients go on. Left out, loudly, where there is no nginx; a failure in CI.

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

#[path = "../contract/addressing.rs"]
mod addressing;
#[path = "../contract/errors.rs"]
mod errors;
#[path = "../contract/idempotency.rs"]
mod idempotency;
#[path = "../contract/keys.rs"]
mod keys;
#[path = "../contract/lists.rs"]
mod lists;
#[path = "../several/moving.rs"]
mod moving;
#[path = "../contract/operations.rs"]
mod operations;
#[path = "../contract/order_of_checks.rs"]
mod order_of_checks;
