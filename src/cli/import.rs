//! `import`: records from a file, all of them or none.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::output::{print, print_json, remark};
use super::{General, WrongUsage, find_tenant, resource};
use crate::model::Resource;
use crate::store::tenant_file::TenantFile;
use crate::transfer::{Format, Import, RowFault, Stage, Watcher};

#[derive(Debug, Args)]
pub struct Arguments {
    /// The tenant's name
    tenant: String,
    /// customers, employees or hardware
    #[arg(value_parser = resource)]
    resource: &'static Resource,
    /// Ends in .csv or .jsonl
    file: PathBuf,
    /// Take the file's ids, into a resource that has never held a record
    #[arg(long)]
    keep_ids: bool,
    /// Check the whole file and say what is wrong, but store nothing
    #[arg(long)]
    dry_run: bool,
}

/// Faults that are shown one by one.
const MOST_SHOWN: u64 = 100;

pub fn run(general: &General, arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { tenant, resource, file: path, keep_ids, dry_run } = arguments;
    let format = Format::of(path).ok_or(WrongUsage("the file's name must end in .csv or .jsonl"))?;
    let registry = general.open_registry()?;
    let tenant = find_tenant(&registry, tenant)?;
    let (mut source, size) = open(path)?;
    let mut file = TenantFile::open(registry.data_dir(), tenant.id)?;
    let import = Import { resource, format, keep_ids: *keep_ids, dry_run: *dry_run };
    let document = general.json.then(|| FaultDocument::new(&tenant.name, resource.plural));
    let mut watcher = Terminal::new(size, document);
    let outcome = import.run(&mut source, &mut file, &general.clock().now().rfc3339(), &mut watcher);
    watcher.finish()?;
    let rows = outcome?;
    if general.json {
        return print_json(&json!({
            "done": if *dry_run { "checked" } else { "imported" },
            "tenant": tenant.name,
            "resource": resource.plural,
            "rows": rows,
        }));
    }
    print(&match dry_run {
        true => format!("{rows} rows of {} can be imported into {}; nothing was stored", resource.plural, tenant.name),
        false => format!("{rows} rows of {} are imported into {}", resource.plural, tenant.name),
    })
}

/// The file is read twice, so it must be one.
fn open(path: &Path) -> anyhow::Result<(File, u64)> {
    let cannot = || format!("cannot read {}", path.display());
    let found = std::fs::metadata(path).with_context(cannot)?;
    ensure!(found.is_file(), "{} is no regular file", path.display());
    Ok((File::open(path).with_context(cannot)?, found.len()))
}

/// The JSON document of an import with faults. Each fault is written as it is found, so that memory stays small however many
/// there are.
struct FaultDocument {
    /// Up to the list of faults.
    start: String,
    target: BufWriter<Stdout>,
    faults: u64,
    /// The first failure of the target. Nothing is written after it.
    failure: io::Result<()>,
}

impl FaultDocument {
    fn new(tenant: &str, resource: &str) -> FaultDocument {
        let members = json!({"done": "nothing", "tenant": tenant, "resource": resource}).to_string();
        let start = format!("{},\"faults\":[", members.trim_end_matches('}'));
        FaultDocument { start, target: BufWriter::new(io::stdout()), faults: 0, failure: Ok(()) }
    }

    fn add(&mut self, fault: &RowFault) {
        if self.failure.is_ok() {
            let before = if self.faults == 0 { &self.start } else { "," };
            self.failure = write!(self.target, "{before}{}", document(fault));
            self.faults += 1;
        }
    }

    /// Ends the document, if there is one.
    fn finish(mut self) -> io::Result<()> {
        self.failure?;
        if self.faults > 0 {
            writeln!(self.target, "]}}")?;
        }
        self.target.flush()
    }
}

fn document(fault: &RowFault) -> Value {
    json!({"line": fault.line, "field": fault.field, "code": fault.code, "message": fault.message})
}

/// Shows faults, and progress where somebody watches.
struct Terminal {
    bar: Option<ProgressBar>,
    stage: Stage,
    faults: u64,
    document: Option<FaultDocument>,
}

impl Terminal {
    fn new(size: u64, document: Option<FaultDocument>) -> Terminal {
        let bar = io::stderr().is_terminal().then(|| progress_bar(size, "{bytes} of {total_bytes}"));
        Terminal { bar, stage: Stage::Checking, faults: 0, document }
    }

    fn finish(self) -> anyhow::Result<()> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.faults > MOST_SHOWN {
            remark(&format!("and {} more", self.faults - MOST_SHOWN));
        }
        self.document.map_or(Ok(()), FaultDocument::finish).context("cannot write to standard output")
    }
}

impl Watcher for Terminal {
    fn fault(&mut self, fault: &RowFault) {
        if let Some(document) = &mut self.document {
            document.add(fault);
        }
        self.faults += 1;
        if self.faults <= MOST_SHOWN {
            match &self.bar {
                Some(bar) => bar.suspend(|| remark(&fault.to_string())),
                None => remark(&fault.to_string()),
            }
        }
    }

    fn progress(&mut self, stage: Stage, bytes: u64) {
        let Some(bar) = &self.bar else { return };
        if self.stage != stage {
            self.stage = stage;
            bar.reset();
        }
        bar.set_message(match stage {
            Stage::Checking => "checking",
            Stage::Storing => "storing",
        });
        bar.set_position(bytes);
    }
}

/// A bar on standard error. `figures` is indicatif's template of what stands behind it.
pub(super) fn progress_bar(length: u64, figures: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    match ProgressStyle::with_template(&format!("{{msg:9}} {{bar:40}} {figures} {{eta}}")) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
