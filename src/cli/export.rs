//! `export` writes all records of a resource to standard output or a file. `fields` prints what the
//! columns of a file can be.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Seek as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::ProgressBar;
use rustix::fs::fstat;
use serde_json::{Value, json};
use tempfile::{NamedTempFile, spooled_tempfile_in};

use super::options::{GlobalOptions, Time, open_tenant, print_document, resource};
use crate::clock::Clock;
use crate::files;
use crate::model::Resource;
use crate::store::TenantFile;
use crate::transfer::{self, Export, FileFormat, TransferError};
use crate::words;

/// A longer export waits for its reader in a file without a name in the data directory.
pub(super) const IN_MEMORY: usize = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    /// The tenant's name
    tenant: String,
    /// The records
    #[arg(value_parser = resource())]
    resource: &'static Resource,
    /// The format [default: by the extension of --output, else csv]
    #[arg(long, value_parser = format(&["csv", "jsonl", "xlsx"]))]
    format: Option<FileFormat>,
    /// Add numbers and names behind the ids, and write amounts in place of cents
    #[arg(long)]
    names: bool,
    /// Write to this file, with access for the owner only, instead of standard output (`-`)
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The records as they were at this time; a date stands for its last second in UTC
    #[arg(long, value_name = "TIME", value_parser = Time::last)]
    at: Option<Time>,
}

pub(super) fn run_export(
    options: &GlobalOptions,
    arguments: &ExportArguments,
) -> anyhow::Result<()> {
    let ExportArguments { tenant, resource, format, names, output, at } = arguments;
    let (registry, tenant) = open_tenant(options, tenant)?;
    let data_dir = registry.data_dir();
    let mut file = TenantFile::open(data_dir, tenant.id)?;
    if let Some(at) = at {
        let now = Clock::system().now().timestamp();
        let at = at.announce().parse().ok().filter(|at| *at < now);
        let at = at.context("--at is a time that is not over yet; nothing was exported")?;
        file.look_back(at, tenant.created_at)?;
    }
    let by_extension = || output.as_deref().and_then(FileFormat::from_extension);
    let format = format.or_else(by_extension).unwrap_or(FileFormat::Csv);
    let path = output.as_deref().filter(|path| !is_standard_output(path));
    let bar = if path.is_none() && io::stdout().is_terminal() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(file.read(|reading| reading.count(resource))?.unsigned_abs())
    };
    let export = |target: &mut dyn Write| {
        let target = BufWriter::with_capacity(64 * 1024, target);
        let export = Export { resource, format, with_names: *names };
        let rows = export.run(&file, target, data_dir, || bar.inc(1));
        bar.finish_and_clear();
        rows
    };
    let Some(path) = path else {
        // The records themselves are the output, also with `--json`.
        stream(data_dir, &mut io::stdout().lock(), export)?;
        return Ok(());
    };
    let rows = write_to(path, data_dir, export)?;
    let (plural, tenant, path) = (resource.plural, tenant.name, path.display().to_string());
    options.report(
        &json!({"done": "exported", "tenant": tenant, "resource": plural, "rows": rows,
            "file": path}),
        &format!("exported {} of {plural} of {tenant} to {path}", words::count(rows, "row")),
    )
}

/// Whether `path` is `-`, `/dev/stdout` or another name of the file or device behind standard output.
fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
        || fs::metadata(path).is_ok_and(|there| {
            let stdout = fstat(io::stdout());
            stdout.is_ok_and(|stdout| (stdout.st_dev, stdout.st_ino) == (there.dev(), there.ino()))
        })
}

/// Writes to a program that may read slowly, or not at all, such as a pager. During a read of the
/// tenant's file, its WAL grows. So the read ends before the first byte is sent.
fn stream(
    data_dir: &Path,
    target: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> Result<u64, TransferError>,
) -> Result<u64, TransferError> {
    let mut spool = spooled_tempfile_in(IN_MEMORY, data_dir);
    let rows = write(&mut spool)?;
    spool.rewind()?;
    io::copy(&mut spool, target)?;
    target.flush()?;
    Ok(rows)
}

/// Writes into a device or a pipe, such as the shell's `>(…)`. A file is replaced: the new one is
/// made beside it under a name that nobody else can have made, and then renamed. So `path` never
/// holds a partial export. A link stays, and the file behind it is replaced.
fn write_to(
    path: &Path,
    data_dir: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<u64, TransferError>,
) -> anyhow::Result<u64> {
    let failed = || format!("cannot write {}", path.display());
    if let Ok(there) = fs::metadata(path)
        && !there.is_file()
    {
        ensure!(!there.is_dir(), "{}: it is a directory", failed());
        let mut target = File::options().write(true).open(path).with_context(failed)?;
        return Ok(stream(data_dir, &mut target, write)?);
    }
    let path = match fs::canonicalize(path) {
        Err(_) if fs::symlink_metadata(path).is_err() => path.to_owned(),
        target => target.with_context(failed)?,
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    ensure!(
        directory.is_dir(),
        "{}: there is no directory {}; create it first",
        failed(),
        directory.display()
    );
    let file = NamedTempFile::new_in(directory);
    // The message of the crate names the temporary file.
    let mut file = file.map_err(|error| io::Error::from(error.kind())).with_context(failed)?;
    let rows = write(file.as_file_mut())?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist(&path).with_context(failed)?;
    files::sync_parent(&path).with_context(failed)?;
    Ok(rows)
}

/// Parses one of these names of formats.
pub(super) fn format(names: &'static [&str]) -> impl TypedValueParser<Value = FileFormat> {
    PossibleValuesParser::new(names)
        .try_map(|name| FileFormat::from_name(&name).ok_or("there is no such format"))
}

#[derive(Debug, Args)]
pub(super) struct FieldsArguments {
    /// The records
    #[arg(value_parser = resource())]
    resource: &'static Resource,
    /// Print a header for a new CSV file
    #[arg(long)]
    csv: bool,
}

pub(super) fn run_fields(
    options: &GlobalOptions,
    arguments: &FieldsArguments,
) -> anyhow::Result<()> {
    if arguments.csv {
        return print_document(&transfer::template_header(arguments.resource));
    }
    let documents = Value::from(transfer::describe(arguments.resource));
    options.list(&documents, &["name", "type", "required", "limits", "values", "example"])
}
