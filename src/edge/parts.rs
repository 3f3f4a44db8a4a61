//! The parts of an edge, and the errors that end it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::metrics_listener::MetricsPage;
use super::tls::Tls;
use crate::config::ConnectionLimits;
use crate::metrics::Metrics;

/// What an edge is started with.
pub struct EdgeParts {
    /// Timeouts and the connection limit.
    pub limits: ConnectionLimits,
    /// The networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted, in addition to the loopback addresses.
    pub proxies: Vec<IpNet>,
    /// Returns the longest body in bytes that a path takes.
    pub max_body: fn(&str) -> usize,
    /// The certificate. `None` serves plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// Counts the responses that the edge sends itself.
    pub metrics: Arc<Metrics>,
    /// Produces the response to `/metrics`. It is used if the listeners include one for metrics.
    pub metrics_page: Option<MetricsPage>,
}

/// Why an edge did not start, or ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// There is no thread, descriptor or directory for the upstream server.
    #[error("cannot start the upstream server: {0}")]
    Start(#[source] io::Error),
    /// The upstream server failed its health check, and so did every replacement. The text is the last cause.
    #[error("the upstream server stopped responding and could not be replaced: {0}")]
    Unresponsive(String),
    /// A bug in the edge.
    #[error("the edge's thread panicked")]
    Panicked,
}
