//! The configuration of a service: plain values with their defaults. `docs/operations.md` lists the
//! options that set them.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

/// The fewest workers. One tenant computes with half of them, and others with the rest.
pub const MIN_WORKERS: usize = 4;

/// What an operator can configure.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of the registry and of the tenants' files.
    pub data_dir: PathBuf,
    /// The address to listen on. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The address of `/metrics`, if any.
    pub metrics_listen: Option<SocketAddr>,
    /// The number of worker threads, at least [`MIN_WORKERS`].
    pub workers: usize,
    /// Requests a minute for each key.
    pub rate_limit: NonZeroU32,
    /// Networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted, in addition to
    /// loopback.
    pub trusted_proxies: Vec<IpNet>,
    /// Certificate and key for HTTPS. Without them the service speaks HTTP.
    pub tls: Option<TlsFiles>,
    /// Limits of the clients' connections.
    pub connections: ConnectionLimits,
    /// Limits of the tenants' files.
    pub tenants: TenantLimits,
}

/// Files in PEM format.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Timeouts and the number of client connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// A connection between two requests. Longer than the 60 s for which nginx keeps its upstream
    /// connections.
    pub idle_timeout: Duration,
    /// From the first byte of a head to its end; also a TLS handshake.
    pub head_timeout: Duration,
    /// From the end of a head to the end of its body.
    pub body_timeout: Duration,
    /// The time that a peer may take for each 64 KiB of a response.
    pub write_timeout: Duration,
    /// Open connections. `None` derives it from the descriptor limit.
    pub max_connections: Option<usize>,
}

/// Limits of the tenants' files.
#[derive(Clone, Copy, Debug)]
pub struct TenantLimits {
    /// Tenants open at once; the least recently used is closed for the next.
    pub open: usize,
    /// How long an entry of a tenant's change log is kept.
    pub keep_changes: Duration,
    /// The size of a tenant's file from which on only deletions are accepted, in bytes.
    pub max_size: u64,
}

impl Config {
    /// The defaults, on `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Config {
        Config {
            data_dir: data_dir.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            metrics_listen: None,
            workers: (std::thread::available_parallelism().map_or(1, usize::from) + 2)
                .max(MIN_WORKERS),
            rate_limit: const { NonZeroU32::new(100).unwrap() },
            trusted_proxies: Vec::new(),
            tls: None,
            connections: ConnectionLimits::default(),
            tenants: TenantLimits::default(),
        }
    }
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            idle_timeout: Duration::from_secs(75),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            max_connections: None,
        }
    }
}

impl Default for TenantLimits {
    fn default() -> TenantLimits {
        TenantLimits { open: 200, keep_changes: Duration::from_hours(90 * 24), max_size: 10 << 30 }
    }
}
