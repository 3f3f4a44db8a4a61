//! Writes the manual pages and the shells' completions of a release into a directory.
//!
//!     cargo run --example pages -- DIRECTORY

use std::path::PathBuf;
use std::{env, fs, io};

use clap_complete::Shell;
use tenantdesk::cli;

fn main() -> io::Result<()> {
    let directory = env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.ok_or_else(|| io::Error::other("usage: pages DIRECTORY"))?;
    let pages = directory.join("man");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(cli::command(), pages)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let scripts = directory.join("completions").join(shell.to_string());
        fs::create_dir_all(&scripts)?;
        clap_complete::generate_to(shell, &mut cli::command(), "tenantdesk", scripts)?;
    }
    Ok(())
}
