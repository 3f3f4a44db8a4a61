//! The check of the ends of keys.

use super::{Check, Status};
use crate::clock::Moment;
use crate::store::registry::{KeyState, Registry, RegistryError};

/// The number of keys that the message names.
const NAMED: usize = 3;

/// Warns of keys that end within 14 days: somebody may have to replace them.
pub(super) fn ends(registry: &Registry, now: Moment) -> Check {
    match ending(registry, now) {
        Ok(keys) if keys.is_empty() => Check::new("keys", Status::Ok, "none ends within 14 days"),
        Ok(keys) => {
            let named: Vec<&str> = keys.iter().take(NAMED).map(String::as_str).collect();
            let others = match keys.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            Check::new(
                "keys",
                Status::Warning,
                format!("end within 14 days: {}{others}", named.join(", ")),
            )
        }
        Err(error) => Check::new("keys", Status::Fault, error.to_string()),
    }
}

fn ending(registry: &Registry, now: Moment) -> Result<Vec<String>, RegistryError> {
    let mut found = Vec::new();
    for (tenant, _) in registry.list_tenants()? {
        for key in registry.list_keys(tenant.id)? {
            let is_active = key.state(now) == KeyState::Active;
            if let Some(end) = key.near_end(now).filter(|_| is_active) {
                found.push(format!("key {} of {} at {end}", key.id, tenant.name));
            }
        }
    }
    Ok(found)
}
