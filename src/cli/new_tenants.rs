//! The tenants that `serve --create-tenant` makes.

use crate::app::App;
use crate::clock::Moment;
use crate::model::Scopes;
use crate::password;
use crate::store::registry::{NewKey, Registry, TenantRow};

/// A new tenant and its secrets.
pub(super) struct CreatedTenant {
    pub(super) tenant: TenantRow,
    pub(super) password: String,
    pub(super) key: String,
}

/// The tenants that `--create-tenant` has created. Unless [`NewTenants::keep`] is called, dropping
/// the value deletes them, because their secrets were not shown.
pub(super) struct NewTenants<'a> {
    registry: &'a Registry,
    /// The names of all tenants, including one whose key could not be created.
    names: Vec<&'a str>,
    pub(super) created: Vec<CreatedTenant>,
}

impl<'a> NewTenants<'a> {
    /// Creates those tenants of `names` that do not exist, each with a key with all scopes. Creates
    /// all of them or none.
    pub(super) fn create(app: &'a App, names: &'a [String]) -> anyhow::Result<NewTenants<'a>> {
        let mut tenants =
            NewTenants { registry: &app.registry, names: Vec::new(), created: Vec::new() };
        for name in names {
            match app.registry.find_tenant(name)? {
                Some(tenant) => advise(&app.registry, &tenant)?,
                None => tenants.create_one(name, app.clock.now())?,
            }
        }
        Ok(tenants)
    }

    fn create_one(&mut self, name: &'a str, now: Moment) -> anyhow::Result<()> {
        let password = password::generate()?;
        let key = NewKey::new("first key", Scopes::every());
        let hash = password::hash(&password)?;
        let (tenant, key) = self.registry.create_tenant(name, None, &hash, Some(key), now)?;
        self.names.push(name);
        self.created.extend(key.map(|key| CreatedTenant { tenant, password, key }));
        Ok(())
    }

    pub(super) fn keep(mut self) {
        self.names.clear();
    }
}

impl Drop for NewTenants<'_> {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(error) = self.registry.delete_tenant(name) {
                tracing::error!(tenant = name, %error, "the new tenant could not be deleted");
            }
        }
    }
}

/// Says what to do if the start that created the tenant was interrupted before it showed the
/// secrets.
fn advise(registry: &Registry, tenant: &TenantRow) -> anyhow::Result<()> {
    let name = &tenant.name;
    if registry.list_keys(tenant.id)?.iter().all(|key| key.last_used_at.is_none()) {
        tracing::info!(
            tenant = name,
            "the tenant exists and has never used a key; if its secrets were not shown, make new \
             ones with \"tenant password {name} --generate\" and \"key create {name} --name NAME --scope all\""
        );
    }
    Ok(())
}
