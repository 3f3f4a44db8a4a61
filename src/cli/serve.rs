//! `serve`: runs the server until a signal stops it.

use std::io::{self, BufWriter, Stderr, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use serde::Serialize;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use tracing::Level;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::writer::MakeWriterExt as _;

use super::options::{GlobalOptions, tenant_name};
use crate::clock::Clock;
use crate::config::Config;
use crate::files::free_space;
use crate::model::{Scopes, TenantId};
use crate::secret;
use crate::server::{App, Listeners, Server, notify};
use crate::store::registry::NewKey;
use crate::store::{DataDir, LAST_LINE};

#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    #[command(flatten)]
    config: Config,
    /// The format of the log on standard error
    #[arg(long, env = "TENANTDESK_LOG_FORMAT", default_value = "text", value_enum)]
    log_format: LogFormat,
    /// Create this tenant if it does not exist, and print a key with all scopes and a panel
    /// password; repeatable
    #[arg(long = "create-tenant", env = "TENANTDESK_CREATE_TENANT", value_delimiter = ',',
          value_parser = tenant_name, value_name = "NAME")]
    create_tenants: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// The maximum number of log lines that wait for the thread that writes them.
const MAX_LOG_LINES: usize = 16_384;

/// The pause of the log's thread after it has written what waited. A thread without lines to write
/// makes some ten system calls before it sleeps.
const LOG_PAUSE: Duration = Duration::from_millis(25);

/// The interval at which last uses of keys and failed sign-ins are written, so that commands show
/// them. After a failure, the next try is a minute later.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// How long the writers of the tenants have to finish at the end.
const WRITERS_WAIT: Duration = Duration::from_secs(3);

/// How long the end of the process waits for the files, after the requests have ended. With the
/// 10 s for requests, the process has ended before systemd kills it.
const END_WAIT: Duration = Duration::from_secs(8);

/// The interval of [`keep_up`].
const UPKEEP_INTERVAL: Duration = Duration::from_secs(60);

pub(super) fn run(
    options: &GlobalOptions,
    arguments: &ServeArguments,
    unknown_variables: &[String],
) -> anyhow::Result<()> {
    let (_log, lost_lines) = start_log(arguments.log_format);
    raise_descriptor_limit();
    let config = Config { data_dir: options.data_dir.clone(), ..arguments.config.clone() };
    tracing::info!("starting");
    for variable in unknown_variables {
        tracing::warn!(variable, "the variable sets no option; is it misspelt?");
    }

    let is_starting = end_at_signals()?;
    DataDir::create(&options.data_dir)?;
    // Locked before the address is bound: if both are in use, the message about the directory is
    // more useful.
    // Kept until the process has ended, because a writer may run until then.
    std::mem::forget(DataDir::lock_to_serve(&options.data_dir)?);
    let listeners = Listeners::bind(&config)?;
    let app = App::open(&config, Clock::system())?;
    let _ = app.metrics.lost_lines.set(lost_lines);
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot handle signals")?;
    is_starting.store(false, Ordering::SeqCst);
    let created = create_tenants(&app, &arguments.create_tenants)?;
    let server = start(options, listeners, &config, &app, signals, &created)?;
    notify(&[NotifyState::Ready, NotifyState::Status(&status(&server))]);
    measure_space(&app);

    let (stop, stopped) = mpsc::channel::<()>();
    let flushed = Arc::clone(&app);
    let flusher = thread::Builder::new().name("last-uses".to_owned()).spawn(move || {
        let (mut interval, mut last_upkeep) = (FLUSH_INTERVAL, Instant::now());
        while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            interval = if flush(&flushed) { FLUSH_INTERVAL } else { UPKEEP_INTERVAL };
            if last_upkeep.elapsed() >= UPKEEP_INTERVAL {
                keep_up(&flushed);
                last_upkeep = Instant::now();
            }
        }
    })?;
    if let Err(error) = server.wait() {
        // Every other step of the end may wait for the disk for which the workers wait. So may the
        // last drop of `app`, which closes the files.
        std::mem::forget(app);
        return Err(error.into());
    }
    drop(stop);
    let (ended, end) = mpsc::channel();
    thread::Builder::new().name("end".to_owned()).spawn(move || {
        // The place of a panic is on standard error.
        let _ = flusher.join();
        flush(&app);
        app.tenants.close(WRITERS_WAIT);
        app.registry.checkpoint(true);
        let _ = ended.send(());
    })?;
    match end.recv_timeout(END_WAIT) {
        Ok(()) => tracing::info!("stopped"),
        Err(_) => tracing::warn!("stopped, while a disk or another program held a file"),
    }
    Ok(())
}

/// Makes a signal end the process at once while the returned flag is set: while the server waits
/// for a command, or migrates. A parent such as `nohup` may have left SIGINT ignored.
fn end_at_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let is_starting = Arc::new(AtomicBool::new(true));
    for signal in [SIGTERM, SIGINT] {
        flag::register_conditional_default(signal, Arc::clone(&is_starting))
            .context("cannot handle signals")?;
    }
    Ok(is_starting)
}

/// Standard error, for the thread of the log, which flushes when no line waits. So a lone line is not
/// delayed. The pause after it lets the next lines share a call: without it, a busy server would wake
/// the thread for nearly each line.
struct PacedStderr(BufWriter<Stderr>);

