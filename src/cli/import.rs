//! `import`: imports the records of a file, all of them or none.

use std::fs::File;
use std::io::{self, BufWriter, Stdout, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::output::print_stderr;
use super::{GlobalOptions, UsageError, open_tenant, resource, resource_names};
use crate::model::Resource;
use crate::store::TenantFile;
use crate::transfer::{Format, Import, ImportObserver, Imported, Mode, RowError};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The tenant's name
    tenant: String,
    #[arg(value_parser = resource, help = resource_names())]
    resource: &'static Resource,
    /// The file, with the extension .csv or .jsonl
    file: PathBuf,
    /// Keep the ids of the file; the resource must never have held a record
    #[arg(long, conflicts_with = "update_by")]
    keep_ids: bool,
    /// Change the records that the rows name by this field: `id`, or a text or e-mail field. A row
    /// that names none is a new record, except by `id`
    #[arg(long, value_name = "FIELD")]
    update_by: Option<String>,
    /// Check the whole file, report its faults or what it would do, but store nothing
    #[arg(long)]
    dry_run: bool,
}

/// The maximum number of row errors that standard error shows.
const MAX_SHOWN: u64 = 100;

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { tenant, resource, file: path, keep_ids, update_by, dry_run } = arguments;
    let format = Format::from_extension(path)
        .ok_or_else(|| UsageError("the file's name must end in .csv or .jsonl".into()))?;
    let mode = match update_by {
        Some(name) => Mode::update_by(resource, name).map_err(UsageError)?,
        None if *keep_ids => Mode::KeepIds,
        None => Mode::Add,
    };
    let (registry, tenant) = open_tenant(options, tenant)?;
    let failed = || format!("cannot read {}", path.display());
    let source = File::open(path).with_context(failed)?;
    let metadata = source.metadata().with_context(failed)?;
    ensure!(!metadata.is_dir(), "{} is a directory", path.display());
    let mut file = TenantFile::open(registry.data_dir(), tenant.id)?;
    let import = Import { resource, format, mode, dry_run: *dry_run };
    let document = options.json.then(|| ErrorDocument::new(&tenant.name, resource.plural));
    let (size, now) = (metadata.len(), options.clock().now().timestamp());
    let mut report = ImportReport::new(size, document);
    let source = report.bar.wrap_read(source);
    let outcome = import.run(source, size, &mut file, now, &mut report);
    report.finish()?;
    let imported = outcome?;
    let (rows, name) = (imported.rows(), &tenant.name);
    let Imported { created, changed, unchanged } = imported;
    let counts = match mode {
        Mode::UpdateBy(_) => {
            format!(": {created} created, {changed} changed, {unchanged} unchanged")
        }
        _ => String::new(),
    };
    let plural = resource.plural;
    let text = if *dry_run {
        format!("{rows} rows of {plural} can be imported into {name}{counts}; nothing was stored")
    } else {
        format!("{rows} rows of {plural} are imported into {name}{counts}")
    };
    options.report(&result(&import, name, imported), &text)
}

fn result(import: &Import, tenant: &str, imported: Imported) -> Value {
    let mut document = json!({
        "done": if import.dry_run { "checked" } else { "imported" },
        "tenant": tenant,
        "resource": import.resource.plural,
        "rows": imported.rows(),
    });
    if let (Mode::UpdateBy(_), Some(members)) = (import.mode, document.as_object_mut()) {
        let Imported { created, changed, unchanged } = imported;
        let counts = [("created", created), ("changed", changed), ("unchanged", unchanged)];
        members.extend(counts.map(|(name, count)| (name.to_owned(), count.into())));
    }
    document
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
    bar: ProgressBar,
    errors: u64,
    document: Option<ErrorDocument>,
}

impl ImportReport {
    fn new(bytes: u64, document: Option<ErrorDocument>) -> ImportReport {
        let bar = progress_bar(bytes, "{bytes} of {total_bytes}").with_message("importing");
        ImportReport { bar, errors: 0, document }
    }

    fn finish(self) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        if self.errors > MAX_SHOWN {
            print_stderr(&format!("and {} more", self.errors - MAX_SHOWN));
        }
        self.document
            .map_or(Ok(()), ErrorDocument::finish)
            .context("cannot write to standard output")
    }
}

impl ImportObserver for ImportReport {
    fn row_error(&mut self, error: &RowError) {
        if let Some(document) = &mut self.document {
            document.add(error);
        }
        self.errors += 1;
        if self.errors <= MAX_SHOWN {
            self.bar.suspend(|| print_stderr(&error.to_string()));
        }
    }

    fn waiting(&mut self) {
        print_stderr("waiting for another import into the tenant to end");
    }
}

/// A progress bar on standard error, hidden if that is no terminal. `figures` is the template of
/// indicatif for the numbers after the bar.
pub(super) fn progress_bar(length: u64, figures: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let template = format!("{{msg:9}} {{bar:40}} {figures} {{eta}}");
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
