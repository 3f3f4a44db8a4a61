//! The library in this process, for tests that move the clock or break something on purpose.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenantdesk::app::App;
use tenantdesk::clock::Clock;
use tenantdesk::config::Config;
use tenantdesk::edge::{CONNECTION_LIMITS, Edge, EdgeError, EdgeParts, Listeners, Tls};
use tenantdesk::http::request::MAX_BODY;
use tenantdesk::http::{Handler, WorkerPool};
use tenantdesk::metrics::Metrics;

use super::server::DataDir;

/// A service within the test. It is a [`DataDir`] too.
pub(crate) struct InProcess {
    data_dir: Arc<DataDir>,
    service: Option<Edge>,
    clock: Clock,
}

impl std::ops::Deref for InProcess {
    type Target = Arc<DataDir>;
    fn deref(&self) -> &Arc<DataDir> {
        &self.data_dir
    }
}

impl InProcess {
    /// Serves with a clock that stands at `start`, RFC 3339, and the contract's rate limit.
    pub(crate) fn at(start: &str) -> InProcess {
        let data_dir = DataDir::new(false);
        let clock = Clock::manual(start.parse().unwrap());
        let rate_limit = NonZeroU32::new(100).unwrap();
        let config = Config { rate_limit, ..config(&data_dir) };
        let app = open(&config, clock.clone()).unwrap();
        let handler: Handler = Arc::new(move |request, responder| app.admit(request, responder));
        let service = serve(handler, config, clock.clone()).unwrap();
        data_dir.set_address(service.address);
        InProcess { data_dir, service: Some(service), clock }
    }

    /// Serves what `handler` makes of a fresh service's state, with a rate limit that is out of the
    /// way.
    pub(crate) fn made_of(handler: impl FnOnce(Arc<App>) -> Handler) -> InProcess {
        let data_dir = DataDir::new(false);
        let clock = Clock::system();
        let config = Config { rate_limit: NonZeroU32::MAX, ..config(&data_dir) };
        let app = open(&config, clock.clone()).unwrap();
        let service = serve(handler(app), config, clock.clone()).unwrap();
        data_dir.set_address(service.address);
        InProcess { data_dir, service: Some(service), clock }
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn advance_millis(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    /// The clock's time in seconds since the Unix epoch.
    pub(crate) fn unix_seconds(&self) -> i64 {
        self.clock.now().unix_seconds()
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.stop().unwrap();
        }
    }
}

/// Starts a server with a handler in place of the application. It takes a body on every path.
pub(crate) fn serve(handler: Handler, config: Config, clock: Clock) -> Result<Edge, EdgeError> {
    let listeners = Listeners::bind(config.listen, None)?;
    let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
    let metrics = Arc::new(Metrics::new(|_| "other"));
    let pool = WorkerPool::start(handler, config.workers, Arc::clone(&metrics));
    let parts = EdgeParts {
        limits: config.connections.unwrap_or(CONNECTION_LIMITS),
        proxies: config.trusted_proxies,
        pool: Arc::new(pool.map_err(EdgeError::Start)?),
        max_body: |_, _| MAX_BODY,
        tls,
        on_probe: || (),
        clock,
        metrics,
    };
    Edge::start(listeners, parts)
}

/// Makes the data directory if there is none, as `serve` does, and opens it.
pub(crate) fn open(config: &Config, clock: Clock) -> Result<Arc<App>, String> {
    tenantdesk::store::DataDir::create(&config.data_dir).map_err(|error| error.to_string())?;
    App::open(config, clock).map_err(|error| error.to_string())
}

fn config(data_dir: &DataDir) -> Config {
    Config { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..Config::new(data_dir.data()) }
}

/// A service that opens one data directory after the other, with a rate limit that is out of the
/// way. A service that has ended leaves threads of tiny_http in the process, so it is not started
/// anew for each.
pub(crate) struct AppServer {
    service: Option<Edge>,
    app: Arc<Mutex<Option<Arc<App>>>>,
}

impl AppServer {
    pub(crate) fn start() -> AppServer {
        let app = Arc::<Mutex<Option<Arc<App>>>>::default();
        let present = Arc::clone(&app);
        let handler: Handler = Arc::new(move |request, responder| {
            let app = present.lock().unwrap().clone();
            app.expect("a data directory is open").admit(request, responder)
        });
        let service = serve(handler, config(&DataDir::new(false)), Clock::system()).unwrap();
        AppServer { service: Some(service), app }
    }

    /// Serves a data directory until the result is dropped. Returns why it cannot be opened.
    pub(crate) fn open(&self, data_dir: &Arc<DataDir>) -> Result<OpenApp<'_>, String> {
        let config = Config { rate_limit: NonZeroU32::MAX, ..config(data_dir) };
        let app = open(&config, Clock::system())?;
        *self.app.lock().unwrap() = Some(app);
        data_dir.set_direct_address(self.service.as_ref().unwrap().address);
        Ok(OpenApp(self))
    }
}

impl Drop for AppServer {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.stop().unwrap();
        }
    }
}

/// A data directory that is served.
pub(crate) struct OpenApp<'a>(&'a AppServer);

impl Drop for OpenApp<'_> {
    fn drop(&mut self) {
        *self.0.app.lock().unwrap() = None;
    }
}
