//! The library in this process, for tests that move the clock or break something on purpose.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenantdesk::clock::Clock;
use tenantdesk::config::Config;
use tenantdesk::metrics::Metrics;
use tenantdesk::server::{App, Application, Listeners, Server, ServerError};

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
