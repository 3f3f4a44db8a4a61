//! The options that all commands have, and what the commands share: finding a tenant, and printing
//! results.

use std::env;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};
use comfy_table::{Table, presets};
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::Value;

use crate::clock::{Clock, first_second, last_second, local_second};
use crate::config::{duration, whole};
use crate::model::{self, KeyId, Resource};
use crate::store::registry::{self, Registry, TenantRow};
use crate::store::{REGISTRY_FILE, StoreCode, StoreError};
use crate::words::{printable, printable_json, without_error_numbers};

/// The data directory, unless an option or a variable names one.
const DATA_DIR: &str = "data";

/// The options of every command.
#[derive(Debug, Args)]
pub(super) struct GlobalOptions {
    /// The directory of the databases
    #[arg(
        long,
        global = true,
        env = "TENANTDESK_DATA_DIR",
        default_value = DATA_DIR,
        value_name = "DIR"
    )]
    pub(super) data_dir: PathBuf,
    /// Print one JSON document, for scripts
    #[arg(long, global = true, env = "TENANTDESK_JSON", value_parser = BoolishValueParser::new())]
    pub(super) json: bool,
}

/// Wrong usage that clap does not detect: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UsageError(pub(super) String);

impl GlobalOptions {
    /// A command line of this program that works in the shell in which this command runs.
    pub(super) fn command(&self, words: &[&str]) -> String {
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

    pub(super) fn open_registry(&self) -> anyhow::Result<Registry> {
        Registry::open(&self.data_dir).map_err(|error| self.explain(error))
    }

    /// Converts an error of the registry. A missing registry means that the directory is no data
    /// directory.
    pub(super) fn explain(&self, error: StoreError) -> anyhow::Error {
        let directory = self.data_dir.display();
        let registry = self.data_dir.join(REGISTRY_FILE);
        if error.code != StoreCode::OtherOwner
            && let Err(error) = registry.symlink_metadata()
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            return anyhow::Error::new(error).context(format!("cannot read {directory}"));
        }
        if error.code != StoreCode::Missing {
            return error.into();
        }
        anyhow!(
            "{directory} is no data directory (it has no {REGISTRY_FILE}; is its disk mounted?); \
             --data-dir or TENANTDESK_DATA_DIR names another; \"serve\", \"tenant create\" and \
             \"restore\" make one"
        )
    }

    /// Prints what a command did: with `--json` the document, else the text.
    pub(super) fn report(&self, document: &Value, text: &str) -> anyhow::Result<()> {
        if self.json { print_json(document) } else { print(text) }
    }

    /// Prints a list: with `--json` the whole documents, else a table of these members.
    pub(super) fn list(&self, documents: &Value, members: &[&str]) -> anyhow::Result<()> {
        if self.json { print_json(documents) } else { print_table(documents, members, true) }
    }
}

/// Prints a list, or a part of it. The first part has a heading.
pub(super) fn print_table(
    documents: &Value,
    members: &[&str],
    has_heading: bool,
) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if has_heading {
        let heading = members.iter().map(|member| member.replace('_', " ").to_uppercase());
        table.set_header(heading);
    }
    for document in documents.as_array().into_iter().flatten() {
        table.add_row(members.iter().map(|member| printable(&cell(&document[*member]))));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    print_document(&table.trim_fmt())
}

pub(super) fn open_tenant(
    options: &GlobalOptions,
    name: &str,
) -> anyhow::Result<(Registry, TenantRow)> {
    let registry = options.open_registry()?;
    let tenant = find_tenant(&registry, name)?;
    Ok((registry, tenant))
}

/// A TIME of a command line.
#[derive(Clone, Debug)]
pub(super) struct Time {
    /// The second in UTC, in the form of stored timestamps.
    pub(super) utc: String,
    /// The text, if it was a local time.
    local: Option<String>,
}

