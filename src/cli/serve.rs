//! `serve`: runs the server until it is asked to stop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use ipnet::IpNet;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::logging::{self, LogFormat};
use super::output::{print, print_json};
use super::supervisor::Supervisor;
use super::{General, tenant, tenant_name};
use crate::app::{App, Settings};
use crate::clock::{Clock, Moment};
use crate::edge::{self, Limits};
use crate::model::Scopes;
use crate::server::{self, Service, TlsFiles};
use crate::store::data_dir::NewDataDir;
use crate::store::data_dir_lock::DataDirLock;
use crate::store::registry::{Actor, Registry, TenantRow};

#[derive(Debug, Args)]
pub struct Options {
    /// Where to listen; port 0 lets the system choose
    #[arg(long, env = "TENANTDESK_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Requests that may use the processor at once [default: cores + 1]
    #[arg(long, env = "TENANTDESK_WORKERS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Requests a minute for each key
    #[arg(long, env = "TENANTDESK_RATE_LIMIT", default_value = "100", value_name = "N")]
    rate_limit: NonZeroU32,
    /// A proxy whose X-Forwarded-For and X-Forwarded-Proto are believed; repeatable
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
    /// Answer Prometheus here on /metrics, in plain HTTP; not for the outside [default: off]
    #[arg(long, env = "TENANTDESK_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
    /// How the log on standard error looks
    #[arg(long, env = "TENANTDESK_LOG_FORMAT", default_value = "text", value_enum)]
    log_format: LogFormat,
    /// Make this tenant if it does not exist, and print a key of all scopes and a panel password; repeatable
    #[arg(
        long = "create-tenant",
        env = "TENANTDESK_CREATE_TENANT",
        value_delimiter = ',',
        value_parser = tenant_name,
        value_name = "NAME"
    )]
    create_tenants: Vec<String>,
    /// How long a connection may wait between two requests
    #[arg(long, env = "TENANTDESK_IDLE_TIMEOUT", default_value = "75s", value_parser = duration, value_name = "TIME")]
    idle_timeout: Duration,
    /// How long a request's head may take from its first byte
    #[arg(long, env = "TENANTDESK_HEAD_TIMEOUT", default_value = "10s", value_parser = duration, value_name = "TIME")]
    head_timeout: Duration,
    /// How long a request's body may take
    #[arg(long, env = "TENANTDESK_BODY_TIMEOUT", default_value = "10s", value_parser = duration, value_name = "TIME")]
    body_timeout: Duration,
    /// How long a client may take to read 64 KiB of an answer
    #[arg(long, env = "TENANTDESK_WRITE_TIMEOUT", default_value = "10s", value_parser = duration, value_name = "TIME")]
    write_timeout: Duration,
    /// Connections at once [default: half of the descriptor limit, at most 10000]
    #[arg(long, env = "TENANTDESK_MAX_CONNECTIONS", value_name = "N")]
    max_connections: Option<NonZeroUsize>,
}

/// How often the last uses of keys are written.
const FLUSH_PERIOD: Duration = Duration::from_secs(60);

pub fn run(general: &General, options: Options) -> anyhow::Result<()> {
    logging::start(options.log_format);
    // Before anything can be interrupted, so that no signal is missed.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot handle signals")?;
    let descriptors = raise_descriptor_limit();

    let data_dir = NewDataDir::create(&general.data_dir)?;
    // Where both the directory and the address are taken, this is the more useful message.
    let _data_dir_lock = DataDirLock::acquire(&general.data_dir)?;
    let bound = Service::bind(service_options(&options, general.clock()))?;
    drop(Registry::create(&general.data_dir)?);
    let app = App::open(settings(general, &options, descriptors), general.clock())?;
    let tenants = NewTenants::create(&app, &options.create_tenants)?;
    let service = bound.start(Arc::clone(&app))?;
    let writing = write_last_uses(Arc::clone(&app))?;
    let supervisor = Arc::new(Supervisor::from_environment());
    heed_signals(signals, &service, Arc::clone(&supervisor))?;

    let announced = announce(general, &service, &tenants.created);
    match announced {
        Ok(()) => {
            tenants.keep();
            data_dir.keep();
            supervisor.ready(&status(&service));
        }
        Err(_) => service.stopper().stop(),
    }
    let heartbeat = service.heartbeat();
    let watch = supervisor.watch(move || heartbeat.load(Ordering::Relaxed))?;
    let ended = service.wait();
    drop(watch);
    drop(writing.stop);
    // Its panic would have been logged; what it had to write is lost then, a minute's last uses.
    let _ = writing.thread.join();
    app.tenants.close();
    announced?;
    ended?;
    tracing::info!("stopped");
    Ok(())
}

