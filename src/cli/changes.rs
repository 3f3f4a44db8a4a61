//! `changes` prints the newest entries of a tenant's change log. `undo` takes changes in it back.

use std::collections::HashMap;
use std::io::{self, Seek as _, Write as _};
use std::mem;
use std::num::{NonZeroI64, NonZeroUsize};
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::{ArgGroup, Args};
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::spooled_tempfile_in;
use uuid::Uuid;

use super::export::IN_MEMORY;
use super::options::{
    GlobalOptions, Time, UsageError, find_key, open_tenant, print, print_json, print_stderr,
    print_table, resource,
};
use crate::clock::Clock;
use crate::config::positive;
use crate::model::{ALL, RecordId, Resource};
use crate::store::registry::{Registry, TenantRow};
use crate::store::{
    Actor, ChangeContext, ChangesQuery, Leave, Reason, Run, Selection, Start, StoreError,
    TenantFile, Undo, Undone, Writing,
};
use crate::words::{self, grouped, printable_json};

/// The options that select entries of the change log.
#[derive(Debug, Args)]
struct SelectionArguments {
    /// Only changes since then: a date or a timestamp in UTC, a local time such as `14:00`, or a time
    /// before now such as `2h`
    #[arg(long, value_name = "TIME", value_parser = Time::first)]
    since: Option<Time>,
    /// Only changes until then; a date stands for its last second
    #[arg(long, value_name = "TIME", value_parser = Time::last)]
    until: Option<Time>,
    /// Only changes by the key with this number, or with this name if only one key has it
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only changes of this request, import or undo, as `changes` shows it
    #[arg(long, value_name = "UUID")]
    request: Option<Uuid>,
}

impl SelectionArguments {
    fn find(&self, registry: &Registry, tenant: &TenantRow) -> anyhow::Result<Selection> {
        let key = self.key.as_deref().map(|key| find_key(registry, tenant, key)).transpose()?;
        let [since, until] =
            [&self.since, &self.until].map(|time| time.as_ref().map(Time::announce));
        if let (Some(since), Some(until)) = (&since, &until)
            && since > until
        {
            bail!(UsageError(format!("--since {since} is after --until {until}")));
        }
        Ok(Selection { since, until, key, request: self.request })
    }
}

#[derive(Debug, Args)]
pub(super) struct ChangesArguments {
    /// The tenant's name
    tenant: String,
    /// Only records of this resource
    #[arg(long, value_parser = resource())]
    resource: Option<&'static Resource>,
    /// Only the record with this id
    #[arg(long, requires = "resource", value_parser = positive::<NonZeroI64>)]
    id: Option<NonZeroI64>,
    #[command(flatten)]
    selected: SelectionArguments,
    /// The number of newest entries or runs to print; 50, or all of a selection
    #[arg(long, value_name = "N", value_parser = positive::<NonZeroUsize>)]
    last: Option<NonZeroUsize>,
    /// Print one line for each request, batch or command, the newest first
    #[arg(long)]
    runs: bool,
}

/// How many entries or runs are printed without a selection.
const LAST: usize = 50;

/// How many entries of a selection are read at once.
const PAGE: usize = 1_000;

const COLUMNS: [&str; 8] = ["seq", "at", "resource", "id", "action", "fields", "by", "request_id"];

pub(super) fn run_changes(
    options: &GlobalOptions,
    arguments: &ChangesArguments,
) -> anyhow::Result<()> {
    let ChangesArguments { tenant, resource, id, selected, last, runs } = arguments;
    let (registry, tenant) = open_tenant(options, tenant)?;
    let selection = selected.find(&registry, &tenant)?;
    let limit = last.map(NonZeroUsize::get).or(selection.is_everything().then_some(LAST));
    let query = ChangesQuery {
        readable: ALL.to_vec(),
        resource: *resource,
        record: id.map(|id| RecordId(id.get())),
        selection: Some(selection),
        start: Start::Newest,
        limit: limit.unwrap_or(usize::MAX),
        ..ChangesQuery::default()
    };
    let file = TenantFile::open(registry.data_dir(), tenant.id)?;
    if *runs {
        return list_runs(options, &file.read(|reading| reading.runs(&query))?);
    }
    if limit.is_none() {
        return list_pages(options, &file, registry.data_dir(), query);
    }
    let page = file.read(|reading| reading.changes(&query))?;
    let json = page.map(|page| page.json).unwrap_or_default();
    let mut entries: Vec<Value> = serde_json::from_slice(&json)?;
    entries.reverse();
    options.list(&entries.into(), &COLUMNS)
}

