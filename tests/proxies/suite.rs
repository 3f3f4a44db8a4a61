//! What is tested behind a proxy: the core of the contract's suite, whose address the service takes a request to come from,
//! and the proxy's own limits.

#[path = "../contract/addressing.rs"]
mod addressing;
mod clients;
#[path = "../contract/errors.rs"]
mod errors;
#[path = "../contract/idempotency.rs"]
mod idempotency;
#[path = "../contract/json.rs"]
mod json;
#[path = "../contract/keys.rs"]
mod keys;
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
