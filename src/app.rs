//! The service's state, passed down to whoever needs it. There is no other.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::api::rate_limit::Limiter;
use crate::api::routes;
use crate::clock::{Clock, Moment};
use crate::metrics::Metrics;
use crate::panel;
use crate::readiness::{self, Readiness};
use crate::store::registry::Registry;
use crate::store::{Limits, OpenError, Tenants};

/// What the operator can set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the registry and the tenants' files lie.
    pub data_dir: PathBuf,
    /// Requests a minute for each key.
    pub rate_limit: NonZeroU32,
    /// Bounds of the open tenant files.
    pub tenants: Limits,
}

impl Settings {
    /// The defaults, on `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Settings {
        Settings {
            data_dir: data_dir.into(),
            rate_limit: const { NonZeroU32::new(100).unwrap() },
            tenants: Limits::default(),
        }
    }
}

/// Everything that answers requests.
#[derive(Debug)]
pub struct App {
    pub settings: Settings,
    pub registry: Registry,
    pub tenants: Tenants,
    pub limiter: Limiter,
    pub clock: Clock,
    pub panel: panel::State,
    pub metrics: Arc<Metrics>,
    readiness: Readiness,
}

impl App {
    /// Opens the registry in the data directory, which must be there, and probes both for the first time. Tenants are opened
    /// when they are asked for.
    pub fn open(settings: Settings, clock: Clock) -> Result<Arc<App>, OpenError> {
        let metrics = Arc::new(Metrics::new(routes::label));
        let registry = Registry::open(&settings.data_dir)?;
        let readiness = Readiness::new(clock.now().monotonic, || probe(&registry, &settings.data_dir));
        Ok(Arc::new(App {
            registry,
            tenants: Tenants::new(&settings.data_dir, settings.tenants, Arc::clone(&metrics)),
            limiter: Limiter::new(settings.rate_limit),
            clock,
            panel: panel::State::default(),
            metrics,
            readiness,
            settings,
        }))
    }

    /// Whether the registry answers and the data directory takes a write, or what fails (contract section 1, `/readyz`).
    /// Probes once a second at most; requests in between get the last result.
    pub fn ready(&self, now: Moment) -> Result<(), String> {
        self.readiness.check(now.monotonic, || probe(&self.registry, &self.settings.data_dir))
    }
}

fn probe(registry: &Registry, data_dir: &Path) -> Result<(), String> {
    registry.ready()?;
    readiness::probe_write(data_dir).map_err(|error| format!("the data directory does not take a write ({error})"))
}
