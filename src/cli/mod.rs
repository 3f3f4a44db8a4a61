//! The command line (contract section 10): one file for each command, or for commands that belong
//! together.
//!
//! Exit codes: 0 success, 1 failure, 2 wrong usage. The last line on standard error says why.

mod backup;
mod changes;
mod doctor;
mod export;
mod health;
mod help;
mod import;
mod key;
mod output;
mod serve;
mod tenant;

use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, anyhow};
use clap::builder::{BoolishValueParser, PossibleValuesParser, Resettable, TypedValueParser};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use rustix::process::geteuid;
use signal_hook::consts::SIGXFSZ;

use crate::files::user_name;
use crate::model::{self, Resource};
use crate::reference::OPENAPI_TEXT;
use crate::store::registry::{Registry, TenantRow};
use crate::store::{OpenError, REGISTRY_FILE, registry, sqlite_version};
use crate::words::without_error_numbers;

/// Customers, employees and hardware behind a JSON API: one binary, one SQLite file per tenant.
#[derive(Debug, Parser)]
#[command(name = "tenantdesk", max_term_width = 100, disable_help_subcommand = true)]
struct Arguments {
    #[command(flatten)]
    options: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

/// The data directory, unless an option or a variable names one.
const DATA_DIR: &str = "data";

/// The options of every command.
#[derive(Debug, Args)]
struct GlobalOptions {
    /// The directory of the databases
    #[arg(
        long,
        global = true,
        env = "TENANTDESK_DATA_DIR",
        default_value = DATA_DIR,
        value_name = "DIR"
    )]
    data_dir: PathBuf,
    /// Print one JSON document, for scripts
    #[arg(long, global = true, env = "TENANTDESK_JSON", value_parser = BoolishValueParser::new())]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(Box<serve::Arguments>),
    /// Create, list, rename, suspend and delete tenants
    #[command(subcommand)]
    Tenant(tenant::Command),
    /// Create, list, change, replace, revoke and delete API keys
    #[command(subcommand)]
    Key(key::Command),
    /// Import records from a workbook, a CSV or a JSON Lines file, all of them or none
    Import(import::Arguments),
    /// Print the fields of a resource, which are the columns of its files
    Fields(export::FieldsArguments),
    /// Export all records as CSV, JSON Lines or a workbook
    Export(export::ExportArguments),
    /// Print the newest entries of a tenant's change log: what was changed, when and by whom
    Changes(changes::ChangesArguments),
    /// Take changes of records back: all since a time, those of a key, an import or another undo
    Undo(changes::UndoArguments),
    /// Copy all tenants, or one, into a new directory in DIR, also while the server runs
    Backup(backup::BackupArguments),
    /// Restore a backup, whole or one tenant
    Restore(backup::RestoreArguments),
    /// Examine every database: integrity, foreign keys, schema version
    Check,
    /// Diagnose the installation; exit code 1 if there is a fault
    Doctor(doctor::Arguments),
    /// Ask a running server whether it is ready; exit code 1 if it is not
    Health(health::Arguments),
    /// Print the OpenAPI document of the API
    Openapi,
}

/// Wrong usage that clap does not detect: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// Parses the command line of this process, runs the command, and returns the exit code.
pub fn main() -> ExitCode {
    let arguments = Arguments::from_arg_matches(&command().get_matches());
    match arguments.map_err(anyhow::Error::from).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output, such as `head`, has read enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::FAILURE,
        Err(error) => {
            let mut reason = reason(&error);
            if is_denied(&error) {
                reason = format!("{reason} to the user {}", user_name(geteuid().as_raw()));
            }
            output::print_stderr(&format!("error: {reason}"));
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

/// An empty variable counts as unset.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|argument| {
        if argument.get_env().is_some_and(is_empty) {
            argument.env(Resettable::Reset)
        } else {
            argument
        }
    });
    command.mut_subcommands(without_empty_variables)
}

/// The variables that look like options and are none, such as a misspelt
/// `TENANTDESK_TRUSTED_PROXIES`. Those of the example clients do not count.
fn unknown_variables() -> Vec<String> {
    const OF_CLIENTS: [&str; 4] =
        ["TENANTDESK_URL", "TENANTDESK_KEY", "TENANTDESK_TENANT", "TENANTDESK_WAIT"];
    let declared = Arguments::command();
    let of_commands = declared.get_subcommands().flat_map(clap::Command::get_arguments);
    let arguments = declared.get_arguments().chain(of_commands);
    let known: Vec<&OsStr> = arguments.filter_map(clap::Arg::get_env).collect();
    let mut unknown: Vec<String> =
        env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    unknown.retain(|name| {
        name.starts_with("TENANTDESK_")
            && !known.contains(&OsStr::new(name))
            && !OF_CLIENTS.contains(&name.as_str())
    });
    unknown.sort();
    unknown
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_closed = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(is_closed)
}

/// Whether the last cause is that the system refuses access to a file.
fn is_denied(error: &anyhow::Error) -> bool {
    let cause: Option<&io::Error> = error.root_cause().downcast_ref();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
}

