//! The JSON API: the checks of contract section 5 in their order, the operations on records,
//! batches, the change log, and `/whoami.php`.

pub mod batch;
pub mod change;
pub mod changes;
pub mod filter;
pub mod headers;
pub mod idempotency;
pub mod list;
pub mod query;
pub mod rate_limit;
pub mod routes;

mod authentication;
mod operations;
mod pipeline;
#[cfg(test)]
mod tests;
mod whoami;

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::http::Request;
use crate::store::registry::Registry;
use crate::store::{Deadline, Tenants};
pub use pipeline::ApiCall;
use rate_limit::RateLimiter;

/// When a read for the request is to end.
fn deadline(request: &Request) -> Deadline {
    Deadline::new(Arc::clone(&request.is_abandoned))
}

/// The API of the records of every tenant.
pub struct Api {
    registry: Arc<Registry>,
    tenants: Arc<Tenants>,
    limiter: RateLimiter,
}

impl Api {
    /// An API that allows each key without a limit of its own `rate_limit` requests a minute.
    pub fn new(registry: Arc<Registry>, tenants: Arc<Tenants>, rate_limit: NonZeroU32) -> Api {
        Api { registry, tenants, limiter: RateLimiter::new(rate_limit) }
    }
}
