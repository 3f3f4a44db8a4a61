//! `export`: writes all records of a resource to standard output or a file.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde_json::json;
use tempfile::NamedTempFile;

use super::import::progress_bar;
use super::{GlobalOptions, open_tenant, resource, resource_names};
use crate::files;
use crate::model::Resource;
use crate::store::{DatabaseError, TenantFile};
use crate::transfer::{self, Format};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The tenant's name
    tenant: String,
    #[arg(value_parser = resource, help = resource_names())]
    resource: &'static Resource,
    /// The format [default: by the extension of --output, else csv]
    #[arg(long)]
    format: Option<FormatName>,
    /// Write to this file, with access for the owner only, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    Csv,
    Jsonl,
}

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, &arguments.tenant)?;
    let file = TenantFile::open(registry.data_dir(), tenant.id)?;
    let format = match (arguments.format, &arguments.output) {
        (Some(FormatName::Csv), _) => Format::Csv,
        (Some(FormatName::Jsonl), _) => Format::JsonLines,
        (None, Some(path)) => Format::from_extension(path).unwrap_or(Format::Csv),
        (None, None) => Format::Csv,
    };
    let resource = arguments.resource;
    let Some(path) = &arguments.output else {
        // The records themselves are the output, also with `--json`.
        let bar = export_progress(&file, resource, !io::stdout().is_terminal())?;
        transfer::export(&file, resource, format, counting_writer(io::stdout().lock(), &bar))?;
        return Ok(());
    };
    let bar = export_progress(&file, resource, true)?;
    let rows = write_file(path, |target| {
        Ok(transfer::export(&file, resource, format, counting_writer(target, &bar))?)
    })?;
    let (plural, tenant, path) = (resource.plural, tenant.name, path.display().to_string());
    options.report(
        &json!({"done": "exported", "tenant": tenant, "resource": plural, "rows": rows, "file": path}),
        &format!("{rows} rows of {plural} of {tenant} are exported to {path}"),
    )
}

/// Writes to a temporary file beside `path`, which nobody else can have made, and then renames it,
/// so that `path` never holds a partial export.
fn write_file(
    path: &Path,
    write: impl FnOnce(&File) -> anyhow::Result<u64>,
) -> anyhow::Result<u64> {
    let failed = || format!("cannot write {}", path.display());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let file = NamedTempFile::new_in(directory.unwrap_or(Path::new("."))).with_context(failed)?;
    let rows = write(file.as_file())?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist(path).with_context(failed)?;
    files::sync_parent(path).with_context(failed)?;
    Ok(rows)
}

/// A progress bar in records, hidden if it is not `wanted`.
fn export_progress(
    file: &TenantFile,
    resource: &'static Resource,
    wanted: bool,
) -> anyhow::Result<ProgressBar> {
    if !wanted {
        return Ok(ProgressBar::hidden());
    }
    let count: Result<u64, DatabaseError> = file.read(|reading| reading.count(resource));
    Ok(progress_bar(count?, "{pos} of {len}").with_message("exporting"))
}

/// Buffers writes to `target` and advances `bar` by the lines written. Line breaks inside a record
/// make it run slightly ahead.
fn counting_writer<'a>(target: impl Write + 'a, bar: &'a ProgressBar) -> impl Write + 'a {
    BufWriter::with_capacity(64 * 1024, LineCounter { target, bar })
}

struct LineCounter<'a, W> {
    target: W,
    bar: &'a ProgressBar,
}

impl<W: Write> Write for LineCounter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.target.write(bytes)?;
        let lines = bytes.iter().take(written).filter(|byte| **byte == b'\n').count();
        self.bar.inc(lines as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.target.flush()
    }
}