fn settings(general: &General, options: &Options, descriptors: u64) -> Settings {
    let mut settings = Settings::new(&general.data_dir);
    settings.rate_limit = options.rate_limit;
    // An open tenant takes three descriptors and two for each further connection; half of all are the clients'.
    let affordable = usize::try_from(descriptors / 16).unwrap_or(usize::MAX).max(16);
    settings.tenants.open = settings.tenants.open.min(affordable);
    settings
}

fn service_options(options: &Options, clock: Clock) -> server::Options {
    let defaults = server::Options::default();
    let tls = options.tls_cert.clone().zip(options.tls_key.clone());
    server::Options {
        listen: options.listen,
        workers: options.workers.map_or(defaults.workers, usize::from),
        limits: Limits {
            idle_timeout: options.idle_timeout,
            head_timeout: options.head_timeout,
            body_timeout: options.body_timeout,
            write_timeout: options.write_timeout,
            max_connections: options.max_connections.map(NonZeroUsize::get),
        },
        trusted_proxies: options.trusted_proxies.clone(),
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        metrics_listen: options.metrics_listen,
        clock,
        ..defaults
    }
}

/// Raises the soft limit on open files to the hard one and says what it is now.
fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    now.current.unwrap_or(u64::MAX)
}

struct Writing {
    /// Dropped, it ends the thread.
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

/// A thread that writes the last uses of keys once a minute and at the end.
fn write_last_uses(app: Arc<App>) -> anyhow::Result<Writing> {
    let (stop, stopped) = mpsc::channel();
    let thread = thread::Builder::new().name("last-uses".to_owned()).spawn(move || {
        loop {
            let goes_on = stopped.recv_timeout(FLUSH_PERIOD) == Err(RecvTimeoutError::Timeout);
            if let Err(error) = app.registry.flush_uses() {
                tracing::warn!(%error, "the last uses of keys cannot be written now");
            }
            if !goes_on {
                return;
            }
        }
    })?;
    Ok(Writing { stop, thread })
}

fn status(service: &Service) -> String {
    format!("listening on {}://{}", service.scheme(), service.address())
}

fn heed_signals(mut signals: Signals, service: &Service, supervisor: Arc<Supervisor>) -> anyhow::Result<()> {
    let (stopper, reloader, status) = (service.stopper(), service.tls_reloader(), status(service));
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal != SIGHUP {
                tracing::info!("stopping");
                supervisor.stopping();
                stopper.stop();
                continue;
            }
            supervisor.reloading();
            match reloader.reload() {
                Ok(()) => tracing::info!("certificate read again"),
                Err(error) => tracing::error!(%error, "the new certificate cannot be used; the old one stays"),
            }
            supervisor.ready(&status);
        }
    })?;
    Ok(())
}

/// A tenant that was just made, and what is shown of it once.
struct Created {
    tenant: TenantRow,
    password: String,
    key: String,
}

