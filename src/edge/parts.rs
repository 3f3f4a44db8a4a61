//! The parts with which an edge starts, and the errors that end it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::HeaderMap;
use ipnet::IpNet;

use super::tls::{Tls, TlsError};
use crate::clock::Clock;
use crate::config::ConnectionLimits;
use crate::http::WorkerPool;
use crate::metrics::Metrics;

/// The parts with which an edge starts.
pub struct EdgeParts {
    /// Timeouts and the connection limit.
    pub limits: ConnectionLimits,
    /// The networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted, in addition to the
    /// loopback addresses.
    pub proxies: Vec<IpNet>,
    /// Handles the requests.
    pub pool: Arc<WorkerPool>,
    /// Returns the longest body in bytes that a path takes of a request with these headers.
    pub max_body: fn(&str, &HeaderMap) -> usize,
    /// The certificate. `None` serves plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// Called every few seconds while tiny_http and the workers take requests. It does not block.
    pub on_probe: fn(),
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
}

/// Why an edge did not start, or ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// There is no thread or descriptor for it.
    #[error("cannot start the server: {0}")]
    Start(#[source] io::Error),
    /// tiny_http failed.
    #[error("tiny_http has stopped serving: {0}")]
    Unresponsive(&'static str),
    /// A bug in the edge.
    #[error("the edge's thread panicked")]
    Panicked,
}
