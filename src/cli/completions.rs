//! `completions` and `manual`: what a shell and `man` know of the command line, made from its own declarations.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;
use uuid::Uuid;

use super::General;
use super::output::{print, print_json};
use crate::new_folders::NewFolders;

#[derive(Debug, Args)]
pub struct Completions {
    /// Whose completions
    shell: Shell,
}

#[derive(Debug, Args)]
pub struct Manual {
    /// Write a page for each command into this folder, tenantdesk-serve.1 and so on
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub fn complete(mut grammar: Command, arguments: &Completions) -> anyhow::Result<()> {
    let name = grammar.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut grammar, name, &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}

pub fn manual(general: &General, grammar: Command, arguments: &Manual) -> anyhow::Result<()> {
    let Some(folder) = &arguments.output else {
        let mut page = Vec::new();
        clap_mangen::Man::new(grammar).render(&mut page).context("cannot write the manual page")?;
        return print(String::from_utf8_lossy(&page).trim_end());
    };
    write_pages(grammar, folder).with_context(|| format!("cannot write to {}", folder.display()))?;
    if general.json {
        return print_json(&json!({"done": "written", "folder": folder.display().to_string()}));
    }
    print(&format!("the manual pages are in {}", folder.display()))
}

/// Writes the pages into a new folder inside `folder` and moves them from there: a failure leaves no page that is cut short.
fn write_pages(grammar: Command, folder: &Path) -> io::Result<()> {
    let _made = NewFolders::make(folder, 0o777)?;
    let partial = folder.join(format!(".tenantdesk-{}.partial", Uuid::new_v4()));
    fs::create_dir(&partial)?;
    let written = clap_mangen::generate_to(grammar, &partial).and_then(|()| move_all(&partial, folder));
    let removed = fs::remove_dir_all(&partial);
    written.and(removed)
}

fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
