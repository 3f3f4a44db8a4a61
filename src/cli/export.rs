//! `export`: every record of a resource, to standard output or a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde_json::json;

use super::import::progress_bar;
use super::output::{print, print_json};
use super::{General, find_tenant, resource};
use crate::model::Resource;
use crate::store::DatabaseError;
use crate::store::tenant_file::TenantFile;
use crate::transfer::{self, Format};

#[derive(Debug, Args)]
pub struct Arguments {
    /// The tenant's name
    tenant: String,
    /// customers, employees or hardware
    #[arg(value_parser = resource)]
    resource: &'static Resource,
    /// Without it the ending of --output decides, else csv
    #[arg(long)]
    format: Option<Written>,
    /// Write to this file, private to the owner, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Written {
    Csv,
    Jsonl,
}

pub fn run(general: &General, arguments: &Arguments) -> anyhow::Result<()> {
    let registry = general.open_registry()?;
    let tenant = find_tenant(&registry, &arguments.tenant)?;
    let file = TenantFile::open(registry.data_dir(), tenant.id)?;
    let format = match (arguments.format, &arguments.output) {
        (Some(Written::Csv), _) => Format::Csv,
        (Some(Written::Jsonl), _) => Format::JsonLines,
        (None, Some(path)) => Format::of(path).unwrap_or(Format::Csv),
        (None, None) => Format::Csv,
    };
    let resource = arguments.resource;
    let Some(path) = &arguments.output else {
        // The records are the output, also for scripts.
        let bar = bar(&file, resource, !io::stdout().is_terminal())?;
        transfer::export(&file, resource, format, watched(io::stdout().lock(), &bar))?;
        return Ok(());
    };
    let bar = bar(&file, resource, true)?;
    let rows = write_file(path, |target| Ok(transfer::export(&file, resource, format, watched(target, &bar))?))?;
    if general.json {
        let written = path.display().to_string();
        return print_json(&json!({
            "done": "exported", "tenant": tenant.name, "resource": resource.plural, "rows": rows, "file": written,
        }));
    }
    print(&format!("{rows} rows of {} of {} are exported to {}", resource.plural, tenant.name, path.display()))
}

/// Writes beside the file first, so that a half-written one is never found under its name.
fn write_file(path: &Path, write: impl FnOnce(&File) -> anyhow::Result<u64>) -> anyhow::Result<u64> {
    let mut partial = path.to_owned().into_os_string();
    partial.push(".partial");
    let cannot = || format!("cannot write {}", path.display());
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial).with_context(cannot)?;
    let written = write(&file).and_then(|rows| {
        file.sync_all().and_then(|()| fs::rename(&partial, path)).with_context(cannot)?;
        Ok(rows)
    });
    if written.is_err() {
        // The first failure is the one to tell.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn bar(file: &TenantFile, resource: &'static Resource, wanted: bool) -> anyhow::Result<ProgressBar> {
    if !(wanted && io::stderr().is_terminal()) {
        return Ok(ProgressBar::hidden());
    }
    let count: Result<i64, DatabaseError> = file.read(|reading| reading.number_of(resource));
    Ok(progress_bar(count?.unsigned_abs(), "{pos} of {len}").with_message("exporting"))
}

/// Records end with a line, and a line within a record only moves the bar a little early.
fn watched<'a>(target: impl Write + 'a, bar: &'a ProgressBar) -> impl Write + 'a {
    BufWriter::with_capacity(64 * 1024, Watched { target, bar })
}

struct Watched<'a, W> {
    target: W,
    bar: &'a ProgressBar,
}

impl<W: Write> Write for Watched<'_, W> {
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
