//! The command line (contract section 10): one file for each command.
//!
//! Exit codes: 0 done, 1 it failed, 2 wrong usage. The last line on standard error says why.

mod backup;
mod check;
mod completions;
mod doctor;
mod examples;
mod export;
mod import;
mod key;
mod logging;
mod openapi;
mod output;
mod prompt;
mod restore;
mod serve;
mod supervisor;
mod tenant;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, anyhow};
use clap::builder::BoolishValueParser;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use signal_hook::consts::SIGXFSZ;

use crate::clock::Clock;
use crate::model::{self, Resource};
use crate::store::registry::{Registry, TenantRow};
use crate::store::{OpenError, registry};

/// Customers, employees and hardware behind a JSON API: one binary, one SQLite file per tenant.
#[derive(Debug, Parser)]
#[command(name = "tenantdesk", version, max_term_width = 100, disable_help_subcommand = true)]
struct Arguments {
    #[command(flatten)]
    general: General,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
struct General {
    /// Where the databases lie
    #[arg(long, global = true, env = "TENANTDESK_DATA_DIR", default_value = "data", value_name = "DIR")]
    data_dir: PathBuf,
    /// Print one JSON document, for scripts
    #[arg(long, global = true, env = "TENANTDESK_JSON", value_parser = BoolishValueParser::new())]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(Box<serve::Options>),
    /// Make, list, suspend and delete tenants
    #[command(subcommand)]
    Tenant(tenant::Command),
    /// Make, list, revoke and delete API keys
    #[command(subcommand)]
    Key(key::Command),
    /// Read records from a CSV or JSON Lines file, all of them or none
    Import(import::Arguments),
    /// Write all records as CSV or JSON Lines
    Export(export::Arguments),
    /// Copy all tenants, or one, into a new folder in DIR, also while the server runs
    Backup(backup::Arguments),
    /// Bring back a backup, whole or one tenant
    Restore(restore::Arguments),
    /// Examine every database: integrity, foreign keys, schema version
    Check,
    /// Look at everything that an operator would look at first; exit code 1 where something is wrong
    Doctor(doctor::Arguments),
    /// Print the OpenAPI document of the interface
    Openapi,
    /// Print completions for a shell
    Completions(completions::Completions),
    /// Print the manual page, or write a page for each command
    Manual(completions::Manual),
}

/// How a command was called wrongly, beyond what its grammar says: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WrongUsage(&'static str);

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let given = grammar().try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match given {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors. Where they cannot be printed, nothing else can.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", reason(&error));
            ExitCode::from(if error.is::<WrongUsage>() { 2 } else { 1 })
        }
    }
}

/// The whole command line, with the examples of every command.
fn grammar() -> clap::Command {
    examples::add(Arguments::command())
}

/// The error and its causes in one line, each said once: many say their cause themselves.
fn reason(error: &anyhow::Error) -> String {
    let mut reason = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if reason.is_empty() {
            reason = cause;
        } else if !reason.contains(&cause) {
            reason = format!("{reason}: {cause}");
        }
    }
    reason.replace('\n', " ")
}

/// A write beyond the limit of `ulimit -f` then fails like one on a full disk, so that the command can clean up.
fn survive_a_file_size_limit() -> anyhow::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).context("cannot handle signals")?;
    Ok(())
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    survive_a_file_size_limit()?;
    let general = &arguments.general;
    match arguments.command {
        Command::Serve(options) => serve::run(general, *options),
        Command::Tenant(command) => tenant::run(general, command),
        Command::Key(command) => key::run(general, command),
        Command::Import(arguments) => import::run(general, &arguments),
        Command::Export(arguments) => export::run(general, &arguments),
        Command::Backup(arguments) => backup::run(general, &arguments),
        Command::Restore(arguments) => restore::run(general, &arguments),
        Command::Check => check::run(general),
        Command::Doctor(arguments) => doctor::run(general, &arguments),
        Command::Openapi => openapi::run(general),
        Command::Completions(arguments) => completions::complete(grammar(), &arguments),
        Command::Manual(arguments) => completions::manual(general, grammar(), &arguments),
    }
}

impl General {
    fn clock(&self) -> Clock {
        Clock::system()
    }

    /// The registry of a data directory that is there.
    fn open_registry(&self) -> anyhow::Result<Registry> {
        Registry::open(&self.data_dir).map_err(|error| self.explain(error))
    }

    /// Where there is no registry, this is no data directory.
    fn explain(&self, error: OpenError) -> anyhow::Error {
        match error {
            OpenError::Missing(path) if path.ends_with(registry::FILE) => anyhow!(
                "{} is no data directory (it has no {}); \"serve\", \"tenant create\" and \"restore\" make one",
                self.data_dir.display(),
                registry::FILE
            ),
            other => other.into(),
        }
    }
}

fn find_tenant(registry: &Registry, name: &str) -> anyhow::Result<TenantRow> {
    registry.find_tenant(name)?.ok_or_else(|| anyhow!("there is no tenant {name}"))
}

/// A new tenant's name, for the grammar.
fn tenant_name(text: &str) -> Result<String, &'static str> {
    registry::check_tenant_name(text).map(|()| text.to_owned())
}

/// A resource, for the grammar.
fn resource(plural: &str) -> Result<&'static Resource, String> {
    Resource::find(plural).ok_or_else(|| {
        let names: Vec<&str> = model::ALL.iter().map(|resource| resource.plural).collect();
        format!("there is no such resource; there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        grammar().debug_assert();
    }

    #[test]
    fn the_reason_is_one_line_that_says_each_cause_once() {
        let error = anyhow!("no\ndisk").context("cannot write: no\ndisk").context("it failed");
        assert_eq!(reason(&error), "it failed: cannot write: no disk");
    }
}
