//! `backup`: consistent copies while the server runs.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::output::{print, print_json};
use super::{General, find_tenant};
use crate::store::backup::{self, Made};

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
    let made = backup::make(&registry, &arguments.dir, tenant.as_ref(), keep, general.clock().now())?;
    if general.json {
        return print_json(&document(&made));
    }
    let mut lines = vec![format!("{} tenants are saved in {}", made.manifest.tenants.len(), made.folder.display())];
    lines.extend(made.removed.iter().map(|folder| format!("removed {}", folder.display())));
    print(&lines.join("\n"))
}

fn document(made: &Made) -> serde_json::Value {
    let removed: Vec<String> = made.removed.iter().map(|folder| folder.display().to_string()).collect();
    json!({
        "done": "backed up",
        "folder": made.folder.display().to_string(),
        "created_at": made.manifest.created_at,
        "kind": made.manifest.kind,
        "tenants": made.manifest.tenants,
        "removed": removed,
    })
}
