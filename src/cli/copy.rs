//! `copy …`: shows how far the copy is behind, suspends it and resumes it (contract section 16).

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use clap::Subcommand;
use serde_json::{Value, json};

use super::output::{print, print_json};
use super::{GlobalOptions, UsageError};
use crate::clock::Moment;
use crate::copy::{ConfirmedCopy, ControlSocket, CopyStatus, DatabaseStatus, Suspension};
use crate::store::registry::{self, Registry};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show how far the copy is behind; exit code 1 if it cannot be asked or lacks a database
    Status,
    /// Report changes as done without the copy until it is resumed, also after a restart
    Suspend,
    /// Wait until the copy has everything, then report changes as done only once it has them
    Resume,
}

pub fn run(options: &GlobalOptions, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Status => status(options),
        Command::Suspend => suspend(options),
        Command::Resume => resume(options),
    }
}

/// The databases of a data directory, as paths in it.
pub(super) fn databases(registry: &Registry) -> anyhow::Result<Vec<String>> {
    let tenants = registry.list_tenants()?;
    let tenants = tenants.iter().map(|(tenant, _)| format!("tenants/{}.db", tenant.id));
    Ok(std::iter::once(registry::FILE.to_owned()).chain(tenants).collect())
}

fn socket(options: &GlobalOptions) -> anyhow::Result<ControlSocket> {
    let path = options.copy_socket.clone();
    Ok(ControlSocket::new(path.ok_or(UsageError("name Litestream's control socket with --copy-socket PATH"))?))
}

fn status(options: &GlobalOptions) -> anyhow::Result<()> {
    let socket = socket(options)?;
    let databases = databases(&options.open_registry()?)?;
    let suspended = Suspension::of(&options.data_dir).since()?;
    let status = CopyStatus::read(&socket, &options.data_dir, databases).context("the copy cannot be asked")?;
    let now = options.clock().now();
    if options.json {
        print_json(&document(&status, suspended.as_deref(), now))?;
    } else {
        print(&text(&status, suspended.as_deref(), now))?;
    }
    let missing: Vec<&str> = status.missing().collect();
    ensure!(missing.is_empty(), "the copy lacks {}", missing.join(", "));
    Ok(())
}

fn document(status: &CopyStatus, suspended: Option<&str>, now: Moment) -> Value {
    let database = |database: &DatabaseStatus| {
        let last = database.last_sync.map(|time| time.to_string());
        json!({"database": database.name, "last_in_sync_at": last, "seconds_behind": database.seconds_behind(now)})
    };
    json!({
        "state": if suspended.is_some() { "suspended" } else { "required" },
        "suspended_at": suspended,
        "litestream": status.version,
        "seconds_behind": status.furthest_behind(now).map(|(_, seconds)| seconds),
        "databases": status.databases.iter().map(database).collect::<Vec<_>>(),
    })
}

fn text(status: &CopyStatus, suspended: Option<&str>, now: Moment) -> String {
    let state = match suspended {
        Some(since) => format!("the copy is suspended since {since}: changes are reported as done without it"),
        None => "the copy is required: changes are reported as done once it has them".to_owned(),
    };
    let behind = status.furthest_behind(now).map_or_else(String::new, |(name, seconds)| {
        format!("; furthest behind is {name}, which it had completely {seconds:.1} s ago")
    });
    format!("{state}\nLitestream {} copies {} databases{behind}", status.version, status.databases.len())
}

fn suspend(options: &GlobalOptions) -> anyhow::Result<()> {
    let data_dir = &options.data_dir;
    ensure!(data_dir.join(registry::FILE).exists(), "{} is no data directory", data_dir.display());
    let is_new = Suspension::of(data_dir).begin(options.clock().now()).context("the copy cannot be suspended")?;
    if options.json {
        return print_json(&json!({"done": "suspended", "suspended_before": !is_new}));
    }
    print(if is_new {
        "the copy is suspended: changes are reported as done without it until \"tenantdesk copy resume\""
    } else {
        "the copy was suspended already"
    })
}

fn resume(options: &GlobalOptions) -> anyhow::Result<()> {
    let copy = ConfirmedCopy::new(socket(options)?, &options.data_dir, std::sync::Arc::default());
    let databases = databases(&options.open_registry()?)?;
    let suspension = Suspension::of(&options.data_dir);
    catch_up(&copy, &options.data_dir, &databases).context("the copy remains suspended")?;
    suspension.end().context("the copy cannot be resumed")?;
    // Again, for what was reported as done meanwhile.
    if let Err(error) = catch_up(&copy, &options.data_dir, &databases) {
        bail!("the copy is resumed, but may lack changes from before: {error:#}");
    }
    if options.json {
        return print_json(&json!({"done": "resumed", "databases": databases.len()}));
    }
    print(&format!("the copy has all {} databases and is required again", databases.len()))
}

/// Waits until the copy has everything that is committed now. A database whose file is missing has nothing to copy.
fn catch_up(copy: &ConfirmedCopy, data_dir: &Path, databases: &[String]) -> anyhow::Result<()> {
    for name in databases {
        let path = data_dir.join(name);
        if path.exists() {
            copy.catch_up(&path).with_context(|| name.clone())?;
        }
    }
    Ok(())
}
