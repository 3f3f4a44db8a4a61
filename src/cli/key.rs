//! `key …`: creates, lists, replaces, limits, revokes and deletes API keys.

use std::num::NonZeroU32;

use anyhow::anyhow;
use clap::Subcommand;
use jiff::Span;
use serde_json::{Value, json};

use super::output::{print_document, print_json, print_stderr, print_table};
use super::{GlobalOptions, open_tenant};
use crate::clock::{Moment, Timestamp};
use crate::model::validation::is_date;
use crate::model::{KeyId, Scopes};
use crate::store::registry::{self, Actor, KeyRow, MAX_RATE_LIMIT, NewKey, Replacement};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a key and print it; it cannot be shown again
    Create {
        /// The tenant's name
        tenant: String,
        /// The key's name: 1 to 100 characters
        #[arg(long, value_parser = key_name)]
        name: String,
        /// A scope such as `customers:read`, or `read` for all read scopes, or `all`; repeatable
        #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',', value_parser = scopes)]
        scopes: Vec<Scopes>,
        /// The end of the key: the last second of a date, a timestamp, or a time from now such as
        /// `30d`, in UTC [default: none]
        #[arg(long, value_name = "DATE|TIMESTAMP|TIME", value_parser = end)]
        expires: Option<End>,
        /// Requests a minute, 1 to 100000 [default: the server's]
        #[arg(long, value_name = "N", value_parser = rate_limit)]
        rate_limit: Option<NonZeroU32>,
    },
    /// List a tenant's keys
    List {
        /// The tenant's name
        tenant: String,
    },
    /// Create a key with the name, scopes, limit and end of another, print it, and end the other
    /// after the overlap
    Replace {
        /// The tenant's name
        tenant: String,
        /// The key's number, as `key list` shows it
        id: KeyId,
        /// The time for which both keys are accepted; 0 ends the old one at once
        #[arg(long, default_value = "24h", value_name = "TIME", value_parser = overlap)]
        overlap: Span,
    },
    /// Set the rate limit of a key
    Limit {
        /// The tenant's name
        tenant: String,
        /// The key's number, as `key list` shows it
        id: KeyId,
        /// Requests a minute, 1 to 100000, or `default` for the server's limit
        #[arg(value_name = "N|default", value_parser = limit)]
        limit: Limit,
    },
    /// Revoke a key permanently; a second time has no effect
    Revoke {
        /// The tenant's name
        tenant: String,
        /// The key's number, as `key list` shows it
        id: KeyId,
    },
    /// Delete a key
    Delete {
        /// The tenant's name
        tenant: String,
        /// The key's number, as `key list` shows it
        id: KeyId,
    },
}

/// The argument of `--expires`.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    At(Timestamp),
    After(Span),
}

impl End {
    fn expiry(self, now: Moment) -> anyhow::Result<Timestamp> {
        match self {
            End::At(end) => Ok(end),
            End::After(span) => {
                now.after(span).ok_or_else(|| anyhow!("the end of the key is too far away"))
            }
        }
    }
}

/// The argument of `key limit`: `None` is the server's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(Option<NonZeroU32>);

pub(super) fn run(options: &GlobalOptions, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create { tenant, name, scopes, expires, rate_limit } => {
            let now = options.clock().now();
            let scopes = scopes.into_iter().fold(Scopes::default(), Scopes::union);
            let expires_at = expires.map(|end| end.expiry(now)).transpose()?;
            create(options, &tenant, NewKey { name: &name, scopes, expires_at, rate_limit }, now)
        }
        Command::List { tenant } => list(options, &tenant),
        Command::Replace { tenant, id, overlap } => replace(options, &tenant, id, overlap),
        Command::Limit { tenant, id, limit: Limit(limit) } => {
            set_limit(options, &tenant, id, limit)
        }
        Command::Revoke { tenant, id } => revoke(options, &tenant, id),
        Command::Delete { tenant, id } => delete(options, &tenant, id),
    }
}

fn create(
    options: &GlobalOptions,
    tenant: &str,
    new: NewKey<'_>,
    now: Moment,
) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, tenant)?;
    let (row, key) = registry.create_key(tenant.id, new, Actor::CommandLine, now)?;
    if let Err(error) = print_created(options, &tenant.name, &row, &key) {
        // The key was not shown to anyone.
        registry.delete_key(tenant.id, row.id, Actor::CommandLine, now)?;
        return Err(error);
    }
    Ok(())
}

fn print_created(
    options: &GlobalOptions,
    tenant: &str,
    row: &KeyRow,
    key: &str,
) -> anyhow::Result<()> {
    if options.json {
        return print_json(&json!({
            "id": row.id,
            "name": row.name,
            "prefix": row.prefix,
            "scopes": row.scopes.names(),
            "created_at": row.created_at,
            "key": key,
        }));
    }
    print_stderr(&format!("key {} of {tenant}, shown this once:", row.id));
    print_document(key)
}

fn replace(options: &GlobalOptions, tenant: &str, id: KeyId, overlap: Span) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, tenant)?;
    let now = options.clock().now();
    let replacement = registry.replace_key(tenant.id, id, overlap, Actor::CommandLine, now)?;
    if let Err(error) = print_replaced(options, &tenant.name, &replacement) {
        // The key was not shown to anyone.
        registry.undo_replacement(&replacement, Actor::CommandLine, now)?;
        return Err(error);
    }
    Ok(())
}

