//! `undo`: takes changes of the change log back.

use std::collections::{BTreeMap, HashMap};

use clap::Args;
use jiff::Span;
use uuid::Uuid;

use super::key::key_id;
use super::output::{print, print_document, print_stderr};
use super::{GlobalOptions, open_tenant};
use crate::api::filter::parse_timestamp;
use crate::clock::Clock;
use crate::config::duration;
use crate::model::{ALL, Bound, KeyId};
use crate::store::{Actor, ChangeContext, Selection, TenantFile, Undo, UndoError, Undone};
use crate::words::grouped;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The tenant's name
    tenant: String,
    /// Only changes since then: a date, a timestamp, or a time before now such as `2h`; in UTC
    #[arg(long, value_name = "TIME", value_parser = since, required_unless_present = "request")]
    since: Option<String>,
    /// Only changes until then; a date stands for its last second
    #[arg(long, value_name = "TIME", value_parser = until)]
    until: Option<String>,
    /// Only changes by the key with this number
    #[arg(long, value_name = "ID", value_parser = key_id)]
    key: Option<KeyId>,
    /// Only changes of this request, import or undo, as `changes` shows it
    #[arg(long, value_name = "UUID")]
    request: Option<Uuid>,
    /// Report what would change; store nothing
    #[arg(long)]
    dry_run: bool,
}

/// Said before a command waits for the tenant's file.
pub(super) const WAITING: &str = "waiting for another import or undo of the tenant to end";

/// The most records that the output names for each kind of reason.
const MAX_NAMED: usize = 5;

/// How to take a run of a command back.
pub(super) fn way_back(tenant: &str, run: Uuid) -> String {
    format!("To take this back: tenantdesk undo {tenant} --request {run}")
}

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { tenant, since, until, key, request, dry_run } = arguments;
    let (since, until) = (since.clone(), until.clone());
    let selection = Selection { since, until, key: *key, request: *request };
    let (registry, tenant) = open_tenant(options, tenant)?;
    let mut file = TenantFile::open(registry.data_dir(), tenant.id)?;
    let (at, run) = (Clock::system().now().timestamp(), Uuid::new_v4());
    let context = ChangeContext { at, actor: Actor::Command { name: "undo", run } };
    let mut undone = take_back(&mut file, &selection, &context, *dry_run)?;
    let has_changed = [&undone.deleted, &undone.changed, &undone.created] != [&BTreeMap::new(); 3];
    undone.run = (has_changed && !dry_run).then_some(run);
    if options.json {
        return print_document(&serde_json::to_string(&undone)?);
    }
    let end = match undone.run {
        Some(run) => way_back(&tenant.name, run),
        None if *dry_run => "nothing was stored".to_owned(),
        None => "nothing was changed".to_owned(),
    };
    print(&format!("{}{end}", describe(&undone, *dry_run)))
}

/// Takes the selected changes back in one transaction.
fn take_back(
    file: &mut TenantFile,
    selection: &Selection,
    context: &ChangeContext,
    dry_run: bool,
) -> Result<Undone, UndoError> {
    let transaction = file.begin(None, || print_stderr(WAITING))?;
    let writing = transaction.writing();
    let undone = Undo { writing: &writing, selection, context }.run()?;
    if !(undone.changed.is_empty() && undone.created.is_empty())
        && let Some(shortage) = transaction.find_shortage()?
    {
        return Err(UndoError::NoSpace(shortage));
    }
    if !dry_run {
        writing.flush()?;
        drop(writing);
        transaction.commit(context.at)?;
        file.checkpoint();
    }
    Ok(undone)
}

/// A line for each resource, and for the first records that stay for each reason.
fn describe(undone: &Undone, dry_run: bool) -> String {
    let Undone { deleted, changed, created, left, .. } = undone;
    let mut text = String::new();
    for resource in ALL {
        let mut parts = Vec::new();
        for (verb, counts) in
            [("deleted", deleted), ("changed", changed), ("created again", created)]
        {
            if let Some(count) = counts.get(resource.plural) {
                let would = if dry_run && parts.is_empty() { "would be " } else { "" };
                parts.push(format!("{} {would}{verb}", grouped(count.unsigned_abs())));
            }
        }
        let mut parts = vec![parts.join(", ")];
        let stay = left.iter().filter(|left| left.resource == resource.plural).count();
        let verb = match (dry_run, stay) {
            (true, _) => "would stay",
            (false, 1) => "stays",
            (false, _) => "stay",
        };
        parts.extend((stay > 0).then(|| format!("{} {verb}", grouped(stay as u64))));
        parts.retain(|part| !part.is_empty());
        if !parts.is_empty() {
            text += &format!("{}: {}\n", resource.plural, parts.join("; "));
        }
    }
    let mut named = HashMap::new();
    for one in left {
        // "was changed", "would refer", "must stay".
        let kind = one.reason.split(' ').next();
        let count: &mut usize = named.entry(kind).or_default();
        *count += 1;
        if *count <= MAX_NAMED {
            text += &format!("  {} {} {}\n", one.name, one.id.0, one.reason);
        }
    }
    text
}

fn since(text: &str) -> Result<String, &'static str> {
    time(text, Bound::From)
}

fn until(text: &str) -> Result<String, &'static str> {
    time(text, Bound::To)
}

fn time(text: &str, bound: Bound) -> Result<String, &'static str> {
    let before = |span: Span| Clock::system().now().after(-span);
    let time = parse_timestamp(text, bound).or_else(|| Some(before(duration(text)?)?.to_string()));
    time.ok_or(
        "not a date such as 2026-12-31, a timestamp such as 2026-12-31T19:30:00Z, or a time before \
         now such as 2h",
    )
}