/// Prints all entries that the query selects, page by page: a selection can have millions. With
/// `--json` they are printed when all are read, so that a command that fails prints nothing.
fn list_pages(
    options: &GlobalOptions,
    file: &TenantFile,
    scratch: &Path,
    query: ChangesQuery,
) -> anyhow::Result<()> {
    let mut query = ChangesQuery { start: Start::Oldest, limit: PAGE, ..query };
    let mut spool = options.json.then(|| spooled_tempfile_in(IN_MEMORY, scratch));
    let mut is_first = true;
    loop {
        let page = file.read(|reading| reading.changes(&query))?;
        let page = page.context("the change log has lost entries meanwhile; try again")?;
        let entries = str::from_utf8(&page.json)?.trim_matches(['[', ']']);
        if let Some(spool) = &mut spool {
            let comma = if is_first || entries.is_empty() { "" } else { "," };
            write!(spool, "{comma}{}", printable_json(entries))?;
        } else if is_first || !entries.is_empty() {
            print_table(&serde_json::from_slice(&page.json)?, &COLUMNS, is_first)?;
        }
        (is_first, query.start) = (false, Start::After(page.next));
        // The position is behind it. To look for it again would take longer with each page.
        if let Some(selection) = &mut query.selection {
            selection.since = None;
        }
        if !page.more {
            break;
        }
    }
    let Some(mut spool) = spool else { return Ok(()) };
    spool.rewind()?;
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(b"[")
        .and_then(|()| io::copy(&mut spool, &mut stdout))
        .and_then(|_| stdout.write_all(b"]\n"))
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}

fn list_runs(options: &GlobalOptions, runs: &[Run]) -> anyhow::Result<()> {
    let mut documents = json!(runs);
    if !options.json {
        // A cell has the values of an object alone.
        let runs = documents.as_array_mut().into_iter().flatten();
        for run in runs.filter_map(Value::as_object_mut) {
            for action in ["created", "changed", "deleted"] {
                let Some(Value::Object(counts)) = run.remove(action) else { continue };
                let texts = counts.iter().map(|(resource, count)| format!("{count} {resource}"));
                run.insert(action.to_owned(), texts.collect::<Vec<_>>().into());
            }
        }
    }
    options.list(&documents, &["at", "by", "created", "changed", "deleted", "request_id"])
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("begin").args(["since", "request"]).required(true).multiple(true))]
pub(super) struct UndoArguments {
    /// The tenant's name
    tenant: String,
    #[command(flatten)]
    selected: SelectionArguments,
    /// Report what would change; store nothing
    #[arg(long)]
    dry_run: bool,
    /// Change more than half of the records, without --key and --request
    #[arg(long)]
    yes: bool,
}

/// Said before a command waits for the tenant's file.
pub(super) const WAITING: &str = "waiting for another import or undo of the tenant to end";

/// The most records that the output names for each kind of reason.
const MAX_NAMED: usize = 5;

/// How to take a run of a command back.
pub(super) fn way_back(options: &GlobalOptions, tenant: &str, run: Uuid) -> String {
    let command = options.command(&["undo", tenant, "--request", &run.to_string()]);
    format!("To take this back: {command}")
}