fn print_replaced(
    options: &GlobalOptions,
    tenant: &str,
    replacement: &Replacement,
) -> anyhow::Result<()> {
    let Replacement { old, new, key, .. } = replacement;
    let old_end = old.expires_at.map(|end| end.to_string());
    if options.json {
        return print_json(&json!({
            "done": "replaced",
            "tenant": tenant,
            "id": new.id,
            "name": new.name,
            "prefix": new.prefix,
            "scopes": new.scopes.names(),
            "created_at": new.created_at,
            "expires_at": new.expires_at,
            "rate_limit": new.rate_limit,
            "key": key,
            "replaced": {"id": old.id, "expires_at": old_end},
        }));
    }
    let old_end = old_end.unwrap_or_default();
    print_stderr(&format!(
        "key {} ends at {old_end}; key {} of {tenant}, shown this once:",
        old.id, new.id
    ));
    print_document(key)
}

fn list(options: &GlobalOptions, tenant: &str) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, tenant)?;
    let keys = registry.list_keys(tenant.id)?;
    let now = options.clock().now();
    if options.json {
        return print_json(&Value::Array(keys.iter().map(|key| document(key, now)).collect()));
    }
    if keys.is_empty() {
        print_stderr(&format!("{} has no keys", tenant.name));
        return Ok(());
    }
    let scopes = |scopes: Scopes| match scopes {
        all if all == Scopes::every() => "all".to_owned(),
        read if read == Scopes::read_only() => "read".to_owned(),
        some => some.to_string(),
    };
    print_table(
        ["ID", "NAME", "KEY", "SCOPES", "CREATED", "EXPIRES", "LIMIT", "LAST USED", "STATE"],
        keys.into_iter().map(|key| {
            let state = key.state(now).as_str().to_owned();
            [
                key.id.to_string(),
                key.name,
                format!("{}…", key.prefix),
                scopes(key.scopes),
                key.created_at.to_string(),
                key.expires_at.map_or_else(|| "never".to_owned(), |end| end.to_string()),
                key.rate_limit.map_or_else(|| "default".to_owned(), |limit| limit.to_string()),
                key.last_used_at.map_or_else(|| "never".to_owned(), |at| at.to_string()),
                state,
            ]
        }),
    )
}

fn document(key: &KeyRow, now: Moment) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": key.scopes.names(),
        "created_at": key.created_at.to_string(),
        "last_used_at": key.last_used_at,
        "state": key.state(now).as_str(),
        "expires_at": key.expires_at,
        "rate_limit": key.rate_limit,
    })
}

fn set_limit(
    options: &GlobalOptions,
    tenant: &str,
    id: KeyId,
    limit: Option<NonZeroU32>,
) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, tenant)?;
    let key =
        registry.set_rate_limit(tenant.id, id, limit, Actor::CommandLine, options.clock().now())?;
    let KeyRow { id, name, rate_limit, .. } = key;
    let tenant = tenant.name;
    let limit = limit.map_or_else(
        || "the server's rate limit".to_owned(),
        |limit| format!("{limit} requests a minute"),
    );
    options.report(
        &json!({"done": "limit set", "tenant": tenant, "id": id, "name": name, "rate_limit": rate_limit}),
        &format!("key {id} ({name}) of {tenant} has {limit}"),
    )
}

fn revoke(options: &GlobalOptions, tenant: &str, id: KeyId) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, tenant)?;
    let key = registry.revoke_key(tenant.id, id, Actor::CommandLine, options.clock().now())?;
    report(options, "revoked", &tenant.name, &key)
}

fn delete(options: &GlobalOptions, tenant: &str, id: KeyId) -> anyhow::Result<()> {
    let (registry, tenant) = open_tenant(options, tenant)?;
    let key = registry.delete_key(tenant.id, id, Actor::CommandLine, options.clock().now())?;
    report(options, "deleted", &tenant.name, &key)
}

fn report(options: &GlobalOptions, done: &str, tenant: &str, key: &KeyRow) -> anyhow::Result<()> {
    options.report(
        &json!({"done": done, "tenant": tenant, "id": key.id, "name": key.name}),
        &format!("key {} ({}) of {tenant} is {done}", key.id, key.name),
    )
}

fn key_name(text: &str) -> Result<String, &'static str> {
    registry::check_key_name(text).map(str::to_owned)
}

fn end(text: &str) -> Result<End, &'static str> {
    const INVALID: &str =
        "not a date, a timestamp such as 2026-11-20T19:30:00Z, or a time such as 30d";
    if is_date(text) {
        return Timestamp::end_of_day(text).map(End::At).ok_or("too far away");
    }
    let timestamp = text.parse().map(End::At);
    timestamp.or_else(|_| text.parse::<Span>().map(End::After)).map_err(|_| INVALID)
}

fn overlap(text: &str) -> Result<Span, &'static str> {
    if text == "0" {
        return Ok(Span::new());
    }
    text.parse::<Span>()
        .ok()
        .filter(|span| !span.is_negative())
        .ok_or("not 0 or a time such as 30m, 24h or 7d")
}

fn rate_limit(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse().ok().filter(|limit: &NonZeroU32| limit.get() <= MAX_RATE_LIMIT);
    number.ok_or_else(|| format!("not a number from 1 to {MAX_RATE_LIMIT}"))
}

fn limit(text: &str) -> Result<Limit, String> {
    if text == "default" {
        Ok(Limit(None))
    } else {
        rate_limit(text).map(|limit| Limit(Some(limit)))
    }
}

fn scopes(text: &str) -> Result<Scopes, String> {
    Scopes::parse(text).ok_or_else(|| {
        format!(
            "there is no such scope; there are {}, read and all",
            Scopes::every().names().join(", ")
        )
    })
}
