//! HTTP requests, responses and errors as values, and the tiny_http server whose workers handle them.

pub mod access_log;
pub mod condition;
pub mod error;
pub mod form_encoding;
mod leader_lock;
pub mod request;
pub mod responder;
pub mod response;
pub mod upstream_protocol;
pub mod workers;

pub use condition::{Condition, ProtocolViolation};
pub use error::ApiError;
pub use request::{Body, Method, Request};
pub use responder::{API_VERSION, REPLAYED, Responder};
pub use response::Response;
