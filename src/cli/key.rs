//! `key …`: creates, lists, changes, replaces, revokes and deletes API keys.

use std::num::NonZeroU32;

use clap::{Args, Subcommand};
use jiff::Span;
use serde_json::{Value, json};

use super::options::{GlobalOptions, open_tenant, print_document, print_json, print_stderr};
use crate::clock::{Clock, Moment, Timestamp, last_second};
use crate::config::{duration, whole};
use crate::model::{KeyId, Scopes};
use crate::store::StoreError;
use crate::store::registry::{
    self, Admin, Administration, KeyRow, MAX_RATE_LIMIT, NewKey, Registry, Replacement, TenantRow,
};
use crate::words;

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Create a key and print it; it cannot be shown again
    Create(NewKeyArguments),
    /// List a tenant's keys
    List {
        /// The tenant's name
        tenant: String,
    },
    /// Create and print a key with the properties of an old key, and end the old key after the overlap
    Replace {
        #[command(flatten)]
        key: KeyArguments,
        /// How long both keys are accepted; with 0 the old key ends at once
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
    /// Rename a key
    Rename {
        #[command(flatten)]
        key: KeyArguments,
        /// The new name: 1 to 100 characters
        #[arg(value_parser = key_name)]
        name: String,
    },
    /// Set when a key expires
    Expire {
        #[command(flatten)]
        key: KeyArguments,
        /// A date (its last second), a timestamp, a time from now such as `30d`, or `never`; in UTC
        #[arg(value_name = "WHEN", value_parser = expiry)]
        expires: Expiry,
    },
    /// Revoke a key for good; to revoke it again is no error
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
    /// A date (its last second), a timestamp, a time from now such as `30d`, or `never`; in UTC
    #[arg(long, value_name = "WHEN", default_value = "never", value_parser = expiry)]
    expires: Expiry,
    /// Requests a minute, 1 to 100000, or `default` for the server's limit
    #[arg(long, value_name = "N|default", default_value = "default", value_parser = limit)]
    rate_limit: Limit,
}

#[derive(Debug, Args)]
pub(super) struct KeyArguments {
    /// The tenant's name
    tenant: String,
    /// The key's number, as `key list` shows it
    #[arg(value_parser = key_id)]
    id: KeyId,
}

/// A rate limit of a key: `None` is the server's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(Option<NonZeroU32>);

/// When a key expires: `None` is never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expiry(Option<Timestamp>);

pub(super) fn run(options: &GlobalOptions, command: KeyCommand) -> anyhow::Result<()> {
    let now = Clock::system().now();
    match command {
        KeyCommand::Create(arguments) => create(options, arguments, now),
        KeyCommand::List { tenant } => list(options, &tenant, now),
        KeyCommand::Replace { key, overlap } => replace(options, &key, overlap, now),
        KeyCommand::Limit { key, limit: Limit(limit) } => {
            let text = match limit {
                Some(limit) => {
                    format!("has {} a minute", words::count(limit.get().into(), "request"))
                }
                None => "has the server's rate limit".to_owned(),
            };
            change(options, &key, now, ["limit set", &text], |operator, id| {
                operator.change_key(id, |key| key.rate_limit = limit).map(|(key, _)| key)
            })
        }
        KeyCommand::Rename { key, name } => {
            change(options, &key, now, ["renamed", "has this name now"], |operator, id| {
                operator.change_key(id, |key| key.name = name).map(|(key, _)| key)
            })
        }
        KeyCommand::Expire { key, expires: Expiry(end) } => {
            let text = end.map(|end| format!("expires at {end}"));
            let text = text.as_deref().unwrap_or("never expires");
            change(options, &key, now, ["expiry set", text], |operator, id| {
                operator.change_key(id, |key| key.expires_at = end).map(|(key, _)| key)
            })
        }
        KeyCommand::Revoke(key) => {
            change(options, &key, now, ["revoked", "is revoked"], |operator, id| {
                operator.revoke_key(id)
            })
        }
        KeyCommand::Delete(key) => {
            change(options, &key, now, ["deleted", "is deleted"], |operator, id| {
                operator.delete_key(id)
            })
        }
    }
}

fn operator<'a>(registry: &'a Registry, tenant: &TenantRow, now: Moment) -> Administration<'a> {
    registry.administer(tenant.id, Admin::CommandLine, now)
}

