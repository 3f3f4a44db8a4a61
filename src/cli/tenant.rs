//! `tenant …`: creates, lists, renames, suspends, activates and deletes tenants, and sets trials
//! and passwords.

use std::io::{self, IsTerminal as _};

use anyhow::bail;
use clap::{ArgAction, Subcommand};
use serde_json::{Value, json};

use super::output::{print_json, print_stderr, print_table};
use super::{GlobalOptions, UsageError, open_tenant, prompt, tenant_name};
use crate::clock::Moment;
use crate::model::validation::is_date;
use crate::password;
use crate::store::NewDataDir;
use crate::store::registry::{Actor, Registry, TenantRow};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a tenant and print its panel password, which cannot be shown again
    Create {
        /// Lower-case letters, digits and hyphens, at most 63
        #[arg(value_parser = tenant_name)]
        name: String,
        /// The last day of the trial, YYYY-MM-DD, UTC
        #[arg(long, value_name = "DATE", value_parser = date)]
        trial_until: Option<String>,
    },
    /// List all tenants
    List,
    /// Rename a tenant; its keys, sessions and records remain, and sign-in is by the new name
    Rename {
        /// The tenant's name
        name: String,
        /// The new name: lower-case letters, digits and hyphens, at most 63
        #[arg(value_name = "NEW", value_parser = tenant_name)]
        new_name: String,
    },
    /// Reject a tenant's keys until it is activated
    Suspend {
        /// The tenant's name
        name: String,
    },
    /// End a suspension or a trial
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
    /// Set the panel password and end all sessions; a terminal prompts for it twice
    Password {
        /// The tenant's name
        name: String,
        /// Read the password from standard input, one line
        #[arg(long, conflicts_with = "generate")]
        stdin: bool,
        /// Generate a password and print it
        #[arg(long)]
        generate: bool,
    },
    /// Delete a tenant with its keys, sessions and records
    Delete {
        /// The tenant's name
        name: String,
        /// Confirm the deletion, which cannot be undone
        #[arg(long, required = true, action = ArgAction::SetTrue)]
        yes: bool,
    },
}

pub(super) fn run(options: &GlobalOptions, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create { name, trial_until } => create(options, &name, trial_until.as_deref()),
        Command::List => list(options),
        Command::Rename { name, new_name } => rename(options, &name, &new_name),
        Command::Suspend { name } => {
            report(options, "suspended", &options.open_registry()?.suspend(&name)?)
        }
        Command::Activate { name } => {
            report(options, "activated", &options.open_registry()?.activate(&name)?)
        }
        Command::Trial { name, until } => {
            report(options, "trial set", &options.open_registry()?.set_trial(&name, &until)?)
        }
        Command::Password { name, stdin, generate } => {
            set_password(options, &name, stdin, generate)
        }
        Command::Delete { name, yes: _ } => delete(options, &name),
    }
}

fn create(options: &GlobalOptions, name: &str, trial_until: Option<&str>) -> anyhow::Result<()> {
    let data_dir = NewDataDir::create(&options.data_dir)?;
    let registry = Registry::open(&options.data_dir)?;
    let now = options.clock().now();
    let password = password::generate()?;
    let hash = password::hash(&password)?;
    let (tenant, _) = registry.create_tenant(name, trial_until, &hash, None, now)?;
    if let Err(error) = print_created(options, &tenant, password, now) {
        // The password was not shown to anyone.
        registry.delete_tenant(name)?;
        return Err(error);
    }
    data_dir.keep();
    Ok(())
}

fn print_created(
    options: &GlobalOptions,
    tenant: &TenantRow,
    password: String,
    now: Moment,
) -> anyhow::Result<()> {
    let TenantRow { id, name, .. } = tenant;
    let text = format!("tenant {name} (id {id})\npanel password, shown this once: {password}");
    options.report(&document(tenant, now, "password", password.into()), &text)
}

/// The tenant with one more member.
fn document(tenant: &TenantRow, now: Moment, member: &str, value: Value) -> Value {
    json!({
        "id": tenant.id,
        "name": tenant.name,
        "state": tenant.state(now),
        "trial_until": tenant.trial_until,
        "created_at": tenant.created_at,
        (member): value,
    })
}

fn list(options: &GlobalOptions) -> anyhow::Result<()> {
    let tenants = options.open_registry()?.list_tenants()?;
    let now = options.clock().now();
    if options.json {
        let documents =
            tenants.iter().map(|(tenant, keys)| document(tenant, now, "keys", (*keys).into()));
        return print_json(&documents.collect());
    }
    if tenants.is_empty() {
        print_stderr("there are no tenants");
        return Ok(());
    }
    print_table(
        ["ID", "NAME", "STATE", "TRIAL UNTIL", "CREATED", "KEYS"],
        tenants.into_iter().map(|(tenant, keys)| {
            let state = tenant.state(now).to_owned();
            let trial = tenant.trial_until.unwrap_or_else(|| "-".to_owned());
            [
                tenant.id.to_string(),
                tenant.name,
                state,
                trial,
                tenant.created_at.to_string(),
                keys.to_string(),
            ]
        }),
    )
}

fn report(options: &GlobalOptions, done: &str, tenant: &TenantRow) -> anyhow::Result<()> {
    let TenantRow { id, name, trial_until, .. } = tenant;
    let state = tenant.state(options.clock().now());
    let trial = trial_until.as_deref().map(|until| format!(", trial until {until}"));
    options.report(
        &json!({"done": done, "id": id, "name": name, "state": state, "trial_until": trial_until}),
        &format!("tenant {name}: {done}; it is {state}{}", trial.unwrap_or_default()),
    )
}

fn rename(options: &GlobalOptions, name: &str, new_name: &str) -> anyhow::Result<()> {
    let renamed = options.open_registry()?.rename_tenant(name, new_name)?;
    options.report(
        &json!({"done": "renamed", "id": renamed.id, "name": renamed.name, "former_name": name}),
        &format!("tenant {name} is renamed to {new_name}; its panel password is unchanged"),
    )
}

fn set_password(
    options: &GlobalOptions,
    name: &str,
    stdin: bool,
    generate: bool,
) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, name)?;
    let password = if generate {
        password::generate()?
    } else if stdin {
        prompt::read_line(&mut io::stdin().lock())?
    } else if io::stdin().is_terminal() {
        prompt::new_password(name)?
    } else {
        bail!(UsageError(
            "there is no terminal to prompt for the password; use --stdin or --generate".to_owned()
        ));
    };
    password::check(&password)?;
    let now = options.clock().now();
    registry.set_password(tenant.id, &password::hash(&password)?, Actor::CommandLine, now)?;
    if generate {
        return options.report(
            &json!({"name": name, "password": password}),
            &format!("panel password of {name}, shown this once: {password}"),
        );
    }
    options.report(
        &json!({"name": name}),
        &format!("the panel password of {name} is set; all its sessions are ended"),
    )
}

fn delete(options: &GlobalOptions, name: &str) -> anyhow::Result<()> {
    let id = options.open_registry()?.delete_tenant(name)?;
    options.report(
        &json!({"done": "deleted", "id": id, "name": name}),
        &format!("tenant {name} is deleted, with its keys, its sessions and its file"),
    )
}

fn date(text: &str) -> Result<String, &'static str> {
    if is_date(text) {
        Ok(text.to_owned())
    } else {
        Err("not a date that exists in the form YYYY-MM-DD")
    }
}