/// Prints the secrets of the tenants that were made, and where the server listens.
fn announce(general: &General, service: &Service, created: &[Created]) -> anyhow::Result<()> {
    let listening = format!("{}://{}", service.scheme(), service.address());
    tracing::info!(address = %listening, "listening");
    let metrics = service.metrics_address().map(|address| format!("http://{address}/metrics"));
    if general.json {
        let created: Vec<Value> = created.iter().map(document).collect();
        return print_json(&json!({"listening": listening, "created": created, "metrics": metrics}));
    }
    let mut text = String::new();
    for created in created {
        text += &introduction(created, service);
    }
    if let Some(metrics) = metrics {
        text += &format!("metrics on {metrics}\n");
    }
    print(&format!("{text}listening on {listening}"))
}

/// The tenants of `--create-tenant` that did not exist. Dropped without [`NewTenants::keep`], it deletes them: nobody has
/// seen their secrets.
struct NewTenants<'a> {
    registry: &'a Registry,
    /// Their names, also while `created` lacks the last one.
    names: Vec<&'a str>,
    created: Vec<Created>,
}

impl<'a> NewTenants<'a> {
    /// Makes those of `wanted` that do not exist, each with a key of all scopes. All of them or none.
    fn create(app: &'a App, wanted: &'a [String]) -> anyhow::Result<NewTenants<'a>> {
        let mut tenants = NewTenants { registry: &app.registry, names: Vec::new(), created: Vec::new() };
        for name in wanted {
            if app.registry.find_tenant(name)?.is_none() {
                tenants.create_one(name, app.clock.now())?;
            }
        }
        Ok(tenants)
    }

    fn create_one(&mut self, name: &'a str, now: Moment) -> anyhow::Result<()> {
        let (tenant, password) = tenant::make(self.registry, name, None, now)?;
        self.names.push(name);
        let (_, key) = self.registry.create_key(tenant.id, "first key", Scopes::every(), Actor::CommandLine, now)?;
        self.created.push(Created { tenant, password, key });
        Ok(())
    }

    fn keep(mut self) {
        self.names.clear();
    }
}

impl Drop for NewTenants<'_> {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(error) = self.registry.delete_tenant(name) {
                tracing::error!(tenant = name, %error, "the tenant could not be deleted again");
            }
        }
    }
}

fn document(created: &Created) -> Value {
    json!({
        "id": created.tenant.id,
        "name": created.tenant.name,
        "password": created.password,
        "key": created.key,
    })
}

fn introduction(created: &Created, service: &Service) -> String {
    let Created { tenant, password, key } = created;
    let base = format!("{}://{}", service.scheme(), reachable(service.address()));
    // The certificate is for a name, and this is an address.
    let insecure = if service.scheme() == "https" { " --insecure" } else { "" };
    format!(
        "tenant {} (id {}); its secrets are shown this once\n\
         panel password: {password}\n\
         API key:        {key}\n\
         panel:          {base}/api_keys.php\n\
         To try it:\n\n  \
         curl{insecure} -H 'Authorization: Bearer {key}' {base}/customers.php\n\n",
        tenant.name, tenant.id
    )
}

/// The address to reach a listener at from this machine, also where it listens on all.
fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

/// `75s`, `500ms`, `2m`; a number alone counts seconds.
fn duration(text: &str) -> Result<Duration, &'static str> {
    const WRONG: &str = "a time is a whole number above 0 with ms, s or m, such as 10s";
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse::<u32>().map_err(|_| WRONG)?.into();
    let milliseconds = match text.get(digits.len()..) {
        Some("ms") => number,
        Some("s" | "") => number * 1_000,
        Some("m") => number * 60_000,
        _ => return Err(WRONG),
    };
    if milliseconds == 0 { Err(WRONG) } else { Ok(Duration::from_millis(milliseconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("75s"), Ok(Duration::from_secs(75)));
        assert_eq!(duration("75"), Ok(Duration::from_secs(75)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "s", "0", "0s", "-1s", "1.5s", "1h", "1 s", "99999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_this_machine() {
        assert_eq!(reachable("0.0.0.0:80".parse().unwrap()), "127.0.0.1:80".parse().unwrap());
        assert_eq!(reachable("[::]:80".parse().unwrap()), "[::1]:80".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:80".parse().unwrap()), "10.0.0.1:80".parse().unwrap());
    }
}
