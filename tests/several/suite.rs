//! What is tested with several machines behind a proxy: the core of the contract's suite, and a tenant that moves from one to
//! the other while its clients go on.

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
mod moving;
#[path = "../contract/operations.rs"]
mod operations;
#[path = "../contract/order_of_checks.rs"]
mod order_of_checks;
