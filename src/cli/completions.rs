//! `completions` and `manual`: what a shell and `man` know of the command line, made from its own declarations.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use super::General;
use super::output::{print, print_json};

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
    let at = || format!("cannot write to {}", folder.display());
    fs::create_dir_all(folder).with_context(at)?;
    clap_mangen::generate_to(grammar, folder).with_context(at)?;
    if general.json {
        return print_json(&json!({"done": "written", "folder": folder.display().to_string()}));
    }
    print(&format!("the manual pages are in {}", folder.display()))
}
