//! `backup` makes a consistent copy, also while the server runs. `restore` restores a backup, whole
//! or one tenant.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use serde_json::{Value, json};

use super::options::{GlobalOptions, UsageError, find_tenant, print_stderr, tenant_name};
use crate::clock::Clock;
use crate::config::positive;
use crate::store::backup::restore::{Restore, Restored, RestoredTenant, restore};
use crate::store::backup::{self, Backup, LeftOutTenant};
use crate::words::count;

#[derive(Debug, Args)]
pub(super) struct BackupArguments {
    /// The directory of all backups; each backup is a new directory in it, named by its time
    dir: PathBuf,
    /// Only this tenant, with its keys
    tenant: Option<String>,
    /// Keep the newest N backups of this kind, and remove older ones; the kinds are all tenants, and
    /// this tenant
    #[arg(long, value_name = "N", value_parser = positive::<NonZeroUsize>)]
    keep: Option<NonZeroUsize>,
}

pub(super) fn run_backup(
    options: &GlobalOptions,
    arguments: &BackupArguments,
) -> anyhow::Result<()> {
    let registry = options.open_registry()?;
    let tenant =
        arguments.tenant.as_deref().map(|name| find_tenant(&registry, name)).transpose()?;
    let keep = arguments.keep.map(NonZeroUsize::get);
    let made =
        backup::create(&registry, &arguments.dir, tenant.as_ref(), keep, Clock::system().now())?;
    options.report(&backup_document(&made), &backup_text(&made))?;
    report_left_out(&made)
}

fn backup_text(made: &Backup) -> String {
    let mut lines = vec![format!(
        "saved {} in {}",
        count(made.manifest.tenants.len() as u64, "tenant"),
        made.directory.display()
    )];
    lines.extend(made.removed.iter().map(|directory| format!("removed {}", directory.display())));
    lines.join("\n")
}

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

fn backup_document(made: &Backup) -> Value {
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

#[derive(Debug, Args)]
pub(super) struct RestoreArguments {
    /// A backup, or a directory of backups, whose newest suitable backup is used
    dir: PathBuf,
    /// Only this tenant; the server may run
    tenant: Option<String>,
    /// Restore the tenant under this name instead of its name in the backup
    #[arg(long = "as", requires = "tenant", value_parser = tenant_name, value_name = "NEW")]
    new_name: Option<String>,
    /// Replace the records of a tenant that exists; its keys, password and state are kept
    #[arg(long)]
    force: bool,
}

pub(super) fn run_restore(
    options: &GlobalOptions,
    arguments: &RestoreArguments,
) -> anyhow::Result<()> {
    if arguments.force && arguments.tenant.is_none() {
        let message = "--force needs a TENANT: everything is restored only into an empty directory";
        return Err(UsageError(message.to_owned()).into());
    }
    let restored = restore(&Restore {
        data_dir: &options.data_dir,
        source: &arguments.dir,
        tenant: arguments.tenant.as_deref(),
        new_name: arguments.new_name.as_deref(),
        force: arguments.force,
        now: Clock::system().now(),
    })?;
    report_findings(&restored);
    options.report(&restore_document(&restored), &restore_text(&restored))?;
    // The restore has succeeded, whatever becomes of the advice.
    let Ok(registry) = options.open_registry() else { return Ok(()) };
    for RestoredTenant { name, .. } in &restored.tenants {
        let tenant = registry.find_tenant(name).ok().flatten();
        let state = tenant.map(|tenant| tenant.state(Clock::system().now()));
        if let Some(state @ ("suspended" | "moving")) = state {
            print_stderr(&format!("tenant {name} is {state}: tenantdesk tenant activate {name}"));
        }
    }
    Ok(())
}

fn report_findings(restored: &Restored) {
    for LeftOutTenant { id, name, reason } in &restored.left_out {
        print_stderr(&format!(
            "tenant {name} (id {id}) was left out of this backup ({reason}): it is not restored; \
             \"restore DIR {name}\" uses the newest backup that contains it"
        ));
    }
    for name in &restored.newer {
        print_stderr(&format!(
            "there is a newer backup of the tenant {name}: \"restore DIR {name} --force\" uses it"
        ));
    }
    if let Some(ahead) = &restored.ahead {
        print_stderr(&format!(
            "{} is not taken: it is dated after now, because a clock was wrong, or is",
            ahead.display()
        ));
    }
    if let Some(keys) = restored.active_keys {
        let (number, are) =
            (count(keys.unsigned_abs(), "key"), if keys == 1 { "is" } else { "are" });
        let advice = match keys {
            0 => "",
            _ => " A key that was revoked after the backup is active again: revoke it again",
        };
        print_stderr(&format!("{number} of the backup {are} active.{advice}"));
    }
}

fn restore_document(restored: &Restored) -> Value {
    json!({
        "done": "restored",
        "folder": restored.directory.display().to_string(),
        "created_at": restored.created_at,
        "tenants": restored.tenants,
        "left_out": restored.left_out,
        "active_keys": restored.active_keys,
    })
}

fn restore_text(restored: &Restored) -> String {
    let mut lines =
        vec![format!("restored from {} of {}", restored.directory.display(), restored.created_at)];
    lines.extend(restored.tenants.iter().map(|tenant| {
        let access = match tenant.keys {
            _ if tenant.existed => "its keys, password and state are unchanged".to_owned(),
            1 => "1 key came with it".to_owned(),
            keys => format!("{keys} keys came with it"),
        };
        let records: Vec<String> =
            tenant.records.iter().map(|(name, count)| format!("{name} {count}")).collect();
        format!("tenant {} (id {}): {}; {access}", tenant.name, tenant.id, records.join(", "))
    }));
    lines.join("\n")
}
