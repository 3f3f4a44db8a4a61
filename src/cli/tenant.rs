//! `tenant …`: creates, lists, renames, suspends, activates and deletes tenants, and sets trials
//! and passwords.

use std::io::{self, BufRead, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail, ensure};
use clap::Subcommand;
use serde_json::{Value, json};
use signal_hook::consts::SIGINT;

use super::changes::WAITING;
use super::options::{GlobalOptions, UsageError, open_tenant, print_stderr, tenant_name};
use crate::clock::{Clock, Moment};
use crate::model::{self, validation::is_date};
use crate::secret;
use crate::store::registry::{Admin, Inactive, Registry, TenantRow};
use crate::store::{DataDir, StoreCode, TenantFile};

#[derive(Debug, Subcommand)]
pub(super) enum TenantCommand {
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
    /// Rename a tenant; it keeps its keys, sessions and records, and its admin signs in by the new name
    Rename {
        /// The tenant's name
        name: String,
        /// The new name: lower-case letters, digits and hyphens, at most 63
        #[arg(value_name = "NEW", value_parser = tenant_name)]
        new_name: String,
    },
    /// Reject a tenant's keys until the tenant is activated; no request changes it afterwards
    Suspend {
        /// The tenant's name
        name: String,
        /// Let clients wait (503 with Retry-After), because the tenant moves to another machine
        #[arg(long)]
        moving: bool,
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
        /// The last day of the trial, YYYY-MM-DD, UTC
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
        #[arg(long)]
        yes: bool,
    },
}

pub(super) fn run(options: &GlobalOptions, command: TenantCommand) -> anyhow::Result<()> {
    let now = Clock::system().now();
    let registry = || options.open_registry();
    let (done, tenant) = match command {
        TenantCommand::Create { name, trial_until } => {
            return create(options, &name, trial_until, now);
        }
        TenantCommand::List => return list(options, now),
        TenantCommand::Password { name, stdin, generate } => {
            return set_password(options, &name, stdin, generate, now);
        }
        TenantCommand::Delete { name, yes: false } => return refuse_deletion(options, &name),
        TenantCommand::Delete { name, yes: true } => {
            let id = registry()?.delete_tenant(&name)?;
            return options.report(
                &json!({"done": "deleted", "id": id, "name": name}),
                &format!("tenant {name} is deleted, with its keys, its sessions and its file"),
            );
        }
        TenantCommand::Rename { name, new_name } => {
            ("renamed", registry()?.rename_tenant(&name, &new_name)?)
        }
        TenantCommand::Suspend { name, moving } => {
            let reason = if moving { Inactive::Moving } else { Inactive::Suspended };
            ("suspended", suspend(options, &name, reason)?)
        }
        TenantCommand::Activate { name } => {
            let registry = registry()?;
            let former = registry.find_tenant(&name)?.and_then(|tenant| tenant.trial_until);
            let tenant = registry.activate(&name)?;
            if let Some(until) = former {
                print_stderr(&format!(
                    "its trial until {until} is removed; \"tenant trial\" sets it again"
                ));
            }
            ("activated", tenant)
        }
        TenantCommand::Trial { name, until } => {
            ("trial set", registry()?.set_trial(&name, &until)?)
        }
    };
    let (name, state) = (&tenant.name, tenant.state(now));
    let trial = tenant.trial_until.as_deref().map(|until| format!(", trial until {until}"));
    let text = format!("tenant {name} is {state}{}", trial.unwrap_or_default());
    options.report(&document(&tenant, now, "done", done.into()), &text)
}

fn create(
    options: &GlobalOptions,
    name: &str,
    trial_until: Option<String>,
    now: Moment,
) -> anyhow::Result<()> {
    DataDir::create(&options.data_dir)?;
    let registry = Registry::open(&options.data_dir)?;
    let password = secret::generate_password()?;
    let hash = secret::hash_password(&password)?;
    let (tenant, _) = registry.create_tenant(name, trial_until.as_deref(), &hash, None, now)?;
    let text =
        format!("tenant {name} (id {})\npanel password, shown this once: {password}", tenant.id);
    options.report(&document(&tenant, now, "password", password.into()), &text)
}

