//! `changes`: prints the newest entries of a tenant's change log.

use std::num::{NonZeroI64, NonZeroUsize};

use clap::Args;
use serde_json::Value;

use super::{GlobalOptions, open_tenant, resource};
use crate::clock::Clock;
use crate::config::positive;
use crate::model::{ALL, RecordId, Resource};
use crate::store::{ChangesPage, ChangesQuery, DatabaseError, Start, TenantFile};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The tenant's name
    tenant: String,
    /// Only records of this resource
    #[arg(long, value_parser = resource())]
    resource: Option<&'static Resource>,
    /// Only the record with this id
    #[arg(long, requires = "resource", value_parser = positive::<NonZeroI64>)]
    id: Option<NonZeroI64>,
    /// The number of newest entries to print
    #[arg(long, default_value = "50", value_name = "N", value_parser = positive::<NonZeroUsize>)]
    last: NonZeroUsize,
}

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, &arguments.tenant)?;
    let file = TenantFile::open(registry.data_dir(), tenant.id)?;
    let now = Clock::system().now().timestamp();
    let Arguments { resource, id, last, .. } = arguments;
    let page: Result<Option<ChangesPage>, DatabaseError> = file.read(|reading| {
        reading.changes(&ChangesQuery {
            readable: ALL.to_vec(),
            resource: *resource,
            record: id.map(|id| RecordId(id.get())),
            start: Start::Newest,
            limit: last.get(),
            oldest: reading.changes_shown_since(now)?,
        })
    });
    let json = page?.map(|page| page.json).unwrap_or_default();
    let mut entries: Vec<Value> = serde_json::from_slice(&json)?;
    entries.reverse();
    options.list(
        &entries.into(),
        &["seq", "at", "resource", "id", "action", "fields", "by", "request_id"],
    )
}
