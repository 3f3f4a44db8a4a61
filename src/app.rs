//! The service's state, passed down to whoever needs it. There is no other.

use std::fs;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use crate::api::rate_limit::Limiter;
use crate::api::routes;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::panel;
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
}

impl App {
    /// Opens the registry in the data directory, which must be there. Tenants are opened when they are asked for.
    pub fn open(settings: Settings, clock: Clock) -> Result<Arc<App>, OpenError> {
        let metrics = Arc::new(Metrics::new(routes::label));
        Ok(Arc::new(App {
            registry: Registry::open(&settings.data_dir)?,
            tenants: Tenants::new(&settings.data_dir, settings.tenants, Arc::clone(&metrics)),
            limiter: Limiter::new(settings.rate_limit),
            clock,
            panel: panel::State::default(),
            metrics,
            settings,
        }))
    }

    /// Whether the registry answers and the data directory is writable, or what does not (contract section 1, `/readyz`).
    pub fn ready(&self) -> Result<(), String> {
        self.registry.ready()?;
        let probe = self.settings.data_dir.join(format!(".ready-{}", Uuid::new_v4()));
        fs::write(&probe, b"")
            .and_then(|()| fs::remove_file(&probe))
            .map_err(|error| format!("the data directory is not writable ({error})"))
    }
}
