//! `key …`: creates, lists, revokes and deletes API keys.

use clap::Subcommand;
use serde_json::{Value, json};

use super::output::{print, print_json, print_stderr, print_table};
use super::{GlobalOptions, find_tenant};
use crate::model::Scopes;
use crate::store::registry::{self, Actor, KeyRow};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a key and print it; it cannot be shown again
    Create {
        /// The tenant's name
        tenant: String,
        /// The key's name: 1 to 100 characters
        #[arg(long, value_parser = key_name)]
        name: String,
        /// A scope such as `customers:read`, or `read` for all read scopes, or `all`; repeatable
        #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',', value_parser = scopes)]
        scopes: Vec<Scopes>,
    },
    /// List a tenant's keys
    List {
        /// The tenant's name
        tenant: String,
    },
    /// Revoke a key permanently; a second time has no effect
    Revoke {
        /// The tenant's name
        tenant: String,
        /// The key's number, as `key list` shows it
        id: i64,
    },
    /// Delete a key
    Delete {
        /// The tenant's name
        tenant: String,
        /// The key's number, as `key list` shows it
        id: i64,
    },
}

pub fn run(options: &GlobalOptions, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create { tenant, name, scopes } => {
            create(options, &tenant, &name, scopes.into_iter().fold(Scopes::default(), Scopes::union))
        }
        Command::List { tenant } => list(options, &tenant),
        Command::Revoke { tenant, id } => revoke(options, &tenant, id),
        Command::Delete { tenant, id } => delete(options, &tenant, id),
    }
}

fn create(options: &GlobalOptions, tenant: &str, name: &str, scopes: Scopes) -> anyhow::Result<()> {
    let registry = options.open_registry()?;
    let tenant = find_tenant(&registry, tenant)?;
    let now = options.clock().now();
    let (row, key) = registry.create_key(tenant.id, name, scopes, Actor::CommandLine, now)?;
    if let Err(error) = print_created(options, &tenant.name, &row, &key) {
        // The key was not shown to anyone.
        registry.delete_key(tenant.id, row.id, Actor::CommandLine, now)?;
        return Err(error);
    }
    Ok(())
}

fn print_created(options: &GlobalOptions, tenant: &str, row: &KeyRow, key: &str) -> anyhow::Result<()> {
    if options.json {
        return print_json(&json!({
            "id": row.id,
            "name": row.name,
            "prefix": row.prefix,
            "scopes": row.scopes.names(),
            "created_at": row.created_at,
            "key": key,
        }));
    }
    print_stderr(&format!("key {} of {tenant}, shown this once:", row.id));
    print(key)
}

fn list(options: &GlobalOptions, tenant: &str) -> anyhow::Result<()> {
    let registry = options.open_registry()?;
    let tenant = find_tenant(&registry, tenant)?;
    let keys = registry.list_keys(tenant.id)?;
    if options.json {
        return print_json(&Value::Array(keys.iter().map(document).collect()));
    }
    if keys.is_empty() {
        print_stderr(&format!("{} has no keys", tenant.name));
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

fn revoke(options: &GlobalOptions, tenant: &str, id: i64) -> anyhow::Result<()> {
    let registry = options.open_registry()?;
    let tenant = find_tenant(&registry, tenant)?;
    let key = registry.revoke_key(tenant.id, id, Actor::CommandLine, options.clock().now())?;
    report(options, "revoked", &tenant.name, &key)
}

fn delete(options: &GlobalOptions, tenant: &str, id: i64) -> anyhow::Result<()> {
    let registry = options.open_registry()?;
    let tenant = find_tenant(&registry, tenant)?;
    let key = registry.delete_key(tenant.id, id, Actor::CommandLine, options.clock().now())?;
    report(options, "deleted", &tenant.name, &key)
}

fn report(options: &GlobalOptions, done: &str, tenant: &str, key: &KeyRow) -> anyhow::Result<()> {
    if options.json {
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
