//! Requests and responses as values, and the tiny_http server that they come through.

pub mod request;
pub mod response;
pub mod server;

pub use request::{Body, Method, Request};
pub use response::Response;
