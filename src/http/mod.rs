//! HTTP requests, responses and errors as values.

pub mod error;
pub mod request;
pub mod response;

pub use ::http::{Method, StatusCode};

pub use error::{ApiError, ErrorCode};
pub use request::{Body, Request};
pub use response::{API_VERSION, Responder, Response, ResponseQueue};
