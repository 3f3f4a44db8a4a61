//! `completions` and `manual`: shell completions and manual pages, generated from the declarations
//! of the command line.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use super::GlobalOptions;
use super::output::print_document;

#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    /// The shell that reads them
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct ManualArguments {
    /// Write one page for each command into this directory: tenantdesk-serve.1 and so on
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(super) fn run_completions(
    mut command: Command,
    arguments: &CompletionsArguments,
) -> anyhow::Result<()> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    print_document(String::from_utf8_lossy(&script).trim_end())
}

pub(super) fn run_manual(
    options: &GlobalOptions,
    command: Command,
    arguments: &ManualArguments,
) -> anyhow::Result<()> {
    let Some(directory) = &arguments.output else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).context("cannot write the manual page")?;
        return print_document(String::from_utf8_lossy(&page).trim_end());
    };
    write_pages(command, directory)
        .with_context(|| format!("cannot write to {}", directory.display()))?;
    let directory = directory.display().to_string();
    options.report(
        &json!({"done": "written", "folder": directory}),
        &format!("the manual pages are in {directory}"),
    )
}

/// Writes the pages into a temporary directory inside `directory` and then moves them, so that a
/// failure leaves no partial page.
fn write_pages(command: Command, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let partial = tempfile::Builder::new().prefix(".tenantdesk-").tempdir_in(directory)?;
    clap_mangen::generate_to(command, partial.path())?;
    for entry in fs::read_dir(partial.path())? {
        let entry = entry?;
        fs::rename(entry.path(), directory.join(entry.file_name()))?;
    }
    partial.close()
}