impl Write for PacedStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        thread::sleep(LOG_PAUSE);
        Ok(())
    }
}

/// Starts the log on standard error. A thread writes it, so that a reader of the log that hangs
/// does not stop the service. Lines beyond [`MAX_LOG_LINES`] are lost and counted. Dropping the
/// guard writes what waits, for at most a second.
fn start_log(format: LogFormat) -> (WorkerGuard, ErrorCounter) {
    let (lines, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_LOG_LINES)
        .thread_name("log")
        .finish(PacedStderr(BufWriter::with_capacity(64 * 1024, io::stderr())));
    let lost = lines.error_counter();
    // The process ends after this line, so nobody else would write it.
    let last = io::stderr.with_filter(|event| event.target() == LAST_LINE);
    let builder = tracing_subscriber::fmt()
        .with_writer(last.or_else(lines))
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
    (guard, lost)
}

/// The system's own allocator keeps most of the memory that a thousand slow clients made it allocate.
/// `.cargo/config.toml` sets jemalloc up. The allocator stands in the library, so that tests have it
/// too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Starts the allocator's thread. It returns freed memory to the system within a second, even if
/// the process is idle.
///
/// jemalloc could start it by itself, with the first allocation. In a static binary, this comes
/// before glibc knows which permissions a stack needs: the stack would be executable, which
/// systemd's `MemoryDenyWriteExecute=` denies.
fn return_memory_when_idle() {
    if let Err(error) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::warn!(%error, "the allocator's thread does not start; an idle process keeps \
                                freed memory");
    }
}

/// Raises the soft limit on open files to the hard limit. If that fails, the soft limit stays.
fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Measures the free space, and warns if it is little.
fn measure_space(app: &App) {
    let Ok((free, warning)) = free_space(app.registry.data_dir()) else { return };
    app.metrics.set_free_space(free);
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
}

/// Writes what the registry has in memory, and returns whether it could.
fn flush(app: &App) -> bool {
    let written = app.registry.flush();
    if let Err(error) = &written {
        tracing::warn!(%error, "last uses of keys and failed sign-ins cannot be written");
    }
    written.is_ok()
}

/// Measures the free space, closes files that nobody uses, and copies the registry's WAL into its
/// file.
fn keep_up(app: &App) {
    measure_space(app);
    app.tenants.close_unused();
    app.registry.checkpoint(false);
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
fn create_tenants(app: &App, names: &[String]) -> anyhow::Result<Vec<CreatedTenant>> {
    let mut created = Vec::new();
    for name in names {
        if app.registry.find_tenant(name)?.is_some() {
            continue;
        }
        let password = secret::generate_password()?;
        let hash = secret::hash_password(&password)?;
        let new = NewKey::new("first key", Scopes::every());
        let (tenant, key) =
            app.registry.create_tenant(name, None, &hash, Some(new), app.clock.now())?;
        created.push(CreatedTenant { id: tenant.id, name: tenant.name, password, key });
    }
    Ok(created)
}

/// Starts the server and prints its addresses and the secrets of the new tenants.
fn start(
    options: &GlobalOptions,
    listeners: Listeners,
    config: &Config,
    app: &Arc<App>,
    signals: Signals,
    created: &[CreatedTenant],
) -> anyhow::Result<Server> {
    return_memory_when_idle();
    let (clock, metrics) = (app.clock.clone(), Arc::clone(&app.metrics));
    let server = Server::start(listeners, config, app.clone(), clock, metrics)?;
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
fn handle_signals(mut signals: Signals, server: &Server) -> anyhow::Result<()> {
    let (stopper, tls, status) = (server.stopper.clone(), server.tls.clone(), status(server));
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal != SIGHUP {
                tracing::info!("stopping");
                notify(&[NotifyState::Stopping]);
                stopper.cancel();
                continue;
            }
            match NotifyState::monotonic_usec_now() {
                Ok(now) => notify(&[NotifyState::Reloading, now]),
                Err(error) => tracing::warn!(%error, "the supervisor is not told of the reload"),
            }
            match tls.as_ref().map(|tls| tls.reload()) {
                None => tracing::info!("SIGHUP reads the certificate again; there is none"),
                Some(Ok(())) => tracing::info!("certificate reloaded"),
                Some(Err(error)) => tracing::error!(%error, "the new certificate cannot be used; \
                                                             the old one stays in use"),
            }
            // It must follow `RELOADING=1`.
            notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
        }
    })?;
    Ok(())
}

fn print_startup(
    options: &GlobalOptions,
    server: &Server,
    created: &[CreatedTenant],
) -> anyhow::Result<()> {
    let listening = url(server, server.address);
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

fn introduction(created: &CreatedTenant, server: &Server) -> String {
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

fn status(server: &Server) -> String {
    format!("listening on {}", url(server, server.address))
}

/// The URL of the server at `address`, without a path.
fn url(server: &Server, address: SocketAddr) -> String {
    format!("{}://{address}", server.scheme())
}

/// The address at which this machine reaches the listener. A listener on all addresses is reached
/// on loopback.
pub(super) fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_this_machine() {
        assert_eq!(reachable("0.0.0.0:80".parse().unwrap()), "127.0.0.1:80".parse().unwrap());
        assert_eq!(reachable("[::]:80".parse().unwrap()), "[::1]:80".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:80".parse().unwrap()), "10.0.0.1:80".parse().unwrap());
    }
}
