//! `import`: imports the records of a file, all of them or none.

use std::cmp::Reverse;
use std::env;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Cursor, Read as _, Seek as _, SeekFrom, Write as _};
use std::iter;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::tempfile_in;
use uuid::Uuid;

use super::changes::{WAITING, way_back};
use super::export::format;
use super::options::{
    GlobalOptions, UsageError, open_tenant, print, print_document, print_json, print_stderr,
    resource,
};
use crate::clock::Clock;
use crate::model::Resource;
use crate::store::{Actor, ChangeContext, TenantFile};
use crate::transfer::{
    self, ChangedRecord, FileFormat, Finding, Import, Imported, InputFile, MAX_FAULTS, Map, Mode,
    RowError, workbook,
};
use crate::words::{self, printable_json};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The tenant's name
    tenant: String,
    /// The records
    #[arg(value_parser = resource())]
    resource: &'static Resource,
    /// The file: .csv, .jsonl or .xlsx; `-` for standard input
    file: PathBuf,
    /// The format [default: by the ending of FILE]
    #[arg(long, value_parser = format(&["csv", "jsonl", "xlsx"]))]
    format: Option<FileFormat>,
    /// The sheet of a workbook [default: the first visible one that is not empty]
    #[arg(long, value_name = "NAME")]
    sheet: Option<String>,
    /// Read the headings, the words and the formats of the file by this map, a TOML file
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Print a map for this file, to correct; import nothing
    #[arg(long, conflicts_with_all = ["map", "keep_ids", "update_by", "dry_run"])]
    draft_map: bool,
    /// Keep the ids of the file; the resource must never have held a record
    #[arg(long, conflicts_with = "update_by")]
    keep_ids: bool,
    /// Update the record that has the row's value in this field: `id`, or a text or e-mail field. If
    /// there is none, the row creates a record, except by `id`
    #[arg(long, value_name = "FIELD")]
    update_by: Option<String>,
    /// Store every cell of the file, also those that you have not edited: this takes back what
    /// others have changed since the export
    #[arg(long, requires = "update_by")]
    overwrite: bool,
    /// Check the whole file and report its faults or its changes; store nothing
    #[arg(long)]
    dry_run: bool,
}

const WRONG_ENDING: &str = "the file's name must end in .csv, .jsonl or .xlsx; --format names the \
                            format of another file";

/// A draft reads at most so many bytes of a file, or of the rows of a workbook.
const MAX_DRAFTED: u64 = 16 * 1024 * 1024;

/// The maximum number of faults of one kind that standard error shows.
const MAX_SHOWN: u64 = 5;

/// The maximum number of kinds that are shown and counted. Unknown members can have any name.
const MAX_KINDS: usize = 100;

