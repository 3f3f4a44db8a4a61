//! The command line (contract section 10): one file for each command, or for commands that belong
//! together.
//!
//! Exit codes: 0 success, 1 failure, 2 wrong usage. The last line on standard error says why.

mod backup;
mod changes;
mod doctor;
mod export;
mod health;
mod import;
mod key;
mod options;
mod serve;
mod tenant;

use std::env;
use std::ffi::OsStr;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use anyhow::Context as _;
use clap::builder::Resettable;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use options::{GlobalOptions, UsageError, print_document, print_stderr, reason};
use rustix::process::geteuid;
use signal_hook::consts::SIGXFSZ;

use crate::files::user_name;
use crate::reference::OPENAPI_TEXT;
use crate::store::sqlite_version;

/// Customers, employees and hardware behind a JSON API: one binary, one SQLite file per tenant.
#[derive(Debug, Parser)]
#[command(name = "tenantdesk", max_term_width = 100, disable_help_subcommand = true)]
struct Arguments {
    #[command(flatten)]
    options: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(Box<serve::ServeArguments>),
    /// Create, list, rename, suspend and delete tenants
    #[command(subcommand)]
    Tenant(tenant::TenantCommand),
    /// Create, list, change, replace, revoke and delete API keys
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Import records from a workbook, a CSV or a JSON Lines file, all of them or none
    Import(import::Arguments),
    #[command(hide = true)]
    ReadWorkbook(import::ReadWorkbookArguments),
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
    Doctor(doctor::DoctorArguments),
    /// Ask a running server whether it is ready; exit code 1 if it is not
    Health(health::HealthArguments),
    /// Print the OpenAPI document of the API
    Openapi,
}

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
            print_stderr(&format!("error: {reason}"));
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
    without_empty_variables(add_examples(root, "tenantdesk"))
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

fn run(arguments: Arguments) -> anyhow::Result<()> {
    // With a handler of SIGXFSZ, a write beyond the limit of `ulimit -f` returns an error, and the
    // command can clean up.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))
        .context("cannot handle signals")?;
    let options = &arguments.options;
    match arguments.command {
        Command::Serve(arguments) => serve::run(options, &arguments, &unknown_variables()),
        Command::Tenant(command) => tenant::run(options, command),
        Command::Key(command) => key::run(options, command),
        Command::Import(arguments) => import::run(options, &arguments),
        Command::ReadWorkbook(arguments) => import::run_read_workbook(&arguments),
        Command::Fields(arguments) => export::run_fields(options, &arguments),
        Command::Export(arguments) => export::run_export(options, &arguments),
        Command::Changes(arguments) => changes::run_changes(options, &arguments),
        Command::Undo(arguments) => changes::run_undo(options, &arguments),
        Command::Backup(arguments) => backup::run_backup(options, &arguments),
        Command::Restore(arguments) => backup::run_restore(options, &arguments),
        Command::Check => doctor::run_check(options),
        Command::Doctor(arguments) => doctor::run(options, &arguments, &unknown_variables()),
        Command::Health(arguments) => health::run(options, &arguments),
        Command::Openapi => print_document(OPENAPI_TEXT.trim_end()),
    }
}

