//! `import`: imports the records of a file, all of them or none.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Seek as _, Stdout, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use uuid::Uuid;

use super::output::{print, print_json, print_stderr};
use super::{GlobalOptions, UsageError, find_tenant, resource, resource_names};
use crate::model::Resource;
use crate::store::TenantFile;
use crate::transfer::{Format, Import, ImportPhase, ProgressObserver, RowError};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The tenant's name
    tenant: String,
    #[arg(value_parser = resource, help = resource_names())]
    resource: &'static Resource,
    /// The file, with the extension .csv or .jsonl
    file: PathBuf,
    /// Keep the ids of the file; the resource must never have held a record
    #[arg(long)]
    keep_ids: bool,
    /// Check the whole file and report its faults, but store nothing
    #[arg(long)]
    dry_run: bool,
}

/// The maximum number of row errors that standard error shows.
const MAX_SHOWN: u64 = 100;

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { tenant, resource, file: path, keep_ids, dry_run } = arguments;
    let format = Format::from_extension(path)
        .ok_or(UsageError("the file's name must end in .csv or .jsonl"))?;
    let registry = options.open_registry()?;
    let tenant = find_tenant(&registry, tenant)?;
    let (mut source, size) = open(path)?;
    let mut file = TenantFile::open(registry.data_dir(), tenant.id)?;
    let import = Import { resource, format, keep_ids: *keep_ids, dry_run: *dry_run };
    let document = options.json.then(|| ErrorDocument::new(&tenant.name, resource.plural));
    let mut report = ImportReport::new(size, document);
    let outcome =
        import.run(&mut source, &mut file, options.clock().now().timestamp(), &mut report);
    report.finish()?;
    let rows = outcome?;
    if options.json {
        return print_json(&json!({
            "done": if *dry_run { "checked" } else { "imported" },
            "tenant": tenant.name,
            "resource": resource.plural,
            "rows": rows,
        }));
    }
    print(&if *dry_run {
        format!(
            "{rows} rows of {} can be imported into {}; nothing was stored",
            resource.plural, tenant.name
        )
    } else {
        format!("{rows} rows of {} are imported into {}", resource.plural, tenant.name)
    })
}

/// Opens the file and returns it with its size in bytes. What cannot be read twice, such as a pipe,
/// is copied to a temporary file.
fn open(path: &Path) -> anyhow::Result<(File, u64)> {
    let failed = || format!("cannot read {}", path.display());
    let source = File::open(path).with_context(failed)?;
    let metadata = source.metadata().with_context(failed)?;
    ensure!(!metadata.is_dir(), "{} is a directory", path.display());
    if metadata.is_file() {
        return Ok((source, metadata.len()));
    }
    spool(source).with_context(|| format!("cannot copy {} to a temporary file", path.display()))
}

/// Copies `source` to a temporary file. The file has no name once it is open, so it goes with the
/// process.
fn spool(mut source: File) -> io::Result<(File, u64)> {
    let path = env::temp_dir().join(format!("tenantdesk-import-{}", Uuid::new_v4()));
    let mut copy =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    let size = io::copy(&mut source, &mut copy)?;
    copy.rewind()?;
    Ok((copy, size))
}

/// The JSON document of a failed import. Each row error is written when it is found, so that memory
/// is bounded.
struct ErrorDocument {
    /// The document up to the list of errors.
    start: String,
    target: BufWriter<Stdout>,
    errors: u64,
    /// The first failed write. Nothing is written after it.
    result: io::Result<()>,
}

impl ErrorDocument {
    fn new(tenant: &str, resource: &str) -> ErrorDocument {
        let members =
            json!({"done": "nothing", "tenant": tenant, "resource": resource}).to_string();
        let start = format!("{},\"faults\":[", members.trim_end_matches('}'));
        ErrorDocument { start, target: BufWriter::new(io::stdout()), errors: 0, result: Ok(()) }
    }

    fn add(&mut self, error: &RowError) {
        if self.result.is_ok() {
            let separator = if self.errors == 0 { &self.start } else { "," };
            self.result = write!(self.target, "{separator}{}", document(error));
            self.errors += 1;
        }
    }

    /// Completes the document, if there were errors.
    fn finish(mut self) -> io::Result<()> {
        self.result?;
        if self.errors > 0 {
            writeln!(self.target, "]}}")?;
        }
        self.target.flush()
    }
}

fn document(error: &RowError) -> Value {
    json!({"line": error.line, "field": error.field, "code": error.code, "message": error.message})
}

/// Reports row errors, and progress if standard error is a terminal.
struct ImportReport {
    bar: Option<ProgressBar>,
    /// The size of the file in bytes.
    size: u64,
    phase: Option<ImportPhase>,
    errors: u64,
    document: Option<ErrorDocument>,
}

impl ImportReport {
    fn new(size: u64, document: Option<ErrorDocument>) -> ImportReport {
        let bar = io::stderr().is_terminal().then(|| progress_bar(size, BYTES));
        ImportReport { bar, size, phase: None, errors: 0, document }
    }

    fn finish(self) -> anyhow::Result<()> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.errors > MAX_SHOWN {
            print_stderr(&format!("and {} more", self.errors - MAX_SHOWN));
        }
        self.document
            .map_or(Ok(()), ErrorDocument::finish)
            .context("cannot write to standard output")
    }
}

impl ProgressObserver for ImportReport {
    fn row_error(&mut self, error: &RowError) {
        if let Some(document) = &mut self.document {
            document.add(error);
        }
        self.errors += 1;
        if self.errors <= MAX_SHOWN {
            match &self.bar {
                Some(bar) => bar.suspend(|| print_stderr(&error.to_string())),
                None => print_stderr(&error.to_string()),
            }
        }
    }

    fn waiting(&mut self) {
        print_stderr("waiting for another import into the tenant to end");
    }

    fn progress(&mut self, phase: ImportPhase, bytes: u64) {
        let size = self.size;
        let Some(bar) = self.begin(phase) else { return };
        bar.set_length(size);
        bar.set_position(bytes);
    }
}

impl ImportReport {
    /// Returns the bar of a phase, if there is one.
    fn begin(&mut self, phase: ImportPhase) -> Option<&ProgressBar> {
        let bar = self.bar.as_ref()?;
        if self.phase != Some(phase) {
            self.phase = Some(phase);
            bar.reset();
            let (message, figures) = match phase {
                ImportPhase::Checking => ("checking", BYTES),
                ImportPhase::Storing => ("storing", BYTES),
            };
            bar.set_message(message);
            set_figures(bar, figures);
        }
        Some(bar)
    }
}

/// Figures of a progress bar, as a template of indicatif.
pub(super) const ROWS: &str = "{pos} of {len}";
const BYTES: &str = "{bytes} of {total_bytes}";

/// A progress bar on standard error. `figures` is the template for the numbers after the bar.
pub(super) fn progress_bar(length: u64, figures: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    set_figures(&bar, figures);
    bar
}

fn set_figures(bar: &ProgressBar, figures: &str) {
    if let Ok(style) =
        ProgressStyle::with_template(&format!("{{msg:9}} {{bar:40}} {figures} {{eta}}"))
    {
        bar.set_style(style);
    }
}
