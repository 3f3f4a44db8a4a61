//! The library in this process, for tests that move the clock or break something on purpose.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use tenantdesk::api::{Admission, Job};
use tenantdesk::clock::Clock;
use tenantdesk::config::Config;
use tenantdesk::http::{Method, Request, Responder, Response};
use tenantdesk::metrics::Metrics;
use tenantdesk::server::{App, Application, Intake, Listeners, Server, ServerError};

use super::server::{DataDir, Tenant};

/// A service within the test. It is a [`DataDir`] too.
pub(crate) struct InProcess {
    data_dir: Arc<DataDir>,
    service: Option<Server>,
    clock: Clock,
}

impl std::ops::Deref for InProcess {
    type Target = Arc<DataDir>;
    fn deref(&self) -> &Arc<DataDir> {
        &self.data_dir
    }
}

impl InProcess {
    /// Serves the tenant `acme` with a clock that stands at `start`, RFC 3339, and the contract's
    /// rate limit.
    pub(crate) fn at(start: &str) -> (InProcess, Tenant) {
        let data_dir = DataDir::new(false);
        let tenant = data_dir.tenant("acme");
        let clock = Clock::manual(start.parse().unwrap());
        let rate_limit = NonZeroU32::new(100).unwrap();
        let config = Config { rate_limit, ..config(&data_dir) };
        let app = open(&config, clock.clone()).unwrap();
        let service = serve(app, &config, clock.clone()).unwrap();
        data_dir.set_address(service.address);
        (InProcess { data_dir, service: Some(service), clock }, tenant)
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

pub(crate) fn serve(
    app: Arc<dyn Application>,
    config: &Config,
    clock: Clock,
) -> Result<Server, ServerError> {
    let metrics = Arc::new(Metrics::new(|_| "other"));
    Server::start(Listeners::bind(config)?, config, app, clock, metrics)
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
    service: Option<Server>,
    app: Arc<Present>,
}

/// The application of the data directory that is open at present.
#[derive(Default)]
struct Present(Mutex<Option<Arc<App>>>);

impl Present {
    fn app(&self) -> Arc<App> {
        self.0.lock().unwrap().clone().expect("a data directory is open")
    }
}

impl Application for Present {
    fn intake(&self, method: &Method, path: &str, headers: &HeaderMap) -> Intake {
        self.app().intake(method, path, headers)
    }

    fn ready(&self) -> Response {
        self.app().ready()
    }

    fn admit(&self, request: &Request, responder: &mut Responder) -> Admission {
        self.app().admit(request, responder)
    }

    fn run(&self, job: Job, request: &Request, responder: Responder) {
        self.app().run(job, request, responder);
    }

    fn overloaded(&self, job: Job) -> Response {
        self.app().overloaded(job)
    }
}

impl AppServer {
    pub(crate) fn start() -> AppServer {
        let app = Arc::new(Present::default());
        let service = serve(app.clone(), &config(&DataDir::new(false)), Clock::system()).unwrap();
        AppServer { service: Some(service), app }
    }

    /// Serves a data directory until the result is dropped. Returns why it cannot be opened.
    pub(crate) fn open(&self, data_dir: &Arc<DataDir>) -> Result<OpenApp<'_>, String> {
        let config = Config { rate_limit: NonZeroU32::MAX, ..config(data_dir) };
        let app = open(&config, Clock::system())?;
        *self.app.0.lock().unwrap() = Some(app);
        data_dir.set_address(self.service.as_ref().unwrap().address);
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
        *self.0.app.0.lock().unwrap() = None;
    }
}
