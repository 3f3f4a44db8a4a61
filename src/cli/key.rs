//! `key …`: creates, lists, replaces, limits, revokes and deletes API keys.

use std::num::NonZeroU32;

use clap::{Args, Subcommand};
use jiff::Span;
use serde_json::{Value, json};

use super::output::{print_document, print_stderr};
use super::{GlobalOptions, open_tenant};
use crate::clock::{Clock, Moment, Timestamp};
use crate::model::validation::is_date;
use crate::model::{KeyId, Scopes};
use crate::store::registry::{
    self, Admin, Administration, KeyRow, MAX_RATE_LIMIT, NewKey, Registry, Replacement, TenantRow,
};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a key and print it; it cannot be shown again
    Create(NewKeyArguments),
    /// List a tenant's keys
    List {
        /// The tenant's name
        tenant: String,
    },
    /// Create a key with the name, scopes, limit and end of another, print it, and end the other
    /// after the overlap
    Replace {
        #[command(flatten)]
        key: KeyArguments,
        /// The time for which both keys are accepted; 0 ends the old one at once
        #[arg(long, default_value = "24h", value_name = "TIME", value_parser = overlap)]
        overlap: Span,
    },
    /// Set the rate limit of a key
    Limit {
        #[command(flatten)]
        key: KeyArguments,
        /// Requests a minute, 1 to 100000, or `default` for the server's limit
        #[arg(value_name = "N|default", value_parser = limit)]
        limit: Limit,
    },
    /// Revoke a key permanently; a second time has no effect
    Revoke(KeyArguments),
    /// Delete a key
    Delete(KeyArguments),
}

#[derive(Debug, Args)]
pub(super) struct NewKeyArguments {
    /// The tenant's name
    tenant: String,
    /// The key's name: 1 to 100 characters
    #[arg(long, value_parser = key_name)]
    name: String,
    /// A scope such as `customers:read`, or `read` for all read scopes, or `all`; repeatable
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',',
          value_parser = scopes)]
    scopes: Vec<Scopes>,
    /// The end of the key: the last second of a date, a timestamp, or a time from now such as
    /// `30d`, in UTC [default: none]
    #[arg(long, value_name = "DATE|TIMESTAMP|TIME", value_parser = end)]
    expires: Option<Timestamp>,
    /// Requests a minute, 1 to 100000, or `default` for the server's limit
    #[arg(long, value_name = "N|default", default_value = "default", value_parser = limit)]
    rate_limit: Limit,
}

#[derive(Debug, Args)]
pub(super) struct KeyArguments {
    /// The tenant's name
    tenant: String,
    /// The key's number, as `key list` shows it
    id: KeyId,
}

/// A rate limit of a key: `None` is the server's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(Option<NonZeroU32>);

pub(super) fn run(options: &GlobalOptions, command: Command) -> anyhow::Result<()> {
    let now = Clock::system().now();
    match command {
        Command::Create(arguments) => create(options, arguments, now),
        Command::List { tenant } => list(options, &tenant, now),
        Command::Replace { key, overlap } => replace(options, &key, overlap, now),
        Command::Limit { key: KeyArguments { tenant: name, id }, limit: Limit(limit) } => {
            let (registry, tenant) = open_tenant(options, &name)?;
            let key = operator(&registry, &tenant, now).set_rate_limit(id, limit)?;
            let has = match limit {
                Some(limit) => format!("has {limit} requests a minute"),
                None => "has the server's rate limit".to_owned(),
            };
            report(options, &name, &key, "limit set", &has)
        }
        Command::Revoke(KeyArguments { tenant: name, id }) => {
            let (registry, tenant) = open_tenant(options, &name)?;
            let key = operator(&registry, &tenant, now).revoke_key(id)?;
            report(options, &name, &key, "revoked", "is revoked")
        }
        Command::Delete(KeyArguments { tenant: name, id }) => {
            let (registry, tenant) = open_tenant(options, &name)?;
            let key = operator(&registry, &tenant, now).delete_key(id)?;
            report(options, &name, &key, "deleted", "is deleted")
        }
    }
}

/// The operator, as whoever changes the tenant's keys.
fn operator<'a>(registry: &'a Registry, tenant: &TenantRow, now: Moment) -> Administration<'a> {
    registry.administer(tenant.id, Admin::CommandLine, now)
}

