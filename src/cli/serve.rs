//! `serve`: runs the server until a signal stops it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum, value_parser};
use ipnet::IpNet;
use jiff::{Span, SpanRelativeTo};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use serde::Serialize;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::Level;

use super::supervisor::{notify, notify_ready, notify_reloading, ping};
use super::{GlobalOptions, tenant_name};
use crate::app::App;
use crate::clock::Clock;
use crate::config::{Config, ConnectionLimits, MIN_WORKERS, TenantLimits, TlsFiles};
use crate::edge::{self, Edge};
use crate::model::{Scopes, TenantId};
use crate::password;
use crate::server::BoundServer;
use crate::store::registry::NewKey;
use crate::store::{NewDataDir, ServeLock};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The address for clients; with port 0 the system chooses a port
    #[arg(
        long,
        env = "TENANTDESK_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS:PORT"
    )]
    listen: SocketAddr,
    /// Worker threads, at least 4 [default: cores + 2]
    #[arg(long, env = "TENANTDESK_WORKERS", value_name = "N",
          value_parser = value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Requests a minute for each key
    #[arg(long, env = "TENANTDESK_RATE_LIMIT", default_value = "100", value_name = "N")]
    rate_limit: NonZeroU32,
    /// A proxy whose X-Forwarded-For and X-Forwarded-Proto are trusted; repeatable
    #[arg(
        long = "trusted-proxy",
        env = "TENANTDESK_TRUSTED_PROXY",
        value_delimiter = ',',
        value_name = "ADDRESS[/BITS]",
        value_parser = edge::parse_network
    )]
    trusted_proxies: Vec<IpNet>,
    /// Serve HTTPS with this certificate chain (PEM); SIGHUP reads it again
    #[arg(long, env = "TENANTDESK_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, env = "TENANTDESK_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Serve metrics for Prometheus on /metrics at this address, in plain HTTP; keep it private
    /// [default: off]
    #[arg(long, env = "TENANTDESK_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
    /// The format of the log on standard error
    #[arg(long, env = "TENANTDESK_LOG_FORMAT", default_value = "text", value_enum)]
    log_format: LogFormat,
    /// Create this tenant if it does not exist, and print a key with all scopes and a panel
    /// password; repeatable
    #[arg(
        long = "create-tenant",
        env = "TENANTDESK_CREATE_TENANT",
        value_delimiter = ',',
        value_parser = tenant_name,
        value_name = "NAME"
    )]
    create_tenants: Vec<String>,
    /// How long an entry of a tenant's change log is kept, from 1d to 3650d
    #[arg(long, env = "TENANTDESK_KEEP_CHANGES", default_value = "90d", value_name = "TIME",
          value_parser = retention)]
    keep_changes: Duration,
    /// The size of a tenant's file from which on it accepts only deletions, such as 500MiB or 10GiB
    #[arg(long, env = "TENANTDESK_MAX_TENANT_SIZE", default_value = "10GiB", value_name = "SIZE",
          value_parser = size)]
    max_tenant_size: u64,
    /// The maximum time between two requests of a connection
    #[arg(long, env = "TENANTDESK_IDLE_TIMEOUT", default_value = "75s", value_name = "TIME",
          value_parser = timeout)]
    idle_timeout: Duration,
    /// The maximum time for the head of a request, from its first byte
    #[arg(long, env = "TENANTDESK_HEAD_TIMEOUT", default_value = "10s", value_name = "TIME",
          value_parser = timeout)]
    head_timeout: Duration,
    /// The maximum time for the body of a request
    #[arg(long, env = "TENANTDESK_BODY_TIMEOUT", default_value = "10s", value_name = "TIME",
          value_parser = timeout)]
    body_timeout: Duration,
    /// The maximum time in which a client reads 64 KiB of a response
    #[arg(long, env = "TENANTDESK_WRITE_TIMEOUT", default_value = "10s", value_name = "TIME",
          value_parser = timeout)]
    write_timeout: Duration,
    /// The maximum number of connections [default: half of the descriptor limit, at most 10000]
    #[arg(long, env = "TENANTDESK_MAX_CONNECTIONS", value_name = "N")]
    max_connections: Option<NonZeroUsize>,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// The interval at which last uses of keys and failed sign-ins are written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    start_log(arguments.log_format);
    // Registered first, so that no signal is missed.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot handle signals")?;
    let config = configure(options, arguments, raise_descriptor_limit());

    let data_dir = NewDataDir::create(&options.data_dir)?;
    // Locked before the address is bound: if both are in use, the message about the directory is
    // more useful.
    let _lock = ServeLock::acquire(&options.data_dir)?;
    let bound = BoundServer::bind(config.clone())?;
    let app = App::open(&config, Clock::system())?;
    let mut created = Vec::new();
    let server = create_tenants(&app, &arguments.create_tenants, &mut created)
        .and_then(|()| start(options, bound, &app, signals, &created))
        .inspect_err(|_| delete_tenants(&app, &created))?;
    data_dir.keep();
    notify_ready(&status(&server));

    let (stop, stopped) = mpsc::channel::<()>();
    let flushed = Arc::clone(&app);
    let flusher = thread::Builder::new().name("last-uses".to_owned()).spawn(move || {
        while stopped.recv_timeout(FLUSH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            flush(&flushed);
        }
    })?;
    let result = server.wait();
    drop(stop);
    // The place of a panic is on standard error.
    let _ = flusher.join();
    flush(&app);
    app.tenants.close();
    app.registry.close();
    result?;
    tracing::info!("stopped");
    Ok(())
}

