//! The running service: gate, tiny_http and what answers, put together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::api;
use crate::app::App;
use crate::clock::Clock;
use crate::gate::{self, Gate, GateError, Limits, Network, Tls, TlsError};
use crate::http::server::{Handler, Server, Workers};
use crate::turns::Turns;

/// How a service listens and how much it takes on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port 0 lets the system choose; [`Service::address`] says what it chose.
    pub listen: SocketAddr,
    /// Workers that may use the processor at once.
    pub workers: usize,
    pub limits: Limits,
    /// Whose `X-Forwarded-For` and `-Proto` are believed, besides this machine's.
    pub trusted_proxies: Vec<Network>,
    pub tls: Option<TlsFiles>,
    pub clock: Clock,
}

/// Files in PEM form.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Worker threads, most of which wait for disks and locks.
const THREADS: usize = 32;

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            workers: std::thread::available_parallelism().map_or(1, usize::from) + 1,
            limits: Limits::default(),
            trusted_proxies: Vec::new(),
            tls: None,
            clock: Clock::system(),
        }
    }
}

/// Why a service did not start, or ended unasked.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A running service.
pub struct Service {
    gate: Gate,
    tls: Option<Arc<Tls>>,
}

/// Asks a service to stop, from wherever signals are handled.
#[derive(Clone, Debug)]
pub struct Stopper(gate::Stopper);

impl Stopper {
    /// No new connections or requests from now on.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// Has a service's certificate read again.
#[derive(Clone, Debug)]
pub struct TlsReloader(Option<Arc<Tls>>);

impl TlsReloader {
    /// Reads the files again, for connections from now on; on an error the old pair stays. Nothing without TLS.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.0.as_ref().map_or(Ok(()), |tls| tls.reload())
    }
}

impl Service {
    /// Serves the API. Time is the app's clock's.
    pub fn start(app: Arc<App>, options: &Options) -> Result<Service, ServiceError> {
        let options = Options { clock: app.clock.clone(), ..options.clone() };
        Service::start_with(Arc::new(move |request, reply| api::answer(&app, &request, reply)), &options)
    }

    /// Serves with a handler of one's own. When this returns, requests are answered.
    pub fn start_with(handler: Handler, options: &Options) -> Result<Service, ServiceError> {
        let tls = options.tls.clone().map(|files| Tls::load(files.certificate, files.key)).transpose()?.map(Arc::new);
        let workers = Workers { threads: options.workers.max(THREADS), turns: Turns::new(options.workers) };
        let clock = options.clock.clone();
        let start_server = Box::new(move || Server::start(Arc::clone(&handler), clock.clone(), &workers));
        let settings = gate::Settings {
            listen: options.listen,
            limits: options.limits.clone(),
            proxies: options.trusted_proxies.clone(),
            tls: tls.clone(),
        };
        Ok(Service { gate: Gate::start(settings, start_server)?, tls })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.gate.address()
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub fn stopper(&self) -> Stopper {
        Stopper(self.gate.stopper())
    }

    pub fn tls_reloader(&self) -> TlsReloader {
        TlsReloader(self.tls.clone())
    }

    /// Blocks until a [`Stopper`] has stopped it, or it has failed: the server behind the gate died and could not be replaced.
    pub fn wait(self) -> Result<(), ServiceError> {
        Ok(self.gate.wait()?)
    }

    /// Stops taking requests, answers those under way (for 10 s at most), and returns.
    pub fn stop(self) -> Result<(), ServiceError> {
        self.stopper().stop();
        self.wait()
    }
}
