//! The library in this process, for tests that move the clock or break something on purpose.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenantdesk::app::{App, Settings};
use tenantdesk::clock::Clock;
use tenantdesk::http::workers::Handler;
use tenantdesk::server::{Options, Service};
use tenantdesk::store::registry::Registry;

use super::server::DataDir;

/// A service within the test. It is a [`DataDir`] too.
pub struct InProcess {
    data_dir: Arc<DataDir>,
    service: Option<Service>,
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
    pub fn at(start: &str) -> InProcess {
        let rate_limit = 100;
        let data_dir = DataDir::new(false);
        let clock = Clock::manual(start.parse().unwrap());
        Registry::create(&data_dir.data()).unwrap();
        let rate_limit = NonZeroU32::new(rate_limit).unwrap();
        let app = App::open(Settings { rate_limit, ..Settings::new(data_dir.data()) }, clock.clone()).unwrap();
        let handler: Handler = Arc::new(move |request, reply| app.respond(&request, reply));
        let service = Service::start_with(handler, &options(&clock)).unwrap();
        data_dir.set_address(service.address());
        InProcess { data_dir, service: Some(service), clock }
    }

    /// Serves with another handler than the pipeline.
    pub fn answering(handler: Handler) -> InProcess {
        let data_dir = DataDir::new(false);
        let clock = Clock::system();
        let service = Service::start_with(handler, &options(&clock)).unwrap();
        // It shows how the service itself holds out; a proxy would hold out before it.
        data_dir.set_direct_address(service.address());
        InProcess { data_dir, service: Some(service), clock }
    }

    /// Serves what `handler` makes of a fresh service's state, with a rate limit that is out of the way.
    pub fn made_of(handler: impl FnOnce(Arc<App>) -> Handler) -> InProcess {
        let data_dir = DataDir::new(false);
        let clock = Clock::system();
        Registry::create(&data_dir.data()).unwrap();
        let settings = Settings { rate_limit: NonZeroU32::MAX, ..Settings::new(data_dir.data()) };
        let app = App::open(settings, clock.clone()).unwrap();
        let service = Service::start_with(handler(app), &options(&clock)).unwrap();
        data_dir.set_address(service.address());
        InProcess { data_dir, service: Some(service), clock }
    }

    pub fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub fn advance_millis(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    /// The clock's time in seconds since the Unix epoch.
    pub fn unix_seconds(&self) -> i64 {
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

fn options(clock: &Clock) -> Options {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Options { listen, clock: clock.clone(), ..Options::default() }
}
