//! `backup`: consistent copies while the server runs.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use serde_json::json;

use super::output::{print, print_json, remark};
use super::{General, find_tenant};
use crate::store::backup::{self, Backup, LeftOutTenant};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Where backups lie; each is a new folder in it, named by its time
    dir: PathBuf,
    /// Only this tenant, with its keys
    tenant: Option<String>,
    /// Afterwards keep only the newest N of the same kind: of all tenants, or of that tenant
    #[arg(long, value_name = "N")]
    keep: Option<NonZeroUsize>,
}

pub fn run(general: &General, arguments: &Arguments) -> anyhow::Result<()> {
    let registry = general.open_registry()?;
    let tenant = arguments.tenant.as_deref().map(|name| find_tenant(&registry, name)).transpose()?;
    let keep = arguments.keep.map(NonZeroUsize::get);
    let made = backup::create(&registry, &arguments.dir, tenant.as_ref(), keep, general.clock().now())?;
    match general.json {
        true => print_json(&document(&made))?,
        false => print(&text(&made))?,
    }
    report_left_out(&made)
}

fn text(made: &Backup) -> String {
    let mut lines = vec![format!("{} tenants are saved in {}", made.manifest.tenants.len(), made.folder.display())];
    lines.extend(made.removed.iter().map(|folder| format!("removed {}", folder.display())));
    lines.join("\n")
}

/// An error if there are any: the command then ends with 1.
fn report_left_out(made: &Backup) -> anyhow::Result<()> {
    let left_out = &made.manifest.left_out;
    for LeftOutTenant { id, name, reason } in left_out {
        remark(&format!("tenant {name} (id {id}) is left out: {reason}"));
    }
    let names: Vec<&str> = left_out.iter().map(|tenant| tenant.name.as_str()).collect();
    ensure!(
        names.is_empty(),
        "the backup {} lacks tenants that cannot be read: {}; no older backup was removed",
        made.folder.display(),
        names.join(", ")
    );
    Ok(())
}

fn document(made: &Backup) -> serde_json::Value {
    let removed: Vec<String> = made.removed.iter().map(|folder| folder.display().to_string()).collect();
    json!({
        "done": "backed up",
        "folder": made.folder.display().to_string(),
        "created_at": made.manifest.created_at,
        "kind": made.manifest.kind,
        "tenants": made.manifest.tenants,
        "left_out": made.manifest.left_out,
        "removed": removed,
    })
}