pub(super) fn run(options: &GlobalOptions, arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { tenant, resource, file: path, keep_ids, update_by, overwrite, dry_run, .. } =
        arguments;
    let format = arguments.format.or_else(|| FileFormat::from_extension(path));
    let format = format.filter(|_| !is_lock_file(path));
    let format = format.ok_or_else(|| UsageError(describe_ending(path)))?;
    if arguments.sheet.is_some() && format != FileFormat::Xlsx {
        bail!(UsageError("--sheet names a sheet of a workbook; the file is none".to_owned()));
    }
    if arguments.map.is_some() && format == FileFormat::JsonLines {
        bail!(UsageError("--map is for CSV files and workbooks".to_owned()));
    }
    if arguments.draft_map {
        return draft_map(arguments, format);
    }
    let map = read_map(arguments)?;
    let mode = match update_by {
        Some(name) => Mode::update_by(resource, name).map_err(UsageError)?,
        None if *keep_ids => Mode::KeepIds,
        None => Mode::Add,
    };
    let (registry, tenant) = open_tenant(options, tenant)?;
    let input = read_input(arguments, format, registry.data_dir())?;
    let mut file = TenantFile::open(registry.data_dir(), tenant.id)?;
    let import = Import { resource, map: &map, mode, overwrite: *overwrite, dry_run: *dry_run };
    let style = ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes} {eta}")?;
    let bar = ProgressBar::new(input.metadata()?.len()).with_style(style);
    let source = InputFile::new(format, bar.wrap_read(input), &map);
    let faults = options.json.then(Vec::new);
    let mut report = ErrorReport { bar: bar.clone(), kinds: Vec::new(), faults };
    let run = Uuid::new_v4();
    let context = || ChangeContext {
        at: Clock::system().now().timestamp(),
        actor: Actor::Command { name: log_name(path), run },
    };
    let wait = || print_stderr(WAITING);
    let mut changes = ChangeReport::new(options, registry.data_dir())?;
    let outcome = import.run(source, &mut file, context, wait, &mut |finding| match finding {
        Finding::Fault(error) => {
            report.add(error);
            Ok(())
        }
        Finding::Change(change) => changes.add(resource, change),
    });
    if !dry_run {
        file.checkpoint();
    }
    bar.finish_and_clear();
    print_faults(options, arguments, format, report)?;
    let imported = outcome.map_err(nothing_imported)?;
    warn(&imported);
    let (document, text) = result(&import, &tenant.name, &imported);
    match mode {
        Mode::UpdateBy(_) => changes.print(document, text)?,
        Mode::Add | Mode::KeepIds => options.report(&document, &text)?,
    }
    if !dry_run && imported.created + imported.changed > 0 {
        print_stderr(&way_back(options, &tenant.name, run));
    }
    Ok(())
}

fn nothing_imported(error: impl fmt::Display) -> anyhow::Error {
    anyhow!("{error}; nothing was imported")
}

/// The name of the import in the change log.
fn log_name(path: &Path) -> String {
    match path.file_name().filter(|_| path.as_os_str() != "-") {
        Some(file_name) => format!("import {}", file_name.to_string_lossy()),
        None => "import".to_owned(),
    }
}

fn print_faults(
    options: &GlobalOptions,
    arguments: &Arguments,
    format: FileFormat,
    report: ErrorReport,
) -> anyhow::Result<()> {
    report.summarize();
    let is_table = format != FileFormat::JsonLines;
    if is_table && arguments.map.is_none() && report.has_unknown_column() {
        advise_map(options, arguments);
    }
    let Some(faults) = report.faults.filter(|faults| !faults.is_empty()) else { return Ok(()) };
    let Arguments { tenant, resource, .. } = arguments;
    let more = faults.len() as u64 >= MAX_FAULTS;
    print_json(&Rejected { done: "nothing", tenant, resource: resource.plural, more, faults })
}

/// What an update changes. Standard output shows the first records, and with `--json` all.
enum ChangeReport {
    Text {
        lines: Vec<String>,
        more: u64,
    },
    /// A file without a name has the documents, separated by commas. Each is in the file before the
    /// import commits, so a full disk leaves nothing imported.
    Json(File),
}

impl ChangeReport {
    fn new(options: &GlobalOptions, scratch: &Path) -> io::Result<ChangeReport> {
        Ok(match options.json {
            true => ChangeReport::Json(tempfile_in(scratch)?),
            false => ChangeReport::Text { lines: Vec::new(), more: 0 },
        })
    }

    fn add(&mut self, resource: &Resource, change: &ChangedRecord) -> io::Result<()> {
        const SHOWN: usize = 20;
        match self {
            ChangeReport::Text { lines, .. } if lines.len() < SHOWN => {
                lines.push(change.describe(resource));
            }
            ChangeReport::Text { more, .. } => *more += 1,
            ChangeReport::Json(file) => {
                let json = serde_json::to_string(change)?;
                file.write_all(format!(",{}", printable_json(&json)).as_bytes())?;
            }
        }
        Ok(())
    }

