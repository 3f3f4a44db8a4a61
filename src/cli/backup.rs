//! `backup`: makes a consistent copy, also while the server runs.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use serde_json::json;

use super::output::print_stderr;
use super::{GlobalOptions, find_tenant};
use crate::clock::Clock;
use crate::config::positive;
use crate::store::archive::{Backup, LeftOutTenant, backup};
use crate::words::count;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The directory of all backups; each backup is a new directory in it, named by its time
    dir: PathBuf,
    /// Only this tenant, with its keys
    tenant: Option<String>,
    /// Keep the newest N backups of this kind, and remove older ones; the kinds are all tenants, and
    /// this tenant
    #[arg(long, value_name = "N", value_parser = positive::<NonZeroUsize>)]
    keep: Option<NonZeroUsize>,
}

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let registry = options.open_registry()?;
    let tenant =
        arguments.tenant.as_deref().map(|name| find_tenant(&registry, name)).transpose()?;
    let keep = arguments.keep.map(NonZeroUsize::get);
    let made =
        backup::create(&registry, &arguments.dir, tenant.as_ref(), keep, Clock::system().now())?;
    options.report(&document(&made), &text(&made))?;
    report_left_out(&made)
}

fn text(made: &Backup) -> String {
    let mut lines = vec![format!(
        "saved {} in {}",
        count(made.manifest.tenants.len() as u64, "tenant"),
        made.directory.display()
    )];
    lines.extend(made.removed.iter().map(|directory| format!("removed {}", directory.display())));
    lines.join("\n")
}

/// Reports the tenants that the backup lacks. Returns an error if there are any, so that the exit
/// code is 1.
fn report_left_out(made: &Backup) -> anyhow::Result<()> {
    let left_out = &made.manifest.left_out;
    for LeftOutTenant { id, name, reason } in left_out {
        print_stderr(&format!("tenant {name} (id {id}) is left out: {reason}"));
    }
    let names: Vec<&str> = left_out.iter().map(|tenant| tenant.name.as_str()).collect();
    ensure!(
        names.is_empty(),
        "the backup {} lacks tenants that cannot be read: {}; no older backup was removed",
        made.directory.display(),
        names.join(", ")
    );
    Ok(())
}

fn document(made: &Backup) -> serde_json::Value {
    let removed: Vec<String> =
        made.removed.iter().map(|directory| directory.display().to_string()).collect();
    json!({
        "done": "backed up",
        "folder": made.directory.display().to_string(),
        "created_at": made.manifest.created_at,
        "kind": made.manifest.kind,
        "tenants": made.manifest.tenants,
        "left_out": made.manifest.left_out,
        "removed": removed,
    })
}
