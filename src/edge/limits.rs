//! Every limit of the gate in one place.

use std::time::Duration;

/// What an operator can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A connection between two requests. Longer than the 60 s for which nginx keeps its upstreams.
    pub idle_timeout: Duration,
    /// From the first byte of a head to its end; also a TLS handshake.
    pub head_timeout: Duration,
    /// From the end of a head to the end of its body.
    pub body_timeout: Duration,
    /// How long a peer may take for each 64 KiB of an answer.
    pub write_timeout: Duration,
    /// Connections at once; `None` takes it from the descriptor limit.
    pub max_connections: Option<usize>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            idle_timeout: Duration::from_secs(75),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            max_connections: None,
        }
    }
}

impl Limits {
    /// The cap on connections: what is set, else half of the descriptors that this process may have, the other half being
    /// for databases and lines, and 10,000 at most.
    pub(super) fn connections(&self) -> usize {
        self.max_connections.unwrap_or_else(|| (descriptors() / 2).min(10_000)).max(1)
    }

    /// Connections beyond the cap: few where the cap is low, since it is low for want of descriptors.
    pub(super) fn over_limit_connections(&self) -> usize {
        (self.connections() / 8).clamp(2, MAX_OVER_LIMIT_CONNECTIONS)
    }
}

/// The soft limit on open files; 1024, the usual one, where it cannot be read.
fn descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    match line.and_then(|rest| rest.split_whitespace().next()) {
        Some("unlimited") => usize::MAX,
        Some(number) => number.parse().unwrap_or(1024),
        None => 1024,
    }
}

/// The longest head, in bytes: the request line and all fields.
pub(super) const MAX_HEAD: usize = 16 * 1024;

/// What hyper may buffer for one connection; more than a head, so that [`MAX_HEAD`] decides.
pub(super) const MAX_BUFFER: usize = 24 * 1024;

/// The longest target, in bytes.
pub(super) const MAX_TARGET: usize = 8 * 1024;

/// Of a body that is too large, what is still read so that its sender sees the answer.
pub(super) const MAX_DISCARDED: usize = 1024 * 1024;

/// After an answer that closes the connection, the time for which the peer's last bytes are read.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// The progress for which a slow reader is granted a new write timeout, in bytes.
pub(super) const WRITE_PROGRESS: usize = 64 * 1024;

/// What is waiting in the kernel for a peer that does not read, in bytes.
pub(super) const SEND_BUFFER: usize = 128 * 1024;

/// When the kernel gives up on a peer that acknowledges nothing.
pub(super) const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections that wait for `accept`.
pub(super) const BACKLOG: i32 = 1024;

/// The most connections beyond the cap that are told 503, or answered on `/healthz`, instead of being dropped.
const MAX_OVER_LIMIT_CONNECTIONS: usize = 64;

/// How long such a connection has for its request.
pub(super) const OVER_LIMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// After a failed `accept`, as when descriptors have run out.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Requests that wait for a line.
pub(super) const MAX_QUEUED_REQUESTS: usize = 1024;

/// UpstreamPool to tiny_http: one tenant may hold 64, and 32 remain.
pub(super) const MAX_UPSTREAM_CONNECTIONS: usize = 96;

/// UpstreamPool that stay open with nothing to do.
pub(super) const MIN_UPSTREAM_CONNECTIONS: usize = 2;

/// Of the lines, those that one address does not get while it has more than its share.
pub(super) const RESERVED_UPSTREAM_CONNECTIONS: usize = 16;

/// When a line that has nothing to do closes.
pub(super) const UPSTREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// When an answer is not waited for any longer. No request takes this long.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// When the gate answers `/healthz` itself.
pub(super) const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);

/// Bodies being read, in bytes, all connections together.
pub(super) const BODY_BUDGET: usize = 64 * 1024 * 1024;

/// ResponseBudget that wait for their readers, in bytes, all connections together.
pub(super) const RESPONSE_BUDGET: usize = 64 * 1024 * 1024;

/// Between two looks at tiny_http. This, [`MAX_FAILED_PROBES`] probes and the tries at a new server end within 15 s.
pub(super) const HEALTH_CHECK_PERIOD: Duration = Duration::from_secs(3);

/// How long a probe may take before somebody asks whether anything else was answered.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Probes that may fail, one after the other: together longer than the 5 s for which all workers may wait for a lock.
pub(super) const MAX_FAILED_PROBES: usize = 2;

/// Tries at a new server, how long each may take to answer, and the pause after it.
pub(super) const REPLACE_ATTEMPTS: usize = 3;
pub(super) const REPLACE_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const REPLACE_PAUSE: Duration = Duration::from_millis(500);

/// Connections at once to the listener for metrics.
pub(super) const MAX_METRICS_CONNECTIONS: usize = 8;

/// How long one of these may take altogether.
pub(super) const METRICS_TIMEOUT: Duration = Duration::from_secs(10);

/// For everything under way when the gate is asked to stop.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(8);