/// The declaration of the command line, with the examples of every command.
pub fn command() -> clap::Command {
    const START: &str = "Examples:\n  tenantdesk serve --create-tenant demo\n\n\
        Exit codes: 0 success; 1 failure, with the reason on the last line of standard error; \
        2 wrong usage.";
    let root = Arguments::command().version(VERSION.as_str()).after_help(START);
    without_empty_variables(help::add_examples(root, "tenantdesk"))
}

/// The text of `--version`. `build.rs` finds the commit.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("TENANTDESK_COMMIT").map(|commit| format!("commit {commit}, "));
    format!(
        "{} ({}SQLite {})",
        env!("CARGO_PKG_VERSION"),
        commit.unwrap_or_default(),
        sqlite_version()
    )
});

/// The error and its causes on one line. A cause that an earlier message contains is left out, and
/// so are the system's numbers of errors.
fn reason(error: &anyhow::Error) -> String {
    let mut reason = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if reason.is_empty() {
            reason = cause;
        } else if !reason.contains(&cause) {
            reason = format!("{reason}: {cause}");
        }
    }
    without_error_numbers(&reason).replace('\n', " ")
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    // With a handler of SIGXFSZ, a write beyond the limit of `ulimit -f` returns an error, and the
    // command can clean up.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))
        .context("cannot handle signals")?;
    let options = &arguments.options;
    match arguments.command {
        Command::Serve(arguments) => serve::run(options, &arguments),
        Command::Tenant(command) => tenant::run(options, command),
        Command::Key(command) => key::run(options, command),
        Command::Import(arguments) => import::run(options, &arguments),
        Command::Fields(arguments) => export::run_fields(options, &arguments),
        Command::Export(arguments) => export::run_export(options, &arguments),
        Command::Changes(arguments) => changes::run_changes(options, &arguments),
        Command::Undo(arguments) => changes::run_undo(options, &arguments),
        Command::Backup(arguments) => backup::run_backup(options, &arguments),
        Command::Restore(arguments) => backup::run_restore(options, &arguments),
        Command::Check => doctor::run_check(options),
        Command::Doctor(arguments) => doctor::run(options, &arguments),
        Command::Health(arguments) => health::run(options, &arguments),
        Command::Openapi => output::print_document(OPENAPI_TEXT.trim_end()),
    }
}

impl GlobalOptions {
    /// A command line of this program that works in the shell in which this command runs.
    fn command(&self, words: &[&str]) -> String {
        let mut line = "tenantdesk".to_owned();
        let data_dir = self.data_dir.to_string_lossy();
        let is_default = env::var_os("TENANTDESK_DATA_DIR")
            .map_or(*data_dir == *DATA_DIR, |named| self.data_dir == *named);
        let option = ["--data-dir", &data_dir];
        for word in option.iter().filter(|_| !is_default).chain(words) {
            line = format!("{line} {}", shell_word(word));
        }
        line
    }

    /// Opens the registry of an existing data directory.
    fn open_registry(&self) -> anyhow::Result<Registry> {
        Registry::open(&self.data_dir).map_err(|error| self.explain(error))
    }

    /// Converts an error of the registry. A missing registry means that the directory is no data
    /// directory.
    fn explain(&self, error: OpenError) -> anyhow::Error {
        let directory = self.data_dir.display();
        let registry = self.data_dir.join(REGISTRY_FILE);
        if !matches!(error, OpenError::OtherOwner { .. })
            && let Err(error) = registry.symlink_metadata()
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            return anyhow::Error::new(error).context(format!("cannot read {directory}"));
        }
        if !matches!(&error, OpenError::Missing(path) if *path == registry) {
            return error.into();
        }
        anyhow!(
            "{directory} is no data directory (it has no {REGISTRY_FILE}; is its disk mounted?); \
             --data-dir or TENANTDESK_DATA_DIR names another; \"serve\", \"tenant create\" and \
             \"restore\" make one"
        )
    }
}

/// Opens the registry and finds a tenant in it.
fn open_tenant(options: &GlobalOptions, name: &str) -> anyhow::Result<(Registry, TenantRow)> {
    let registry = options.open_registry()?;
    let tenant = find_tenant(&registry, name)?;
    Ok((registry, tenant))
}

/// A word as a shell reads it.
fn shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=+,@".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn find_tenant(registry: &Registry, name: &str) -> anyhow::Result<TenantRow> {
    registry.find_tenant(name)?.ok_or_else(|| registry.unknown_tenant(name).into())
}

/// Parses the name of a new tenant.
fn tenant_name(text: &str) -> Result<String, &'static str> {
    registry::check_tenant_name(text).map(|()| text.to_owned())
}

/// Parses the plural name of a resource.
fn resource() -> impl TypedValueParser<Value = &'static Resource> {
    let names = model::ALL.map(|resource| resource.plural);
    PossibleValuesParser::new(names)
        .try_map(|plural| Resource::find(&plural).ok_or("there is no such resource"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_reason_is_one_line_without_repetition() {
        let error = anyhow!("no\ndisk").context("cannot write: no\ndisk").context("it failed");
        assert_eq!(reason(&error), "it failed: cannot write: no disk");
        let error = anyhow::Error::new(io::Error::from_raw_os_error(32)).context("cannot write");
        assert_eq!(reason(&error), "cannot write: Broken pipe");
    }
}
