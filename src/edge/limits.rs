//! Every limit of the edge.

use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::config::ConnectionLimits;

/// The limits on connections, unless a test sets others.
pub const CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    // Longer than the 60 s for which nginx keeps its upstream connections: nginx would otherwise
    // send a request over a connection that is being closed.
    idle_timeout: Duration::from_secs(75),
    head_timeout: Duration::from_secs(10),
    body_timeout: Duration::from_secs(10),
    write_timeout: Duration::from_secs(10),
    max_connections: 10_000,
};

/// The limit on connections: at most half of the descriptor limit. Databases need the other half.
pub(super) fn max_connections(limits: &ConnectionLimits) -> usize {
    limits.max_connections.min(descriptor_limit() / 2).max(1)
}

/// The connections of one address, of `limit`.
pub(super) fn address_connections(limit: usize) -> usize {
    (limit / 4).max(1)
}

/// The number of connections beyond the limit that get a response. It is small if the limit is,
/// because descriptors are then scarce.
pub(super) fn over_limit_connections(limit: usize) -> usize {
    (limit / 8).clamp(2, 64)
}

/// The soft limit on open descriptors.
fn descriptor_limit() -> usize {
    getrlimit(Resource::Nofile)
        .current
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX)
}

/// The longest request head in bytes: the request line and all fields.
pub(super) const MAX_HEAD: usize = 16 * 1024;

/// hyper's read buffer for one connection, in bytes. It is larger than [`MAX_HEAD`], so that
/// [`MAX_HEAD`] takes effect.
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

/// How long the kernel waits for an acknowledgement before it closes a connection
/// (`TCP_USER_TIMEOUT`).
pub(super) const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// The length of the listener's accept queue.
pub(super) const BACKLOG: i32 = 1024;

/// The idle, head and write timeout of a connection beyond the limit.
pub(super) const OVER_LIMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The time between two searches for overdue connections. One search replaces a timer for each
/// connection. A connection can live longer than its deadline by this time.
pub(super) const SWEEP_PERIOD: Duration = Duration::from_millis(250);

/// The pause after a failed `accept`, for example if no descriptor is left.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The requests under way of one address.
pub(super) const ADDRESS_REQUESTS: usize = 256;

/// The memory of all request bodies together, in bytes.
pub(super) const BODY_BUDGET: usize = 96 * 1024 * 1024;

/// The memory of the request bodies of one address, in bytes.
pub(super) const ADDRESS_BODY_BUDGET: usize = BODY_BUDGET / 4;

/// The memory of all responses that clients have not read yet, in bytes.
pub(super) const RESPONSE_BUDGET: usize = 64 * 1024 * 1024;

/// The time between two requests of the watchdog.
pub(super) const WATCHDOG_PERIOD: Duration = Duration::from_secs(3);

/// How long the watchdog waits for a worker before the process ends. Every worker may be busy with
/// a list for 5 s, and a few wait before the watchdog.
pub(super) const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(30);

/// The concurrent connections to the listener for metrics. The oldest is closed for one more.
pub(super) const MAX_METRICS_CONNECTIONS: usize = 8;

/// How long a connection to the listener for metrics may take in total.
pub(super) const METRICS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long requests in progress may take after a stop was requested.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(8);
