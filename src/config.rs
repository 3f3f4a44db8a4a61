//! The configuration of a service: the options of `serve` and their defaults.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser};
use ipnet::IpNet;
use jiff::{Span, SpanRelativeTo};

/// The fewest workers. One receives requests while the others run them.
pub const MIN_WORKERS: usize = 4;

/// The workers of a machine with up to 8 cores. Threads are cheap, and the operating system shares
/// the processor fairly among them. With 32 workers, a tenant runs two requests at a time, and a
/// quiet tenant finds a free worker beside 15 busy tenants.
const DEFAULT_WORKERS: usize = 32;

/// The settings of the service.
#[derive(Clone, Debug, Parser)]
pub struct Config {
    // The directory of the registry and of the tenants' files: an option of every command.
    #[arg(skip)]
    pub data_dir: PathBuf,
    /// The address for clients; with port 0 the system chooses a port
    #[arg(
        long,
        env = "TENANTDESK_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS:PORT",
        value_parser = socket_address
    )]
    pub listen: SocketAddr,
    /// Worker threads, at least 4; one tenant uses a sixteenth of them [default: 4 for each core,
    /// at least 32]
    #[arg(long, env = "TENANTDESK_WORKERS", value_name = "N",
          default_value_t = default_workers(), hide_default_value = true,
          value_parser = number_from::<MIN_WORKERS, 1024>)]
    pub workers: usize,
    /// Requests a minute for each key
    #[arg(long, env = "TENANTDESK_RATE_LIMIT", default_value = "100", value_name = "N",
          value_parser = positive::<NonZeroU32>)]
    pub rate_limit: NonZeroU32,
    /// A proxy whose X-Forwarded-For and X-Forwarded-Proto are trusted; repeatable
    // Loopback is trusted, too.
    #[arg(long = "trusted-proxy", env = "TENANTDESK_TRUSTED_PROXY", value_delimiter = ',',
          value_name = "ADDRESS[/BITS]", value_parser = parse_network)]
    pub trusted_proxies: Vec<IpNet>,
    // Without these files the service speaks HTTP.
    #[command(flatten)]
    pub tls: Option<TlsFiles>,
    /// Serve metrics for Prometheus on /metrics at this address, in plain HTTP; keep it private
    /// [default: off]
    #[arg(long, env = "TENANTDESK_METRICS_LISTEN", value_name = "ADDRESS:PORT",
          value_parser = socket_address)]
    pub metrics_listen: Option<SocketAddr>,
    #[command(flatten)]
    pub tenants: TenantLimits,
    #[arg(skip)]
    pub connections: ConnectionLimits,
}

/// Files in PEM format.
#[derive(Args, Clone, Debug)]
pub struct TlsFiles {
    /// Serve HTTPS with this certificate chain (PEM); SIGHUP reads it again
    #[arg(
        long = "tls-cert",
        env = "TENANTDESK_TLS_CERT",
        value_name = "FILE",
        required = false,
        requires = "key"
    )]
    pub certificate: PathBuf,
    /// The certificate's private key (PEM)
    #[arg(
        long = "tls-key",
        env = "TENANTDESK_TLS_KEY",
        value_name = "FILE",
        required = false,
        requires = "certificate"
    )]
    pub key: PathBuf,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct TenantLimits {
    /// How long an entry of a tenant's change log is kept, from 1d to 3650d
    #[arg(long, env = "TENANTDESK_KEEP_CHANGES", default_value = "90d", value_name = "TIME",
          value_parser = retention)]
    pub keep_changes: Duration,
    /// The largest size of a tenant's file, such as 500MiB; a larger file takes only deletions
    #[arg(long = "max-tenant-size", env = "TENANTDESK_MAX_TENANT_SIZE", default_value = "10GiB",
          value_name = "SIZE", value_parser = size)]
    pub max_size: u64,
}

/// Timeouts and the number of client connections. Tests set others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The maximum time from the end of a response to the end of the next request's head.
    pub idle_timeout: Duration,
    /// The maximum time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// The maximum time for the body of a request.
    pub body_timeout: Duration,
    /// The maximum time in which a client reads nothing of a response.
    pub write_timeout: Duration,
    /// The maximum number of connections. The descriptor limit may lower it.
    pub max_connections: usize,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            // Longer than the 60 s for which nginx keeps its upstream connections: nginx would
            // otherwise send a request over a connection that is being closed.
            idle_timeout: Duration::from_secs(75),
            handshake_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            max_connections: 10_000,
        }
    }
}

