//! HTTP requests, responses and errors as values, and the workers that handle requests.

pub mod error;
pub mod error_code;
pub mod fair_queue;
pub mod request;
pub mod responder;
pub mod response;
pub mod scheduler;
pub mod worker_pool;

pub use ::http::{Method, StatusCode};

pub use error::ApiError;
pub use error_code::ErrorCode;
pub use request::{Body, Request};
pub use responder::{API_VERSION, Responder};
pub use response::Response;
pub use scheduler::Lane;
pub use worker_pool::{Handler, Job, WorkerPool};