pub(super) fn run_undo(options: &GlobalOptions, arguments: &UndoArguments) -> anyhow::Result<()> {
    let UndoArguments { tenant, selected, dry_run, yes } = arguments;
    let (registry, tenant) = open_tenant(options, tenant)?;
    let selection = selected.find(&registry, &tenant)?;
    let now = || Clock::system().now().timestamp();
    let since = selection.since.as_ref();
    if let Some(since) = since.filter(|since| **since > now().to_string()) {
        bail!(UsageError(format!("--since {since} is in the future; nothing was changed")));
    }
    let mut file = TenantFile::open(registry.data_dir(), tenant.id)?;
    let run = Uuid::new_v4();
    let context =
        || ChangeContext { at: now(), actor: Actor::Command { name: "undo".to_owned(), run } };
    let (mut left, mut counts, mut kinds) = (Vec::new(), LeftCounts::new(), HashMap::new());
    let leave = &mut |resource: &Resource, id: RecordId, field: Option<&str>, reason: &Reason| {
        *counts.entry((resource.plural, field.is_some())).or_default() += 1;
        let of_kind = kinds.entry(mem::discriminant(reason)).or_insert(0);
        *of_kind += 1;
        if options.json || *of_kind <= MAX_NAMED {
            left.push(LeftAsIs {
                resource: resource.plural,
                name: resource.name,
                id,
                field: field.map(str::to_owned),
                reason: reason.to_string(),
            });
        }
    };
    let may_change_most =
        *yes || *dry_run || selection.key.is_some() || selection.request.is_some();
    let outcome = take_back(&mut file, &selection, context, *dry_run, may_change_most, leave);
    file.checkpoint();
    let mut undone = outcome?;
    let Undone { deleted, changed, created, .. } = &undone;
    let has_changed = [deleted, changed, created].iter().any(|counts| !counts.is_empty());
    undone.run = (has_changed && !dry_run).then_some(run);
    if options.json {
        let (left_fields, left) = left.iter().partition(|left| left.field.is_some());
        return print_json(&UndoDocument { undone: &undone, left, left_fields });
    }
    let mut lines = describe(&undone, &counts, *dry_run);
    for LeftAsIs { name, id, field, reason, .. } in &left {
        let field = field.as_ref().map(|field| format!(": {field} stays,")).unwrap_or_default();
        lines += &format!("  {name} {}{field} {reason}\n", id.0);
    }
    let end = match undone.run {
        Some(run) => way_back(options, &tenant.name, run),
        None if *dry_run => "nothing was stored".to_owned(),
        None => "nothing was changed".to_owned(),
    };
    print(&(lines + &end))
}

/// A record or a field that stays as it is.
#[derive(Serialize)]
struct LeftAsIs {
    resource: &'static str,
    #[serde(skip)]
    name: &'static str,
    id: RecordId,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    reason: String,
}

/// Numbers of records and fields that stay, by the plural of the resource and whether they are
/// fields.
type LeftCounts = HashMap<(&'static str, bool), u64>;

#[derive(Serialize)]
struct UndoDocument<'a> {
    #[serde(flatten)]
    undone: &'a Undone,
    left: Vec<&'a LeftAsIs>,
    left_fields: Vec<&'a LeftAsIs>,
}

fn take_back(
    file: &mut TenantFile,
    selection: &Selection,
    context: impl FnOnce() -> ChangeContext,
    dry_run: bool,
    may_change_most: bool,
    leave: &mut Leave<'_>,
) -> anyhow::Result<Undone> {
    let transaction = file.begin(None, || print_stderr(WAITING))?;
    let context = context();
    let writing = transaction.writing(&context);
    let undone = Undo { writing: &writing, selection, leave }.run()?;
    let (changed, records) = extent(&writing, &undone)?;
    if !may_change_most && changed > records / 2 {
        bail!(UsageError(format!(
            "the undo would change {} of {}; nothing was changed. --dry-run shows them. Add --yes \
             to change them",
            grouped(changed),
            words::count(records, "record")
        )));
    }
    if !dry_run {
        transaction.commit()?;
    }
    Ok(undone)
}

/// The number of records that an undo changes, and of all records before or after it.
fn extent(writing: &Writing<'_>, undone: &Undone) -> Result<(u64, u64), StoreError> {
    let Undone { deleted, changed, created, .. } = undone;
    let deleted = deleted.values().sum::<u64>();
    let changed = changed.values().chain(created.values()).sum::<u64>() + deleted;
    let mut records = deleted;
    for resource in ALL {
        records += writing.count(resource)?.unsigned_abs();
    }
    Ok((changed, records))
}

fn describe(undone: &Undone, left: &LeftCounts, dry_run: bool) -> String {
    let Undone { deleted, changed, created, .. } = undone;
    let mut text = String::new();
    for Resource { plural, .. } in ALL {
        let mut done = Vec::new();
        let counts = [(deleted, "deleted"), (changed, "changed"), (created, "created again")];
        for (counts, what) in counts {
            if let Some(count) = counts.get(*plural) {
                let would_be = if dry_run && done.is_empty() { "would be " } else { "" };
                done.push(format!("{} {would_be}{what}", grouped(*count)));
            }
        }
        let mut parts = Vec::new();
        if !done.is_empty() {
            parts.push(done.join(", "));
        }
        for is_field in [false, true] {
            if let Some(count) = left.get(&(*plural, is_field)) {
                let what = if is_field { words::count(*count, "field") } else { grouped(*count) };
                let stay = if dry_run { "would stay" } else { "left" };
                parts.push(format!("{what} {stay}"));
            }
        }
        if !parts.is_empty() {
            text += &format!("{plural}: {}\n", parts.join("; "));
        }
    }
    text
}