    fn print(self, document: Value, text: String) -> anyhow::Result<()> {
        let mut file = match self {
            ChangeReport::Text { lines, more } => {
                let mut lines = iter::once(text).chain(lines).collect::<Vec<_>>();
                if more > 0 {
                    lines.push(format!("… and {} more", words::grouped(more)));
                }
                return print(&lines.join("\n"));
            }
            ChangeReport::Json(file) => file,
        };
        let size = file.metadata()?.len();
        // Without the first comma.
        file.seek(SeekFrom::Start(size.min(1)))?;
        let document = printable_json(&document.to_string());
        let mut stdout = io::stdout().lock();
        write!(stdout, "{},\"changes\":[", document.strip_suffix('}').unwrap_or(&document))
            .and_then(|()| io::copy(&mut file, &mut stdout))
            .and_then(|_| stdout.write_all(b"]}\n"))
            .and_then(|()| stdout.flush())
            .context("cannot write to standard output")
    }
}

/// The document of an import that has stored nothing.
#[derive(Serialize)]
struct Rejected<'a> {
    done: &'static str,
    tenant: &'a str,
    resource: &'static str,
    /// The rest of the file was not read.
    more: bool,
    faults: Vec<RowError>,
}

fn advise_map(options: &GlobalOptions, arguments: &Arguments) {
    const ADVICE: &str = "A map gives other headings their fields. --draft-map makes a draft of it";
    let Arguments { tenant, resource, file, sheet, .. } = arguments;
    let path = file.to_string_lossy();
    if path == "-" {
        return print_stderr(&format!("{ADVICE} from a file."));
    }
    let mut words = vec!["import", tenant, resource.plural, &path, "--draft-map"];
    words.extend(sheet.iter().flat_map(|sheet| ["--sheet", sheet]));
    words.extend(arguments.format.iter().flat_map(|format| ["--format", format.name()]));
    print_stderr(&format!("{ADVICE}: {}", options.command(&words)));
}

fn draft_map(arguments: &Arguments, format: FileFormat) -> anyhow::Result<()> {
    let Arguments { file: path, resource, .. } = arguments;
    let failed = || format!("cannot read {}", path.display());
    let (input, metadata) = open_input(path)?;
    let input = match format {
        FileFormat::Xlsx => read_workbook(arguments, input, &metadata, &env::temp_dir())?,
        FileFormat::Csv | FileFormat::JsonLines => input,
    };
    let mut start = Vec::new();
    let size = input.take(MAX_DRAFTED).read_to_end(&mut start).with_context(failed)?;
    let is_cut = size as u64 == MAX_DRAFTED;
    let map = Map::of_encoding(transfer::guess_encoding(&start));
    let source = InputFile::new(format, Cursor::new(start), &map);
    let draft = transfer::draft(source, &map, resource, is_cut)?;
    print_document(draft.trim_end())
}

#[derive(Debug, Args)]
pub(super) struct ReadWorkbookArguments {
    #[arg(long)]
    sheet: Option<String>,
}

/// The command `read-workbook`, which is not for people. It reads a workbook from standard input, and
/// writes the rows to standard output and the verdict to standard error.
pub(super) fn run_read_workbook(arguments: &ReadWorkbookArguments) -> anyhow::Result<()> {
    workbook::limit_process()?;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let verdict = workbook::write_rows(input, arguments.sheet.as_deref(), output);
    Ok(serde_json::to_writer(io::stderr(), &verdict)?)
}

/// Returns a file with the rows of a workbook.
fn read_workbook(
    arguments: &Arguments,
    input: File,
    metadata: &Metadata,
    scratch: &Path,
) -> anyhow::Result<File> {
    ensure!(metadata.is_file(), "a workbook is not read from a pipe; name its file");
    let sheet = arguments.sheet.iter().map(|name| format!("--sheet={name}"));
    let command: Vec<String> = iter::once("read-workbook".to_owned()).chain(sheet).collect();
    let (rows, note) = workbook::read_apart(&command, input, scratch)?;
    note.iter().for_each(|note| print_stderr(note));
    Ok(rows)
}

