//! HTTP requests, responses and errors as values.

pub mod error;
pub mod error_code;
pub mod request;
pub mod responder;
pub mod response;

pub use ::http::{Method, StatusCode};

pub use error::ApiError;
pub use error_code::ErrorCode;
pub use request::{Body, Request};
pub use responder::{API_VERSION, Responder};
pub use response::Response;