/// Starts the log on standard error. Failures to write to it are ignored, so that they do not
/// affect the service.
fn start_log(format: LogFormat) {
    let builder = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(Level::INFO)
        .log_internal_errors(false);
    // It fails only if the process has a logger already.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .try_init(),
    };
}

/// The configuration. `descriptors` is the limit on open files.
fn configure(options: &GlobalOptions, arguments: &Arguments, descriptors: u64) -> Config {
    let defaults = Config::new(&options.data_dir);
    // An open tenant uses three descriptors, and two for each extra connection. Half of all
    // descriptors belong to clients.
    let affordable = usize::try_from(descriptors / 16).unwrap_or(usize::MAX).max(16);
    let tls = arguments.tls_cert.clone().zip(arguments.tls_key.clone());
    Config {
        listen: arguments.listen,
        metrics_listen: arguments.metrics_listen,
        workers: arguments
            .workers
            .map_or(defaults.workers, |count| usize::from(count).max(MIN_WORKERS)),
        rate_limit: arguments.rate_limit,
        trusted_proxies: arguments.trusted_proxies.clone(),
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        connections: ConnectionLimits {
            idle_timeout: arguments.idle_timeout,
            head_timeout: arguments.head_timeout,
            body_timeout: arguments.body_timeout,
            write_timeout: arguments.write_timeout,
            max_connections: arguments.max_connections.map(NonZeroUsize::get),
        },
        tenants: TenantLimits {
            open: defaults.tenants.open.min(affordable),
            keep_changes: arguments.keep_changes,
            max_size: arguments.max_tenant_size,
        },
        ..defaults
    }
}

/// Raises the soft limit on open files to the hard limit and returns the soft limit.
fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let effective = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    effective.current.unwrap_or(u64::MAX)
}

/// After an error what is unwritten is kept for the next call.
fn flush(app: &App) {
    if let Err(error) = app.registry.flush() {
        tracing::warn!(%error, "last uses of keys and failed sign-ins cannot be written");
    }
}

/// A tenant that `--create-tenant` has created, with its secrets.
#[derive(Serialize)]
struct CreatedTenant {
    id: TenantId,
    name: String,
    password: String,
    key: Option<String>,
}

/// Creates those tenants of `names` that do not exist, each with a key with all scopes.
fn create_tenants(
    app: &App,
    names: &[String],
    created: &mut Vec<CreatedTenant>,
) -> anyhow::Result<()> {
    for name in names {
        if app.registry.find_tenant(name)?.is_some() {
            continue;
        }
        let password = password::generate()?;
        let hash = password::hash(&password)?;
        let new = NewKey::new("first key", Scopes::every());
        let (tenant, key) =
            app.registry.create_tenant(name, None, &hash, Some(new), app.clock.now())?;
        created.push(CreatedTenant { id: tenant.id, name: tenant.name, password, key });
    }
    Ok(())
}

/// Deletes new tenants whose secrets nobody has seen.
fn delete_tenants(app: &App, created: &[CreatedTenant]) {
    for CreatedTenant { name, .. } in created {
        if let Err(error) = app.registry.delete_tenant(name) {
            tracing::error!(tenant = name, %error, "the new tenant could not be deleted");
        }
    }
}

/// Starts the server and prints its addresses and the secrets of the new tenants.
fn start(
    options: &GlobalOptions,
    bound: BoundServer,
    app: &Arc<App>,
    signals: Signals,
    created: &[CreatedTenant],
) -> anyhow::Result<Edge> {
    let server = bound.start(Arc::clone(app), ping)?;
    handle_signals(signals, &server)?;
    match print_startup(options, &server, created) {
        Ok(()) => Ok(server),
        Err(error) => {
            server.stop()?;
            Err(error)
        }
    }
}