/// The examples of all commands, which a test finds complete. A group such as `tenant` shows the
/// examples of its commands.
const EXAMPLES: &[&str] = &[
    "tenantdesk serve --create-tenant demo",
    "tenantdesk serve --listen 0.0.0.0:8443 --tls-cert chain.pem --tls-key key.pem",
    "tenantdesk serve --trusted-proxy 10.0.0.5 --log-format json --metrics-listen 127.0.0.1:9180",
    "tenantdesk tenant create acme --trial-until 2027-01-31",
    "tenantdesk tenant list --json",
    "tenantdesk tenant rename acme acme-berlin",
    "tenantdesk tenant suspend acme",
    "tenantdesk tenant activate acme",
    "tenantdesk tenant trial acme 2027-01-31",
    "tenantdesk tenant password acme --stdin < password.txt",
    "tenantdesk tenant delete acme --yes",
    "tenantdesk key create acme --name sync --scope customers:read --scope customers:write",
    "tenantdesk key create acme --name audit --scope read --expires 30d --rate-limit 1000",
    "KEY=$(tenantdesk key create acme --name script --scope all)",
    "tenantdesk key list acme --json",
    "tenantdesk key replace acme 7 --overlap 7d",
    "tenantdesk key limit acme 7 1000",
    "tenantdesk key limit acme 7 default",
    "tenantdesk key rename acme 7 web-shop",
    "tenantdesk key expire acme 7 2027-12-31",
    "tenantdesk key revoke acme 7",
    "tenantdesk key delete acme 7",
    "tenantdesk import acme customers customers.csv --dry-run",
    "tenantdesk import acme hardware inventory.xlsx --sheet Devices",
    "tenantdesk import acme customers customers.csv --update-by customer_number",
    "tenantdesk import acme hardware hardware.jsonl --keep-ids",
    "tenantdesk import acme customers customers.csv --draft-map > german.toml",
    "tenantdesk import acme customers customers.csv --map german.toml --dry-run",
    "tenantdesk fields hardware",
    "tenantdesk fields hardware --csv > hardware.csv",
    "tenantdesk export acme customers > customers.csv",
    "tenantdesk export acme hardware --names --output hardware.xlsx",
    "tenantdesk changes acme --resource customers --id 7 --last 10 --json",
    "tenantdesk changes acme --runs --since 2026-11-28",
    "tenantdesk undo acme --key office --since 14:00 --until 15:00 --dry-run",
    "tenantdesk undo acme --since 2026-11-20T14:00:00Z",
    "tenantdesk undo acme --request 6f1c3a52-6a0d-4d0c-9a53-2f1c1f0b8e77",
    "tenantdesk backup /var/lib/tenantdesk-backups --keep 14",
    "tenantdesk backup /var/lib/tenantdesk-backups acme",
    "tenantdesk restore /var/lib/tenantdesk-backups",
    "tenantdesk restore /var/lib/tenantdesk-backups acme --force",
    "tenantdesk restore /var/lib/tenantdesk-backups/2026-11-20T19-30-00Z acme --as acme-berlin",
    "tenantdesk check --json",
    "tenantdesk doctor --data-dir /var/lib/tenantdesk --backups /var/lib/tenantdesk-backups",
    "tenantdesk health http://127.0.0.1:8080",
    "tenantdesk openapi > openapi.json",
];

/// Appends the examples to the help of every command below `command`, whose path is `path`.
fn add_examples(command: clap::Command, path: &str) -> clap::Command {
    command.mut_subcommands(|child| {
        let path = format!("{path} {}", child.get_name());
        let text = format!("Examples:\n  {}", examples_of(&path).join("\n  "));
        add_examples(child, &path).after_help(text)
    })
}

fn examples_of(path: &str) -> Vec<&'static str> {
    let start = format!("{path} ");
    EXAMPLES.iter().copied().filter(|call| format!("{call} ").contains(&start)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_is_consistent() {
        command().debug_assert();
    }

    /// `command` and all commands below it, each with its path.
    fn commands(command: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
        let mut found = vec![(path.to_owned(), command.clone())];
        for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
            found.extend(commands(child, &format!("{path} {}", child.get_name())));
        }
        found
    }

    #[test]
    fn every_command_has_valid_examples() {
        for (path, _) in commands(&Arguments::command(), "tenantdesk") {
            let calls = examples_of(&path);
            assert!(!calls.is_empty(), "none for {path:?}");
            for call in calls {
                let start = call.find("tenantdesk ").unwrap();
                let words =
                    call[start..].split(['<', '>', '|', ')']).next().unwrap().split_whitespace();
                let parsed = Arguments::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{call}: {}", parsed.unwrap_err());
            }
        }
    }
}
