//! Every limit of the edge that an operator cannot configure.

use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::config::ConnectionLimits;

/// The limit on connections: the configured one, or half of the descriptor limit and at most 10,000. The other half of the
/// descriptors is for databases and upstream connections.
pub(super) fn max_connections(limits: &ConnectionLimits) -> usize {
    limits.max_connections.unwrap_or_else(|| (descriptor_limit() / 2).min(10_000)).max(1)
}

/// The number of connections beyond the limit that get a response. It is small if the limit is, because descriptors are then
/// scarce.
pub(super) fn over_limit_connections(limits: &ConnectionLimits) -> usize {
    (max_connections(limits) / 8).clamp(2, MAX_OVER_LIMIT_CONNECTIONS)
}

/// The soft limit on open descriptors.
fn descriptor_limit() -> usize {
    getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// The longest request head in bytes: the request line and all fields.
pub(super) const MAX_HEAD: usize = 16 * 1024;

/// hyper's read buffer for one connection, in bytes. It is larger than [`MAX_HEAD`], so that [`MAX_HEAD`] takes effect.
pub(super) const MAX_BUFFER: usize = 24 * 1024;

/// The longest request target, in bytes.
pub(super) const MAX_TARGET: usize = 8 * 1024;

/// How many bytes of a body that is too large are discarded, so that the client reads the response.
pub(super) const MAX_DISCARDED: usize = 1024 * 1024;

/// How long bytes are discarded after a response that closes the connection.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// A peer that has read this many bytes gets a new write timeout.
pub(super) const WRITE_PROGRESS: usize = 64 * 1024;

/// The kernel's send buffer of one connection, in bytes.
pub(super) const SEND_BUFFER: usize = 128 * 1024;

/// How long the kernel waits for an acknowledgement before it closes a connection (`TCP_USER_TIMEOUT`).
pub(super) const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// The length of the listener's accept queue.
pub(super) const BACKLOG: i32 = 1024;

/// The maximum of [`over_limit_connections`].
const MAX_OVER_LIMIT_CONNECTIONS: usize = 64;

/// The idle, head and write timeout of a connection beyond the limit.
pub(super) const OVER_LIMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause after a failed `accept`, for example if no descriptor is left.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The number of requests that wait for an upstream connection.
pub(super) const MAX_QUEUED_REQUESTS: usize = 1024;

/// The number of upstream connections. One tenant can occupy 64 of them; 32 remain for the others.
pub(super) const MAX_UPSTREAM_CONNECTIONS: usize = 96;

/// The number of upstream connections that stay open when idle.
pub(super) const MIN_UPSTREAM_CONNECTIONS: usize = 2;

/// The number of upstream connections that are reserved for addresses with less than an equal share.
pub(super) const RESERVED_UPSTREAM_CONNECTIONS: usize = 16;

/// How long an upstream connection stays open when idle.
pub(super) const UPSTREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a response may take. No request takes this long.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a worker may take for `/healthz` before the edge responds itself.
pub(super) const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);

/// The memory of all request bodies together, in bytes, without those that [`LARGE_BODY_BUDGET`] is for.
pub(super) const BODY_BUDGET: usize = 64 * 1024 * 1024;

/// The memory of all request bodies together, in bytes, on paths that take more than the usual
/// [`MAX_BODY`](crate::http::request::MAX_BODY). It is separate, so that a few clients with large bodies do not keep the others from
/// sending theirs.
pub(super) const LARGE_BODY_BUDGET: usize = 32 * 1024 * 1024;

/// The memory of all responses that clients have not read yet, in bytes.
pub(super) const RESPONSE_BUDGET: usize = 64 * 1024 * 1024;

/// The time between two health checks of tiny_http. This, [`MAX_PROBES`] probes and the attempts to replace it take at most 15 s.
pub(super) const HEALTH_CHECK_PERIOD: Duration = Duration::from_secs(3);

/// How long one probe of a health check may take.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The number of probes in one health check. Together they take longer than the 5 s for which every worker may wait for a lock.
pub(super) const MAX_PROBES: usize = 2;

/// The number of attempts to replace tiny_http.
pub(super) const REPLACE_ATTEMPTS: usize = 3;

/// How long a replacement may take to respond.
pub(super) const REPLACE_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause after a failed attempt to replace tiny_http.
pub(super) const REPLACE_PAUSE: Duration = Duration::from_millis(500);

/// The number of concurrent connections to the listener for metrics.
pub(super) const MAX_METRICS_CONNECTIONS: usize = 8;

/// How long a connection to the listener for metrics may take in total.
pub(super) const METRICS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long requests in progress may take after a stop was requested.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(8);