/// Opens the file that is imported. `-` is standard input, also if the file behind it belongs to
/// another user.
fn open_input(path: &Path) -> anyhow::Result<(File, Metadata)> {
    let failed = || format!("cannot read {}", path.display());
    let input = if path == Path::new("-") {
        io::stdin().as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::open(path)
    };
    let input = input.map_err(explain).with_context(failed)?;
    let metadata = input.metadata().with_context(failed)?;
    ensure!(!metadata.is_dir(), "{} is a directory", path.display());
    Ok((input, metadata))
}

/// Returns a file with the rows of a workbook, or the file itself. What is no file is copied: an
/// import that waited for a pipe would hold the tenant's lock.
fn read_input(arguments: &Arguments, format: FileFormat, scratch: &Path) -> anyhow::Result<File> {
    let path = &arguments.file;
    let (mut input, metadata) = open_input(path)?;
    if format == FileFormat::Xlsx {
        return read_workbook(arguments, input, &metadata, scratch).map_err(nothing_imported);
    }
    if metadata.is_file() {
        return Ok(input);
    }
    let mut copy = tempfile_in(scratch)?;
    let copied = io::copy(&mut input, &mut copy).and_then(|_| copy.rewind());
    copied.map_err(nothing_imported).with_context(|| format!("cannot copy {}", path.display()))?;
    Ok(copy)
}

const LOCK_FILE: &str = "the file only says that its workbook is open in a spreadsheet program; name \
                         the workbook itself";

/// Whether the file is the one that Excel or LibreOffice makes beside an open workbook.
fn is_lock_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b"~$") || name.starts_with(b".~lock.")
}

/// What is wrong with the name of a file, and what the file is.
fn describe_ending(path: &Path) -> String {
    if is_lock_file(path) {
        return LOCK_FILE.to_owned();
    }
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("ods")) {
        return "an .ods workbook is not read; open it, and save it as .xlsx".to_owned();
    }
    let mut start = Vec::new();
    // A read of a pipe could wait for ever.
    if path.is_file()
        && let Ok(file) = File::open(path)
        && file.take(512).read_to_end(&mut start).is_ok()
        && let Some(kind) = transfer::recognize(&start)
    {
        return format!("{WRONG_ENDING}. {kind}");
    }
    WRONG_ENDING.to_owned()
}

/// Reads the file of `--map`.
fn read_map(arguments: &Arguments) -> anyhow::Result<Map> {
    let Some(path) = &arguments.map else { return Ok(Map::default()) };
    let text = fs::read_to_string(path).map_err(explain);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let map = Map::parse(&text, arguments.resource);
    Ok(map.map_err(|message| UsageError(format!("{}: {message}", path.display())))?)
}

/// Adds a cure to the error of a file that cannot be opened.
fn explain(error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return anyhow!(
            "{error}; the service's user must be able to read the file; or pass the file as \
             standard input: - --format csv < FILE"
        );
    }
    error.into()
}

/// Warns about effects that the operator may not have intended.
fn warn(imported: &Imported) {
    for heading in &imported.absent_headings {
        print_stderr(&format!(
            "warning: the map has the heading {heading:?}, but the file has no such column. \
             Headings are compared exactly."
        ));
    }
    for (key, rows) in &imported.repeated_keys {
        print_stderr(&format!(
            "warning: the {key} of {} stands in a record or in an earlier row, too. Each row is a \
             new record. --update-by {key} changes the existing ones.",
            words::count(*rows, "row")
        ));
    }
    for (column, cells) in &imported.decorated {
        print_stderr(&format!(
            "warning: {} of {column} show other characters around a number, such as \"C-0042\" for \
             42. The import takes the number alone. To keep all, make the cells texts.",
            words::count(*cells, "cell")
        ));
    }
    for (column, places) in &imported.earlier {
        const SHOWN: usize = 20;
        let mut shown: Vec<_> = places.iter().take(SHOWN).map(ToString::to_string).collect();
        if places.len() > SHOWN {
            shown.push(format!("{} more", words::grouped((places.len() - SHOWN) as u64)));
        }
        print_stderr(&format!(
            "warning: {column} is not stored from {}: the record changed twice in the second of \
             \"updated_at\", and had this value first, so the cell counts as not edited. If you \
             have edited it: export again, edit the cell, and empty \"updated_at\" in its row.",
            shown.join(", ")
        ));
    }
    if imported.set_back > 0 {
        print_stderr(&format!(
            "warning: --overwrite takes back {} that others have changed since the export.",
            words::count(imported.set_back, "value")
        ));
    }
    for (field, records) in &imported.numbers {
        print_stderr(&format!(
            "warning: {field} loses leading zeros, a plus sign or digits in {}. Perhaps a \
             spreadsheet has read the column as numbers. Have it read the column as text, or leave \
             the column out.",
            words::count(*records, "record")
        ));
    }
}

