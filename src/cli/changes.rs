//! `changes`: prints the newest entries of a tenant's change log.

use std::num::NonZeroUsize;

use clap::Args;
use serde_json::Value;

use super::output::{print_json, print_stderr, print_table};
use super::{GlobalOptions, open_tenant, resource, resource_names};
use crate::model::{RecordId, Resource};
use crate::store::{DatabaseError, TenantFile};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The tenant's name
    tenant: String,
    #[arg(long, value_parser = resource, help = format!("Only {}", resource_names()))]
    resource: Option<&'static Resource>,
    /// Only the record with this id
    #[arg(long, requires = "resource", value_parser = clap::value_parser!(i64).range(1..))]
    id: Option<i64>,
    /// The number of entries, the newest of all
    #[arg(long, default_value = "50", value_name = "N")]
    last: NonZeroUsize,
}

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, &arguments.tenant)?;
    let file = TenantFile::open(registry.data_dir(), tenant.id)?;
    let now = options.clock().now().timestamp();
    let Arguments { resource, id, last, .. } = arguments;
    let json: Result<Vec<u8>, DatabaseError> =
        file.read(|reading| reading.last_changes(*resource, id.map(RecordId), last.get(), now));
    let entries: Value = serde_json::from_slice(&json?)?;
    if options.json {
        return print_json(&entries);
    }
    let entries = entries.as_array().map(Vec::as_slice).unwrap_or_default();
    if entries.is_empty() {
        print_stderr(&format!("{} has no such entries", tenant.name));
        return Ok(());
    }
    print_table(["SEQ", "AT", "RESOURCE", "ID", "ACTION", "FIELDS", "BY"], entries.iter().map(row))
}

fn row(entry: &Value) -> [String; 7] {
    let fields = entry["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fields: Vec<&str> = fields.iter().filter_map(Value::as_str).collect();
    [
        entry["seq"].to_string(),
        text(&entry["at"]),
        text(&entry["resource"]),
        entry["id"].to_string(),
        text(&entry["action"]),
        fields.join(" "),
        actor(&entry["by"]),
    ]
}

/// `website (key 7, tdk_Ab12…)`, or the name of a command.
fn actor(by: &Value) -> String {
    match by["id"].as_i64() {
        Some(id) => format!("{} (key {id}, {}…)", text(&by["name"]), text(&by["prefix"])),
        None => text(&by["name"]),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
