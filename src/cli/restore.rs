//! `restore`: what a backup holds, brought back.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::General;
use super::output::{print, print_json, remark};
use crate::store::backup::LeftOutTenant;
use crate::store::restore::{self, Restore, Restored, RestoredTenant};

#[derive(Debug, Args)]
pub struct Arguments {
    /// A backup's folder, or one with backups: then the newest of its kind is taken
    dir: PathBuf,
    /// Only this tenant; the others may be served meanwhile
    tenant: Option<String>,
    /// Replace the records of tenants that are there; their keys, password and state stay
    #[arg(long)]
    force: bool,
}

pub fn run(general: &General, arguments: &Arguments) -> anyhow::Result<()> {
    let restored = restore::restore(&Restore {
        data_dir: &general.data_dir,
        source: &arguments.dir,
        tenant: arguments.tenant.as_deref(),
        force: arguments.force,
    })?;
    if general.json {
        print_json(&document(&restored))?
    } else {
        print(&text(&restored))?
    }
    for LeftOutTenant { id, name, reason } in &restored.left_out {
        remark(&format!(
            "tenant {name} (id {id}) was left out of this backup ({reason}): it is not restored, and what is here of it \
             stays as it was; \"restore DIR {name}\" takes the newest backup that holds it"
        ));
    }
    if restored.litestream_restart_needed {
        remark(
            "if Litestream copies from here, restart it (systemctl restart tenantdesk-copy): \
             files were replaced, and it may not see them any more",
        );
    }
    Ok(())
}

fn document(restored: &Restored) -> Value {
    let tenant = |tenant: &RestoredTenant| json!({"id": tenant.id, "name": tenant.name, "existed": tenant.existed, "records": tenant.records});
    json!({
        "done": "restored",
        "folder": restored.folder.display().to_string(),
        "created_at": restored.created_at,
        "tenants": restored.tenants.iter().map(tenant).collect::<Vec<_>>(),
        "left_out": restored.left_out,
    })
}

fn text(restored: &Restored) -> String {
    let mut lines = vec![format!("restored from {} of {}", restored.folder.display(), restored.created_at)];
    lines.extend(restored.tenants.iter().map(|tenant| {
        let how = if tenant.existed { "its keys, password and state stay as they were" } else { "with its keys" };
        let records: Vec<String> = tenant.records.iter().map(|(name, count)| format!("{count} {name}")).collect();
        format!("tenant {} (id {}): {}; {how}", tenant.name, tenant.id, records.join(", "))
    }));
    lines.join("\n")
}
