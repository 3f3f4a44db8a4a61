//! `key …`: make, list, revoke and delete API keys.

use clap::Subcommand;
use serde_json::{Value, json};

use super::output::{print, print_json, print_table, remark};
use super::{General, find_tenant};
use crate::model::Scopes;
use crate::store::registry::{self, Actor, KeyRow};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a key; it is shown this once
    Create {
        /// The tenant's name
        tenant: String,
        /// What people call it: 1 to 100 characters
        #[arg(long, value_parser = key_name)]
        name: String,
        /// What it may do: `customers:read` and the like, `read` for all that read, `all`; repeatable
        #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',', value_parser = scopes)]
        scopes: Vec<Scopes>,
    },
    /// List a tenant's keys
    List {
        /// The tenant's name
        tenant: String,
    },
    /// Revoke a key for good; to revoke it again is no error
    Revoke {
        /// The tenant's name
        tenant: String,
        /// The key's number, as `key list` shows it
        id: i64,
    },
    /// Remove a key
    Delete {
        /// The tenant's name
        tenant: String,
        /// The key's number, as `key list` shows it
        id: i64,
    },
}

pub fn run(general: &General, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create { tenant, name, scopes } => {
            create(general, &tenant, &name, scopes.into_iter().fold(Scopes::default(), Scopes::union))
        }
        Command::List { tenant } => list(general, &tenant),
        Command::Revoke { tenant, id } => revoke(general, &tenant, id),
        Command::Delete { tenant, id } => delete(general, &tenant, id),
    }
}

fn create(general: &General, tenant: &str, name: &str, scopes: Scopes) -> anyhow::Result<()> {
    let registry = general.open_registry()?;
    let tenant = find_tenant(&registry, tenant)?;
    let now = general.clock().now();
    let (row, key) = registry.create_key(tenant.id, name, scopes, Actor::CommandLine, now)?;
    if let Err(error) = print_created(general, &tenant.name, &row, &key) {
        // Nobody has seen the key.
        registry.delete_key(tenant.id, row.id, Actor::CommandLine, now)?;
        return Err(error);
    }
    Ok(())
}

fn print_created(general: &General, tenant: &str, row: &KeyRow, key: &str) -> anyhow::Result<()> {
    if general.json {
        return print_json(&json!({
            "id": row.id,
            "name": row.name,
            "prefix": row.prefix,
            "scopes": row.scopes.names(),
            "created_at": row.created_at,
            "key": key,
        }));
    }
    remark(&format!("key {} of {tenant}, shown this once:", row.id));
    print(key)
}

fn list(general: &General, tenant: &str) -> anyhow::Result<()> {
    let registry = general.open_registry()?;
    let tenant = find_tenant(&registry, tenant)?;
    let keys = registry.list_keys(tenant.id)?;
    if general.json {
        return print_json(&Value::Array(keys.iter().map(document).collect()));
    }
    if keys.is_empty() {
        remark(&format!("{} has no keys", tenant.name));
        return Ok(());
    }
    let scopes = |scopes: Scopes| match scopes {
        all if all == Scopes::every() => "all".to_owned(),
        read if read == Scopes::read_only() => "read".to_owned(),
        some => some.to_string(),
    };
    print_table(
        ["ID", "NAME", "KEY", "SCOPES", "CREATED", "LAST USED", "STATE"],
        keys.into_iter().map(|key| {
            let state = key.state().to_owned();
            [
                key.id.to_string(),
                key.name,
                format!("{}…", key.prefix),
                scopes(key.scopes),
                key.created_at,
                key.last_used_at.unwrap_or_else(|| "never".to_owned()),
                state,
            ]
        }),
    )
}

fn document(key: &KeyRow) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": key.scopes.names(),
        "created_at": key.created_at,
        "last_used_at": key.last_used_at,
        "state": key.state(),
    })
}

fn revoke(general: &General, tenant: &str, id: i64) -> anyhow::Result<()> {
    let registry = general.open_registry()?;
    let tenant = find_tenant(&registry, tenant)?;
    let key = registry.revoke_key(tenant.id, id, Actor::CommandLine, general.clock().now())?;
    report(general, "revoked", &tenant.name, &key)
}

fn delete(general: &General, tenant: &str, id: i64) -> anyhow::Result<()> {
    let registry = general.open_registry()?;
    let tenant = find_tenant(&registry, tenant)?;
    let key = registry.delete_key(tenant.id, id, Actor::CommandLine, general.clock().now())?;
    report(general, "deleted", &tenant.name, &key)
}

fn report(general: &General, done: &str, tenant: &str, key: &KeyRow) -> anyhow::Result<()> {
    if general.json {
        return print_json(&json!({"done": done, "tenant": tenant, "id": key.id, "name": key.name}));
    }
    print(&format!("key {} ({}) of {tenant} is {done}", key.id, key.name))
}

fn key_name(text: &str) -> Result<String, &'static str> {
    registry::check_key_name(text).map(str::to_owned)
}

fn scopes(text: &str) -> Result<Scopes, String> {
    Scopes::parse(text).ok_or_else(|| {
        format!("there is no such scope; there are {}, read and all", Scopes::every().names().join(", "))
    })
}
