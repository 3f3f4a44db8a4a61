//! Requests and responses as values, and the tiny_http server that they come through.

pub mod access;
mod lead;
pub mod private;
pub mod reply;
pub mod request;
pub mod response;
pub mod server;

pub use reply::{REPLAYED, Reply};
pub use request::{Body, Method, Request};
pub use response::Response;