fn create(options: &GlobalOptions, new: NewKeyArguments, now: Moment) -> anyhow::Result<()> {
    let NewKeyArguments { tenant: tenant_name, name, scopes, expires, rate_limit } = new;
    let (registry, tenant) = open_tenant(options, &tenant_name)?;
    let scopes = scopes.into_iter().fold(Scopes::default(), Scopes::union);
    let new = NewKey { name: &name, scopes, expires_at: expires.0, rate_limit: rate_limit.0 };
    let (row, key) = operator(&registry, &tenant, now).create_key(&new)?;
    let document = document(&row, now, [("key", json!(key))]);
    let note = format!("key {} of {tenant_name}", row.id);
    show(options, &document, &note, &key)
}

fn replace(
    options: &GlobalOptions,
    key: &KeyArguments,
    overlap: Span,
    now: Moment,
) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, &key.tenant)?;
    let Replacement { old, new, key } =
        operator(&registry, &tenant, now).replace_key(key.id, overlap)?;
    let more = [
        ("done", json!("replaced")),
        ("tenant", json!(tenant.name)),
        ("key", json!(key)),
        ("replaced", json!({"id": old.id, "expires_at": old.expires_at})),
    ];
    let document = document(&new, now, more);
    let end = old.expires_at.map(|end| end.to_string()).unwrap_or_default();
    // The end of a key that is replaced a second time is that of the overlap.
    let new_end = new.expires_at.map(|end| format!(", which ends at {end}")).unwrap_or_default();
    let (old, new) = (old.id, new.id);
    let note = format!("key {old} ends at {end}; key {new} of {}{new_end}", tenant.name);
    show(options, &document, &note, &key)
}

/// Shows a new key, alone on standard output.
fn show(options: &GlobalOptions, document: &Value, note: &str, key: &str) -> anyhow::Result<()> {
    if !options.json {
        print_stderr(&format!("{note}, shown this once:"));
        return print_document(key);
    }
    print_json(document)
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

/// Changes a key, and says so: `done` for scripts, `text` for people.
fn change(
    options: &GlobalOptions,
    KeyArguments { tenant: name, id }: &KeyArguments,
    now: Moment,
    [done, text]: [&str; 2],
    change: impl FnOnce(&Administration<'_>, KeyId) -> Result<KeyRow, StoreError>,
) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, name)?;
    let key = change(&operator(&registry, &tenant, now), *id)?;
    let text = format!("key {id} ({}) of {name} {text}", key.name);
    options.report(&document(&key, now, [("done", json!(done)), ("tenant", json!(name))]), &text)
}

fn key_name(text: &str) -> Result<String, &'static str> {
    registry::check_key_name(text).map(str::to_owned)
}

fn key_id(text: &str) -> Result<KeyId, &'static str> {
    whole(text).ok_or("not the number of a key; `tenantdesk key list TENANT` shows numbers")
}

fn expiry(text: &str) -> Result<Expiry, &'static str> {
    const INVALID: &str = "not never, a date such as 2026-12-31, a timestamp such as \
                           2026-12-31T19:30:00Z, or a time from now such as 30d";
    if text == "never" {
        return Ok(Expiry(None));
    }
    let end = match last_second(text) {
        Some(end) => end.parse().ok(),
        None => Clock::system().now().after(duration(text).ok_or(INVALID)?),
    };
    end.map(|end| Expiry(Some(end))).ok_or("too far away")
}

fn overlap(text: &str) -> Result<Span, &'static str> {
    let span = if text == "0" { Some(Span::new()) } else { duration(text) };
    span.ok_or("not 0 or a time such as 30m, 24h or 7d")
}

fn limit(text: &str) -> Result<Limit, String> {
    if text == "default" {
        return Ok(Limit(None));
    }
    let number = whole(text).filter(|limit: &NonZeroU32| limit.get() <= MAX_RATE_LIMIT);
    let limit = number.ok_or_else(|| format!("not default or a number from 1 to {MAX_RATE_LIMIT}"));
    limit.map(|limit| Limit(Some(limit)))
}

fn scopes(text: &str) -> Result<Scopes, String> {
    Scopes::parse(text).ok_or_else(|| {
        let names = Scopes::every().names().join(", ");
        format!("there is no such scope; there are {names}, read and all")
    })
}
