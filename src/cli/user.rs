//! The user of a command (contract section 10). Root runs it as the owner of the data directory,
//! because the service could not open a file that root creates.

use std::env;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};
use rustix::process::geteuid;

use super::GlobalOptions;
use crate::files::user_name;
use crate::store::{OpenError, REGISTRY_FILE};

/// The data directory and the settings of the service that the package installs
/// (examples/systemd).
const SERVICE_DIR: &str = "/var/lib/tenantdesk";
const SERVICE_SETTINGS: &str = "/etc/tenantdesk.env";

/// If root has started this command, runs it anew as the owner of the data directory, and does not
/// return. If root names no data directory, it is the one of the service.
///
/// `creates` says that the command may create a data directory for a user who names none.
pub(super) fn become_owner(
    options: &GlobalOptions,
    is_named: bool,
    creates: bool,
) -> anyhow::Result<()> {
    let is_for_service = !is_named && Path::new(SERVICE_DIR).is_dir();
    if !geteuid().is_root() {
        if is_for_service && !creates && !options.data_dir.join(REGISTRY_FILE).exists() {
            bail!("there is no data directory here; for the service's, {}", with_sudo());
        }
        return Ok(());
    }
    let mut words = env::args_os();
    // The path of the program may lie in a directory of root.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(words.next().unwrap_or_default()).args(words);
    let mut data_dir = options.data_dir.clone();
    if is_for_service {
        data_dir = SERVICE_DIR.into();
        for (name, value) in service_settings()? {
            if name == "TENANTDESK_DATA_DIR" {
                data_dir = value.into();
            } else if env::var_os(&name).is_none() {
                command.env(name, value);
            }
        }
        command.env("TENANTDESK_DATA_DIR", &data_dir);
    }
    // Nobody owns a path that cannot be looked up. The command reports it.
    let (user, group) = owner(&data_dir).unwrap_or_default();
    if user == 0 && !is_for_service {
        return Ok(());
    }
    let error = command.uid(user).gid(group).exec();
    Err(anyhow!("cannot run as {}, who owns {}: {error}", user_name(user), data_dir.display()))
}

/// The user and the group that the service has. A container's volume may belong to root, and let
/// the service in by its group. Then the registry in it decides. If there is no directory, the one
/// above decides.
fn owner(data_dir: &Path) -> io::Result<(u32, u32)> {
    for path in data_dir.ancestors() {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let directory = match fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            found => found?,
        };
        let registry = fs::symlink_metadata(path.join(REGISTRY_FILE));
        return Ok(match registry {
            Ok(registry) if directory.uid() == 0 => (registry.uid(), directory.gid()),
            _ => (directory.uid(), directory.gid()),
        });
    }
    Err(ErrorKind::NotFound.into())
}

/// The settings of the service: lines such as `TENANTDESK_RATE_LIMIT=200`, as systemd reads them. An
/// empty variable counts as unset.
fn service_settings() -> anyhow::Result<Vec<(String, String)>> {
    let text = match fs::read_to_string(SERVICE_SETTINGS) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("cannot read {SERVICE_SETTINGS}"))?,
    };
    let mut settings = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("TENANTDESK_")
            && let Some((name, value)) = line.split_once('=')
        {
            let value = value.trim_matches(['"', '\'', ' ']);
            if !value.is_empty() {
                settings.push((name.trim().to_owned(), value.to_owned()));
            }
        }
    }
    Ok(settings)
}

/// If the data directory belongs to another user: the command to run in place of this one.
pub(super) fn advice(error: &anyhow::Error) -> Option<String> {
    for cause in error.chain() {
        if let Some(OpenError::OtherOwner { .. }) = cause.downcast_ref() {
            return Some(with_sudo());
        }
    }
    None
}

/// `run: sudo tenantdesk …`: this command with `sudo`.
fn with_sudo() -> String {
    let mut words = vec!["sudo".to_owned()];
    words.extend(env::args_os().map(|word| word.to_string_lossy().into_owned()));
    // sudo drops the variable.
    if let Ok(data_dir) = env::var("TENANTDESK_DATA_DIR")
        && !data_dir.is_empty()
        && !words.iter().any(|word| word.starts_with("--data-dir"))
    {
        words.extend(["--data-dir".to_owned(), data_dir]);
    }
    let quoted: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    format!("run: {}", quoted.join(" "))
}

/// A word as a shell reads it.
fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_was() {
        for (word, expected) in
            [("a-b=/c.d", "a-b=/c.d"), ("", "''"), ("#7", "'#7'"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(shell_word(word), expected);
        }
    }
}
