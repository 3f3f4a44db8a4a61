//! The JSON API: the checks of contract section 5 in their order, records, lists, batches, the
//! change log, and `/whoami.php`.

pub mod batch;
pub mod changes;
pub mod list;
pub mod query;
pub mod rate_limit;
pub mod routes;

mod pipeline;
mod records;

pub use pipeline::{Admission, Api, Job, Lane, max_body};
