//! `tenant …`: make, list, suspend, activate and delete tenants, set trials and passwords.

use std::io::{self, IsTerminal as _};

use anyhow::bail;
use clap::{ArgAction, Subcommand};
use serde_json::{Value, json};

use super::output::{print, print_json, print_table, remark};
use super::{General, WrongUsage, find_tenant, prompt, tenant_name};
use crate::clock::Moment;
use crate::model::field::is_date;
use crate::password;
use crate::store::data_dir::NewDataDir;
use crate::store::registry::{Actor, Registry, TenantRow};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a tenant and its panel password, which is shown this once
    Create {
        /// Small letters, digits and hyphens, up to 63
        #[arg(value_parser = tenant_name)]
        name: String,
        /// The last day of its trial, YYYY-MM-DD, UTC
        #[arg(long, value_name = "DATE", value_parser = date)]
        trial_until: Option<String>,
    },
    /// List all tenants
    List,
    /// Refuse a tenant's keys until it is activated
    Suspend {
        /// The tenant's name
        name: String,
    },
    /// Lift a suspension and end a trial for good
    Activate {
        /// The tenant's name
        name: String,
    },
    /// Set the last day of a tenant's trial
    Trial {
        /// The tenant's name
        name: String,
        /// YYYY-MM-DD, UTC
        #[arg(value_name = "DATE", value_parser = date)]
        until: String,
    },
    /// Set the panel password and end all sessions; asks for it twice on a terminal
    Password {
        /// The tenant's name
        name: String,
        /// Read it from standard input, one line
        #[arg(long, conflicts_with = "generate")]
        stdin: bool,
        /// Make one and print it
        #[arg(long)]
        generate: bool,
    },
    /// Delete a tenant with its keys, sessions and records
    Delete {
        /// The tenant's name
        name: String,
        /// Say that this is meant: nothing brings the records back
        #[arg(long, required = true, action = ArgAction::SetTrue)]
        yes: bool,
    },
}

pub fn run(general: &General, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create { name, trial_until } => create(general, &name, trial_until.as_deref()),
        Command::List => list(general),
        Command::Suspend { name } => report(general, "suspended", &general.open_registry()?.suspend(&name)?),
        Command::Activate { name } => report(general, "activated", &general.open_registry()?.activate(&name)?),
        Command::Trial { name, until } => {
            report(general, "trial set", &general.open_registry()?.set_trial(&name, &until)?)
        }
        Command::Password { name, stdin, generate } => set_password(general, &name, stdin, generate),
        Command::Delete { name, yes: _ } => delete(general, &name),
    }
}

/// Makes the tenant with a password of our own; the password is its second part.
pub fn make(
    registry: &Registry,
    name: &str,
    trial_until: Option<&str>,
    now: Moment,
) -> anyhow::Result<(TenantRow, String)> {
    let password = password::generate()?;
    let tenant = registry.create_tenant(name, trial_until, &password::hash(&password)?, now)?;
    Ok((tenant, password))
}

fn create(general: &General, name: &str, trial_until: Option<&str>) -> anyhow::Result<()> {
    let data_dir = NewDataDir::create(&general.data_dir)?;
    let registry = Registry::create(&general.data_dir)?;
    let now = general.clock().now();
    let (tenant, password) = make(&registry, name, trial_until, now)?;
    if let Err(error) = print_created(general, &tenant, password, now) {
        // Nobody has seen the password.
        registry.delete_tenant(name)?;
        return Err(error);
    }
    data_dir.keep();
    Ok(())
}

fn print_created(general: &General, tenant: &TenantRow, password: String, now: Moment) -> anyhow::Result<()> {
    if general.json {
        let mut document = document(tenant, now);
        if let Some(members) = document.as_object_mut() {
            members.insert("password".to_owned(), Value::String(password));
        }
        return print_json(&document);
    }
    let TenantRow { id, name, .. } = tenant;
    print(&format!("tenant {name} (id {id})\npanel password, shown this once: {password}"))
}

fn document(tenant: &TenantRow, now: Moment) -> Value {
    json!({
        "id": tenant.id,
        "name": tenant.name,
        "state": tenant.state(&now.date()).as_str(),
        "trial_until": tenant.trial_until,
        "created_at": tenant.created_at,
    })
}

fn list(general: &General) -> anyhow::Result<()> {
    let tenants = general.open_registry()?.list_tenants()?;
    let now = general.clock().now();
    if general.json {
        let documents = tenants.iter().map(|(tenant, keys)| {
            let mut document = document(tenant, now);
            if let Some(members) = document.as_object_mut() {
                members.insert("keys".to_owned(), Value::from(*keys));
            }
            document
        });
        return print_json(&documents.collect());
    }
    if tenants.is_empty() {
        remark("there are no tenants");
        return Ok(());
    }
    print_table(
        ["ID", "NAME", "STATE", "TRIAL UNTIL", "CREATED", "KEYS"],
        tenants.into_iter().map(|(tenant, keys)| {
            let state = tenant.state(&now.date()).as_str().to_owned();
            let trial = tenant.trial_until.unwrap_or_else(|| "-".to_owned());
            [tenant.id.to_string(), tenant.name, state, trial, tenant.created_at, keys.to_string()]
        }),
    )
}

fn report(general: &General, done: &str, tenant: &TenantRow) -> anyhow::Result<()> {
    let now = general.clock().now();
    if general.json {
        return print_json(&json!({
            "done": done,
            "id": tenant.id,
            "name": tenant.name,
            "state": tenant.state(&now.date()).as_str(),
            "trial_until": tenant.trial_until,
        }));
    }
    let trial = tenant.trial_until.as_deref().map_or_else(String::new, |until| format!(", trial until {until}"));
    print(&format!("tenant {}: {done}; it is {}{trial}", tenant.name, tenant.state(&now.date()).as_str()))
}

fn set_password(general: &General, name: &str, stdin: bool, generate: bool) -> anyhow::Result<()> {
    let registry = general.open_registry()?;
    let tenant = find_tenant(&registry, name)?;
    let password = if generate {
        password::generate()?
    } else if stdin {
        prompt::read_line(&mut io::stdin().lock())?
    } else if io::stdin().is_terminal() {
        prompt::ask_twice(name)?
    } else {
        bail!(WrongUsage("there is no terminal to ask for a password on; use --stdin or --generate"));
    };
    password::check(&password)?;
    let now = general.clock().now();
    registry.set_password(tenant.id, &password::hash(&password)?, Actor::CommandLine, now)?;
    if general.json {
        let mut document = json!({"name": name});
        if let (true, Some(members)) = (generate, document.as_object_mut()) {
            members.insert("password".to_owned(), Value::String(password));
        }
        return print_json(&document);
    }
    if generate {
        return print(&format!("panel password of {name}, shown this once: {password}"));
    }
    print(&format!("the panel password of {name} is set; all its sessions are ended"))
}

fn delete(general: &General, name: &str) -> anyhow::Result<()> {
    let deleted = general.open_registry()?.delete_tenant(name)?;
    if general.json {
        return print_json(&json!({"done": "deleted", "id": deleted.id, "name": deleted.name}));
    }
    print(&format!("tenant {name} is deleted, with its keys, its sessions and its file"))
}

fn date(text: &str) -> Result<String, &'static str> {
    if is_date(text) { Ok(text.to_owned()) } else { Err("not a date that exists in the form YYYY-MM-DD") }
}