impl Time {
    /// A date stands for its first second in UTC.
    pub(super) fn first(text: &str) -> Result<Time, &'static str> {
        Time::parse(text, first_second)
    }

    /// A date stands for its last second in UTC.
    pub(super) fn last(text: &str) -> Result<Time, &'static str> {
        Time::parse(text, last_second)
    }

    fn parse(text: &str, parse: fn(&str) -> Option<String>) -> Result<Time, &'static str> {
        if let Some(utc) = parse(text) {
            return Ok(Time { utc, local: None });
        }
        let now = Clock::system().now();
        if let Some(time) = local_second(text, now, &TimeZone::system()) {
            return Ok(Time { utc: time.to_string(), local: Some(text.to_owned()) });
        }
        let before = duration(text).and_then(|span| now.after(-span));
        before.map(|time| Time { utc: time.to_string(), local: None }).ok_or(
            "not a date such as 2026-12-31, a timestamp such as 2026-12-31T19:30:00Z, a local time \
             such as \"2026-12-31 20:30\" or 20:30, or a time before now such as 2h",
        )
    }

    /// The second, after standard error has shown what a local time is in UTC.
    pub(super) fn announce(&self) -> String {
        if let Some(local) = &self.local {
            print_stderr(&format!("{local} is {}", self.utc));
        }
        self.utc.clone()
    }
}

/// The key that `--key` means: digits are its number, other text its name.
pub(super) fn find_key(
    registry: &Registry,
    tenant: &TenantRow,
    given: &str,
) -> anyhow::Result<KeyId> {
    if given.bytes().all(|byte| byte.is_ascii_digit()) {
        let id = whole(given).map(KeyId);
        return id
            .ok_or_else(|| UsageError(format!("{given:?} is not the number of a key")).into());
    }
    let keys = registry.list_keys(tenant.id)?;
    let named: Vec<KeyId> =
        keys.into_iter().filter(|key| key.name == given).map(|key| key.id).collect();
    match named.as_slice() {
        [id] => Ok(*id),
        [] => {
            let events = registry.admin_changes(tenant.id, registry::EVENTS_KEPT)?;
            let mut labels = events.into_iter().filter_map(|event| event.key);
            let former = labels.find(|label| label.name == given).map(|label| label.id);
            let hint = former.map(|id| format!("key {id} had this name: use the number {id}"));
            let hint = hint.unwrap_or_else(|| "\"key list\" shows the keys".to_owned());
            bail!("{} has no key named {given:?}; {hint}", tenant.name)
        }
        several => {
            let ids: Vec<String> = several.iter().map(ToString::to_string).collect();
            let ids = ids.join(", ");
            bail!("several keys are named {given:?}; use the number of one: {ids}")
        }
    }
}

fn shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=+,@".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

pub(super) fn find_tenant(registry: &Registry, name: &str) -> anyhow::Result<TenantRow> {
    registry.find_tenant(name)?.ok_or_else(|| registry.unknown_tenant(name).into())
}

pub(super) fn tenant_name(text: &str) -> Result<String, &'static str> {
    registry::check_tenant_name(text).map(|()| text.to_owned())
}

pub(super) fn resource() -> impl TypedValueParser<Value = &'static Resource> {
    let names = model::ALL.map(|resource| resource.plural);
    PossibleValuesParser::new(names)
        .try_map(|plural| Resource::find(&plural).ok_or("there is no such resource"))
}

/// A value in a table. An array or an object is what it contains.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Object(members) => members.values().map(cell).collect::<Vec<_>>().join(" "),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Prints lines of text to standard output.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let lines: Vec<String> = text.lines().map(printable).collect();
    print_document(&lines.join("\n"))
}

/// Prints a document as it is, and a line end, to standard output.
pub(super) fn print_document(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}

/// Prints a document as JSON. Its texts may come from strangers.
pub(super) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    print_document(&printable_json(&serde_json::to_string(document)?))
}

/// Prints one line to standard error.
pub(super) fn print_stderr(text: &str) {
    // If standard error is closed, the message has no reader.
    let _ = writeln!(io::stderr(), "{}", printable(text));
}

/// The error and its causes on one line. A cause that an earlier message contains is left out, and
/// so are the system's numbers of errors.
pub(super) fn reason(error: &anyhow::Error) -> String {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_has_a_cell() {
        let cells = json!([null, "text", 7, true, ["a", "b"], {"kind": "key", "id": 7}]);
        let cells: Vec<String> = cells.as_array().unwrap().iter().map(cell).collect();
        assert_eq!(cells, ["-", "text", "7", "true", "a, b", "key 7"]);
    }

    #[test]
    fn the_reason_is_one_line_without_repetition() {
        let error = anyhow!("no\ndisk").context("cannot write: no\ndisk").context("it failed");
        assert_eq!(reason(&error), "it failed: cannot write: no disk");
        let error = anyhow::Error::new(io::Error::from_raw_os_error(32)).context("cannot write");
        assert_eq!(reason(&error), "cannot write: Broken pipe");
    }
}