/// Starts the thread that handles signals: SIGHUP reloads the certificate, all others stop the
/// server.
fn handle_signals(mut signals: Signals, server: &Edge) -> anyhow::Result<()> {
    let (stopper, tls, status) = (server.stopper.clone(), server.tls.clone(), status(server));
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal != SIGHUP {
                tracing::info!("stopping");
                notify(&[NotifyState::Stopping]);
                stopper.stop();
                continue;
            }
            notify_reloading();
            match tls.as_ref().map_or(Ok(()), |tls| tls.reload()) {
                Ok(()) => tracing::info!("certificate reloaded"),
                Err(error) => tracing::error!(%error, "the new certificate cannot be used; the \
                                                       old one stays in use"),
            }
            notify_ready(&status);
        }
    })?;
    Ok(())
}

fn print_startup(
    options: &GlobalOptions,
    server: &Edge,
    created: &[CreatedTenant],
) -> anyhow::Result<()> {
    let listening = url(server, server.address);
    tracing::info!(address = %listening, "listening");
    let metrics = server.metrics_address.map(|address| format!("http://{address}/metrics"));
    let mut text: String = created.iter().map(|tenant| introduction(tenant, server)).collect();
    if let Some(metrics) = &metrics {
        text += &format!("metrics on {metrics}\n");
    }
    options.report(
        &json!({"listening": listening, "created": created, "metrics": metrics}),
        &format!("{text}listening on {listening}"),
    )
}

fn introduction(created: &CreatedTenant, server: &Edge) -> String {
    let CreatedTenant { id, name, password, key } = created;
    let key = key.as_deref().unwrap_or_default();
    let base = url(server, reachable(server.address));
    // The certificate is valid for a name, but the URL contains an address.
    let insecure = if server.tls.is_some() { " --insecure" } else { "" };
    format!(
        "tenant {name} (id {id}); its secrets cannot be shown again\n\
         panel password: {password}\n\
         API key:        {key}\n\
         panel:          {base}/api_keys.php\n\
         Try it:\n\n  \
         curl{insecure} -H 'Authorization: Bearer {key}' {base}/customers.php\n\n"
    )
}

fn status(server: &Edge) -> String {
    format!("listening on {}", url(server, server.address))
}

/// The URL of the server at `address`, without a path.
fn url(server: &Edge, address: SocketAddr) -> String {
    format!("{}://{address}", server.scheme())
}

/// The address at which this machine reaches the listener, also if it listens on all addresses.
pub(super) fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

const DAY: Duration = Duration::from_hours(24);

/// Parses a time-out: `75s`, `500ms`, `2m`.
fn timeout(text: &str) -> Result<Duration, &'static str> {
    let time = time(text).filter(|time| !time.is_zero() && *time <= DAY);
    time.ok_or("not a time with a unit of at most a day, such as 500ms, 10s or 2m")
}

/// Parses the time for which entries of the change log are kept: `90d`, `52w`.
fn retention(text: &str) -> Result<Duration, &'static str> {
    let time = time(text).filter(|time| (DAY..=DAY * 3650).contains(time));
    time.ok_or("not a time from 1d to 3650d, such as 90d")
}

/// Parses jiff's friendly format.
fn time(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
}

/// Parses a size: `500MiB`, `10GiB`.
fn size(text: &str) -> Result<u64, &'static str> {
    const INVALID: &str = "not a size such as 500MiB or 10GiB";
    let (number, unit) = match text.strip_suffix("GiB") {
        Some(number) => (number, 1 << 30),
        None => (text.strip_suffix("MiB").ok_or(INVALID)?, 1 << 20),
    };
    let number: NonZeroU32 = number.parse().map_err(|_| INVALID)?;
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
        for invalid in ["", "90", "0d", "23h", "3651d", "-1d", "1 month", "99999999999d"] {
            assert!(retention(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(size("10GiB"), Ok(10 << 30));
        assert_eq!(size("1MiB"), Ok(1 << 20));
        for invalid in ["", "10", "10GB", "-1GiB", "0MiB", "1.5GiB", "99999999999999999GiB"] {
            assert!(size(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn times_have_units_and_are_positive() {
        assert_eq!(timeout("75s"), Ok(Duration::from_secs(75)));
        assert_eq!(timeout("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(timeout("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(timeout("1d"), Ok(DAY));
        for invalid in
            ["", "s", "0", "75", "0s", "-1s", "2m ago", "1x", "25h", "99999999999999999999s"]
        {
            assert!(timeout(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_this_machine() {
        assert_eq!(reachable("0.0.0.0:80".parse().unwrap()), "127.0.0.1:80".parse().unwrap());
        assert_eq!(reachable("[::]:80".parse().unwrap()), "[::1]:80".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:80".parse().unwrap()), "10.0.0.1:80".parse().unwrap());
    }
}