/// Suspends the tenant, and waits until the changes that already run have ended.
fn suspend(options: &GlobalOptions, name: &str, reason: Inactive) -> anyhow::Result<TenantRow> {
    // Open as long as the tenant's file is, because it locks the data directory.
    let registry = options.open_registry()?;
    let tenant = registry.suspend(name, reason)?;
    let waited = match TenantFile::open(registry.data_dir(), tenant.id) {
        Ok(mut file) => file.await_writer(|| print_stderr(WAITING)).map_err(anyhow::Error::from),
        Err(error) if error.code == StoreCode::Missing => Ok(()),
        Err(error) => Err(error.into()),
    };
    waited.context("the keys are rejected, but a change that runs may still be stored")?;
    Ok(tenant)
}

/// Says what the tenant has.
fn refuse_deletion(options: &GlobalOptions, name: &str) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, name)?;
    let mut held = Vec::new();
    // A damaged file can be deleted, too.
    if let Ok(file) = TenantFile::open(registry.data_dir(), tenant.id) {
        for resource in model::ALL {
            let count = file.read(|reading| reading.count(resource));
            held.extend(count.map(|count| format!("{} {count}", resource.plural)));
        }
    }
    held.push(format!("keys {}", registry.list_keys(tenant.id)?.len()));
    bail!(UsageError(format!(
        "tenant {name} has {}. Once it is deleted, only a backup brings it back. Add --yes to \
         delete it",
        held.join(", ")
    )))
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

fn list(options: &GlobalOptions, now: Moment) -> anyhow::Result<()> {
    let tenants = options.open_registry()?.list_tenants()?;
    let documents =
        tenants.iter().map(|(tenant, keys)| document(tenant, now, "keys", (*keys).into()));
    let columns = ["id", "name", "state", "trial_until", "created_at", "keys"];
    options.list(&documents.collect(), &columns)
}

fn set_password(
    options: &GlobalOptions,
    name: &str,
    stdin: bool,
    generate: bool,
    now: Moment,
) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, name)?;
    let password = if generate {
        secret::generate_password()?
    } else if stdin {
        read_line(io::stdin().lock())?
    } else if io::stdin().is_terminal() {
        prompt_twice(name)?
    } else {
        bail!(UsageError(
            "there is no terminal to prompt for the password; use --stdin or --generate".to_owned()
        ));
    };
    secret::check_password(&password)?;
    let hash = secret::hash_password(&password)?;
    registry.administer(tenant.id, Admin::CommandLine, now).set_password(&hash)?;
    if generate {
        let text = format!("panel password of {name}, shown this once: {password}");
        return options.report(&json!({"name": name, "password": password}), &text);
    }
    let text = format!("the panel password of {name} is set; all its sessions are ended");
    options.report(&json!({"name": name}), &text)
}

/// Reads the next line of `input`, of at most 4,096 bytes, and returns it without its end.
fn read_line(input: impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    input.take(4096).read_line(&mut line).context("cannot read the password")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Prompts twice for a new password of `tenant` on the terminal, without echo.
fn prompt_twice(tenant: &str) -> anyhow::Result<String> {
    // On Ctrl-C, rpassword raises SIGINT before it restores the terminal. With a handler the
    // process survives the signal, and rpassword restores the terminal and returns an error.
    signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))
        .context("cannot handle signals")?;
    let prompt = |text: &str| {
        rpassword::prompt_password(text).context("cannot read the password from the terminal")
    };
    let first = prompt(&format!("New panel password of {tenant}: "))?;
    secret::check_password(&first)?;
    let second = prompt("Repeat the password: ")?;
    ensure!(first == second, "the two passwords differ; nothing was changed");
    Ok(first)
}

fn date(text: &str) -> Result<String, &'static str> {
    is_date(text).then(|| text.to_owned()).ok_or("not a date that exists in the form YYYY-MM-DD")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line_of_the_input() {
        let read = |bytes: &[u8]| read_line(bytes).unwrap();
        assert_eq!(read(b"a secret word\n"), "a secret word");
        assert_eq!(read(b"a secret word\r\nsecond"), "a secret word");
        assert_eq!(read(b" spaces remain "), " spaces remain ");
        assert_eq!(read(b""), "");
        assert!(read_line(&b"\xff\xfe"[..]).is_err());
        assert!(read(&[b'a'; 100_000]).len() <= 4096);
    }
}