fn default_workers() -> usize {
    (4 * std::thread::available_parallelism().map_or(1, usize::from)).max(DEFAULT_WORKERS)
}

impl Config {
    /// The configuration on `data_dir` where no option is given. As with `serve`, the variables
    /// `TENANTDESK_…` count, and one that is wrong ends the process.
    pub fn new(data_dir: impl Into<PathBuf>) -> Config {
        Config { data_dir: data_dir.into(), ..Config::parse_from([env!("CARGO_PKG_NAME")]) }
    }
}

fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "not an IP address and a port, such as 0.0.0.0:8080 or [::]:8080")
}

/// Parses a whole number. `parse` alone also takes a `+`.
pub fn whole<N: FromStr>(text: &str) -> Option<N> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// Parses a number of a type such as `NonZeroU32`.
pub fn positive<N: FromStr>(text: &str) -> Result<N, &'static str> {
    whole(text).ok_or("not a whole number from 1, such as 100")
}

fn number_from<const MIN: usize, const MAX: usize>(text: &str) -> Result<usize, String> {
    let number = whole(text).filter(|number| (MIN..=MAX).contains(number));
    number.ok_or_else(|| format!("not a whole number from {MIN} to {MAX}"))
}

/// Parses `ADDRESS[/BITS]`. An address without bits is a network of one address.
pub fn parse_network(text: &str) -> Result<IpNet, &'static str> {
    let network =
        text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    network.ok_or("not an address, or an address and its number of leading bits such as 10.0.0.0/8")
}

const DAY: Duration = Duration::from_hours(24);

/// Parses a whole number and a unit: `30m`, `24h`, `30d`, `2w`. (jiff alone would also take `30y`
/// and `1h30m`.)
pub fn duration(text: &str) -> Option<Span> {
    let number = text.strip_suffix(['m', 'h', 'd', 'w'])?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Parses the time for which entries of the change log are kept: `90d`, `52w`.
fn retention(text: &str) -> Result<Duration, &'static str> {
    const INVALID: &str = "not a time from 1d to 3650d, such as 90d";
    let span = duration(text).ok_or(INVALID)?;
    let time = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| INVALID)?;
    let time = time.unsigned_abs();
    if (DAY..=DAY * 3650).contains(&time) { Ok(time) } else { Err(INVALID) }
}

/// Parses a size: `500MiB`, `10GiB`.
fn size(text: &str) -> Result<u64, &'static str> {
    const INVALID: &str = "not a size such as 500MiB or 10GiB";
    let (number, unit) = match text.strip_suffix("GiB") {
        Some(number) => (number, 1 << 30),
        None => (text.strip_suffix("MiB").ok_or(INVALID)?, 1 << 20),
    };
    let number: NonZeroU32 = whole(number).ok_or(INVALID)?;
    Ok(u64::from(number.get()) * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_kept_from_a_day_to_ten_years() {
        for (text, days) in [("1d", 1), ("90d", 90), ("48h", 2), ("52w", 364), ("3650d", 3650)] {
            assert_eq!(retention(text), Ok(Duration::from_hours(days * 24)), "{text}");
        }
        for invalid in ["", "90", "0d", "23h", "3651d", "-1d", "99999999999d"] {
            assert!(retention(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(size("10GiB"), Ok(10 << 30));
        assert_eq!(size("1MiB"), Ok(1 << 20));
        for invalid in
            ["", "10", "10GB", "-1GiB", "+1GiB", "0MiB", "1.5GiB", "99999999999999999GiB"]
        {
            assert!(size(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn networks_are_addresses_with_optional_bits() {
        let contains = |network: &str, address: &str| {
            parse_network(network).unwrap().contains(&address.parse::<IpAddr>().unwrap())
        };
        assert!(contains("0.0.0.0/0", "9.9.9.9"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(!contains("::/0", "9.9.9.9"));
        assert!(contains("10.1.2.3/8", "10.9.9.9"));
        assert!(contains("192.0.2.1", "192.0.2.1") && !contains("192.0.2.1", "192.0.2.2"));
        assert!(contains("2001:db8::1", "2001:db8::1") && !contains("2001:db8::1", "2001:db8::2"));
        for bad in ["10.0.0.0/33", "::/129", "proxy", "10.0.0.0/", ""] {
            assert!(parse_network(bad).is_err(), "{bad}");
        }
    }
}