/// The result of the import, as a document and as a text.
fn result(import: &Import, tenant: &str, imported: &Imported) -> (Value, String) {
    let Imported { created, changed, unchanged, fields, .. } = imported;
    let (rows, plural) = (created + changed + unchanged, import.resource.plural);
    let counted = format!("{} of {plural}", words::count(rows, "row"));
    let (done, mut text) = match import.dry_run {
        true => ("checked", format!("{counted} can be imported into {tenant}; nothing was stored")),
        false => ("imported", format!("imported {counted} into {tenant}")),
    };
    let mut document = json!({"done": done, "tenant": tenant, "resource": plural, "rows": rows});
    if let (Mode::UpdateBy(_), Some(members)) = (import.mode, document.as_object_mut()) {
        for (name, count) in [("created", created), ("changed", changed), ("unchanged", unchanged)]
        {
            members.insert(name.to_owned(), json!(count));
        }
        members.insert("fields".to_owned(), json!(fields));
        let [created, changed, unchanged] =
            [created, changed, unchanged].map(|n| words::grouped(*n));
        text += &format!(": {created} created, {changed} changed, {unchanged} unchanged");
    }
    // Only an update changes records.
    if *changed > 0 {
        let mut fields: Vec<_> = fields.iter().collect();
        fields.sort_by_key(|(_, count)| Reverse(*count));
        let fields: Vec<String> = fields
            .into_iter()
            .map(|(name, count)| format!("{name} {}", words::grouped(*count)))
            .collect();
        let (records, fields) = (words::count(*changed, "record"), fields.join(", "));
        let verb = if *changed == 1 { "changes" } else { "change" };
        text += &format!("\n{records} {verb}: {fields}");
    }
    (document, text)
}

/// Prints the first errors of each kind when they are found. With `--json` it keeps all errors.
struct ErrorReport {
    bar: ProgressBar,
    /// The first error of each field and code, and how many there are.
    kinds: Vec<(RowError, u64)>,
    /// All errors, for the document of `--json`.
    faults: Option<Vec<RowError>>,
}

impl ErrorReport {
    /// Prints how many faults there are of each kind, unless there is only one of each.
    fn summarize(&self) {
        if self.kinds.iter().all(|(_, count)| *count == 1) {
            return;
        }
        print_stderr("Faults by field and code (--json prints each fault):");
        for (error, count) in &self.kinds {
            let (rows, place) = (words::count(*count, "row"), error.location());
            print_stderr(&format!("  {} {}: {rows}, first in {place}", error.field, error.code));
        }
    }

    fn has_unknown_column(&self) -> bool {
        self.kinds.iter().any(|(error, _)| error.code == "unknown_column")
    }

    fn add(&mut self, error: &RowError) {
        self.faults.iter_mut().for_each(|faults| faults.push(error.clone()));
        if self.count(error) {
            self.bar.suspend(|| print_stderr(&error.to_string()));
        }
    }

    /// Counts an error, and returns whether standard error shows it.
    fn count(&mut self, error: &RowError) -> bool {
        let is_same = |first: &RowError| (&first.field, first.code) == (&error.field, error.code);
        if let Some((_, count)) = self.kinds.iter_mut().find(|(first, _)| is_same(first)) {
            *count += 1;
            return *count <= MAX_SHOWN;
        }
        let is_counted = self.kinds.len() < MAX_KINDS;
        self.kinds.extend(is_counted.then(|| (error.clone(), 1)));
        is_counted
    }
}
