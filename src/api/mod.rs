//! A request's way from its path to its answer.

pub mod errors;
pub mod idempotency;
pub mod list;
pub mod query;
pub mod rate_limit;
pub mod routes;

mod caller;
#[cfg(test)]
mod messages_tests;
mod operations;
mod pages;
mod pipeline;

pub use pipeline::answer;