fn create(options: &GlobalOptions, new: NewKeyArguments, now: Moment) -> anyhow::Result<()> {
    let NewKeyArguments { tenant: tenant_name, name, scopes, expires, rate_limit } = new;
    let (registry, tenant) = open_tenant(options, &tenant_name)?;
    let scopes = scopes.into_iter().fold(Scopes::default(), Scopes::union);
    let new = NewKey { name: &name, scopes, expires_at: expires, rate_limit: rate_limit.0 };
    let operator = operator(&registry, &tenant, now);
    let (row, key) = operator.create_key(&new)?;
    let document = document(&row, now, [("key", json!(key))]);
    let note = format!("key {} of {tenant_name}", row.id);
    show(options, &document, &note, &key).or_else(|error| {
        operator.delete_key(row.id)?;
        Err(error)
    })
}

fn replace(
    options: &GlobalOptions,
    key: &KeyArguments,
    overlap: Span,
    now: Moment,
) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, &key.tenant)?;
    let replaced = operator(&registry, &tenant, now).replace_key(key.id, overlap)?;
    let Replacement { old, new, key } = replaced;
    let more = [
        ("done", json!("replaced")),
        ("tenant", json!(tenant.name)),
        ("key", json!(key)),
        ("replaced", json!({"id": old.id, "expires_at": old.expires_at})),
    ];
    let document = document(&new, now, more);
    let end = old.expires_at.map(|end| end.to_string()).unwrap_or_default();
    let note = format!("key {} ends at {end}; key {} of {}", old.id, new.id, tenant.name);
    show(options, &document, &note, &key)
}

/// Shows a new key, alone on standard output. If that fails, nobody has seen it.
fn show(options: &GlobalOptions, document: &Value, note: &str, key: &str) -> anyhow::Result<()> {
    if !options.json {
        print_stderr(&format!("{note}, shown this once:"));
        return print_document(key);
    }
    print_document(&document.to_string())
}

fn list(options: &GlobalOptions, tenant: &str, now: Moment) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, tenant)?;
    let keys = registry.list_keys(tenant.id)?;
    // The scopes are last, because they are long.
    let columns = [
        "id",
        "name",
        "prefix",
        "state",
        "created_at",
        "expires_at",
        "last_used_at",
        "rate_limit",
        "scopes",
    ];
    options.list(&keys.iter().map(|key| document(key, now, [])).collect(), &columns)
}

/// The key with more members.
fn document<const N: usize>(key: &KeyRow, now: Moment, more: [(&str, Value); N]) -> Value {
    let members = [
        ("id", json!(key.id)),
        ("name", json!(key.name)),
        ("prefix", json!(key.prefix)),
        ("scopes", json!(key.scopes.names())),
        ("created_at", json!(key.created_at)),
        ("last_used_at", json!(key.last_used_at)),
        ("state", json!(key.state(now).as_str())),
        ("expires_at", json!(key.expires_at)),
        ("rate_limit", json!(key.rate_limit)),
    ];
    members.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn report(
    options: &GlobalOptions,
    tenant: &str,
    key: &KeyRow,
    done: &str,
    text: &str,
) -> anyhow::Result<()> {
    let KeyRow { id, name, rate_limit, .. } = key;
    options.report(
        &json!({"done": done, "tenant": tenant, "id": id, "name": name, "rate_limit": rate_limit}),
        &format!("key {id} ({name}) of {tenant} {text}"),
    )
}

fn key_name(text: &str) -> Result<String, &'static str> {
    registry::check_key_name(text).map(str::to_owned)
}

fn end(text: &str) -> Result<Timestamp, &'static str> {
    const INVALID: &str =
        "not a date, a timestamp such as 2026-11-20T19:30:00Z, or a time such as 30d";
    let end = if is_date(text) {
        Timestamp::end_of_day(text)
    } else if let Ok(timestamp) = text.parse() {
        Some(timestamp)
    } else {
        Clock::system().now().after(text.parse().map_err(|_| INVALID)?)
    };
    end.ok_or("too far away")
}

fn overlap(text: &str) -> Result<Span, &'static str> {
    let span: Result<Span, _> = if text == "0" { "0s" } else { text }.parse();
    span.ok().filter(|span| !span.is_negative()).ok_or("not 0 or a time such as 30m, 24h or 7d")
}

fn limit(text: &str) -> Result<Limit, String> {
    if text == "default" {
        return Ok(Limit(None));
    }
    let number = text.parse().ok().filter(|limit: &NonZeroU32| limit.get() <= MAX_RATE_LIMIT);
    let limit = number.ok_or_else(|| format!("not default or a number from 1 to {MAX_RATE_LIMIT}"));
    limit.map(|limit| Limit(Some(limit)))
}

fn scopes(text: &str) -> Result<Scopes, String> {
    let names = || Scopes::every().names().join(", ");
    Scopes::parse(text)
        .ok_or_else(|| format!("there is no such scope; there are {}, read and all", names()))
}
