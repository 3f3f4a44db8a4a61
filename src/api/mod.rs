//! The JSON API: the checks of contract section 5 in their order, the operations on records,
//! batches, the change log, and `/whoami.php`.

pub mod batch;
pub mod changes;
pub mod filter;
pub mod list;
pub mod parameters;
pub mod query;
pub mod rate_limit;
pub mod routes;

mod operations;
mod pipeline;
mod whoami;

pub use pipeline::{Admission, Api, Job, Lane};
