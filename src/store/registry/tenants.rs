//! Tenants: created, listed, changed and deleted, each together with its file.

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, Transaction, params};

use super::keys::NewKey;
use super::{Admin, Inactive, Registry, no_tenant, suspension, trial_over};
use crate::clock::{Moment, Timestamp};
use crate::files;
use crate::model::TenantId;
use crate::store::data_dir::{self, tenant_database};
use crate::store::database::Database;
use crate::store::error::{Result, StoreError};
use crate::words;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    /// Never used again after the tenant is deleted.
    pub id: TenantId,
    /// Follows [`check_tenant_name`]. Unique.
    pub name: String,
    /// The operator's suspension.
    pub suspension: Option<Inactive>,
    /// The last day of the trial, `YYYY-MM-DD`, UTC; `None` without a trial.
    pub trial_until: Option<String>,
    pub created_at: Timestamp,
    /// In PHC string format.
    pub password_hash: String,
}

impl TenantRow {
    /// Why the tenant is inactive, or `None` if it is active.
    pub fn inactive(&self, now: Moment) -> Option<Inactive> {
        self.suspension.or_else(|| trial_over(self.trial_until.as_deref(), now))
    }

    /// The state in the spelling of `tenant list --json`.
    pub fn state(&self, now: Moment) -> &'static str {
        match self.inactive(now) {
            None => "active",
            Some(Inactive::Suspended) => "suspended",
            Some(Inactive::Moving) => "moving",
            Some(Inactive::TrialOver) => "trial_over",
        }
    }

    /// Reads a row with all columns of `tenants`.
    pub(in crate::store) fn read(row: &Row<'_>) -> rusqlite::Result<TenantRow> {
        Ok(TenantRow {
            id: TenantId(row.get("id")?),
            name: row.get("name")?,
            suspension: suspension(row.get("suspended")?, row.get("moving")?),
            trial_until: row.get("trial_until")?,
            created_at: row.get("created_at")?,
            password_hash: row.get("password_hash")?,
        })
    }
}

/// Checks a tenant's name: `[a-z0-9][a-z0-9-]{0,62}`.
pub fn check_tenant_name(name: &str) -> Result<(), &'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_length = (1..=63).contains(&name.len());
    if has_length && name.bytes().all(is_allowed) && !name.starts_with('-') {
        Ok(())
    } else {
        Err("a tenant's name has 1 to 63 small letters a-z, digits and hyphens, and does not \
             begin with a hyphen")
    }
}

impl Registry {
    /// Creates a tenant, its empty file and, with `key`, its first key, all or nothing. `name`
    /// follows [`check_tenant_name`]; `trial_until` is a date. Returns the key's secret, too, which
    /// is not stored.
    pub fn create_tenant(
        &self,
        name: &str,
        trial_until: Option<&str>,
        password_hash: &str,
        key: Option<NewKey<'_>>,
        now: Moment,
    ) -> Result<(TenantRow, Option<String>)> {
        check_tenant_name(name).map_err(StoreError::other)?;
        let insert = |transaction: &Transaction<'_>| {
            let sql = "INSERT INTO tenants (name, trial_until, password_hash, created_at)
                       VALUES (?1, ?2, ?3, ?4) RETURNING *";
            let values = params![name, trial_until, password_hash, now.timestamp()];
            transaction.prepare_cached(sql)?.query_row(values, TenantRow::read)
        };
        self.add_tenant(name, insert, Database::create, |transaction, tenant| {
            let Some(key) = key else { return Ok(None) };
            let operator = self.administer(tenant.id, Admin::CommandLine, now);
            Ok(Some(operator.insert_key(transaction, &key)?.1))
        })
    }

    /// Adds a tenant: `insert` inserts its row, `place` puts its file in place, and `add` adds
    /// further rows, which commit with the tenant's row.
    ///
    /// If a file of the new id exists already, the next id is taken. That file may hold the records
    /// of a tenant that the registry has lost.
    pub(in crate::store) fn add_tenant<T>(
        &self,
        name: &str,
        insert: impl Fn(&Transaction<'_>) -> rusqlite::Result<TenantRow>,
        place: impl FnOnce(&Database) -> Result<()>,
        add: impl FnOnce(&Transaction<'_>, &TenantRow) -> Result<T>,
    ) -> Result<(TenantRow, T)> {
        let mut placed = None;
        let added = self.change(|transaction| {
            if find_by_column(transaction, "name", &name)?.is_some() {
                return Err(exists(name));
            }
            let tenant = loop {
                let tenant = insert(transaction)?;
                if !data_dir::has_files(&tenant_database(self.data_dir(), tenant.id)) {
                    break tenant;
                }
                transaction.execute("DELETE FROM tenants WHERE id = ?1", [tenant.id.0])?;
            };
            let database = placed.insert(tenant_database(self.data_dir(), tenant.id));
            place(database)?;
            let added = add(transaction, &tenant)?;
            Ok((tenant, added))
        });
        if let (Err(_), Some(database)) = (&added, placed) {
            // The row was rolled back. If that were not certain, the process would have ended.
            let _ = database.remove();
        }
        added
    }

    pub fn find_tenant(&self, name: &str) -> Result<Option<TenantRow>> {
        self.read(|connection| find_by_column(connection, "name", &name))
    }

    /// The error about a name that no tenant has. It suggests the most similar name.
    pub fn unknown_tenant(&self, name: &str) -> StoreError {
        let tenants = self.list_tenants().unwrap_or_default();
        let names = tenants.iter().map(|(tenant, _)| tenant.name.as_str());
        let hint = words::closest(name, names).map(|similar| format!("; did you mean {similar}?"));
        no_tenant(format_args!("{name}{}", hint.unwrap_or_default()))
    }

    pub fn tenant(&self, id: TenantId) -> Result<Option<TenantRow>> {
        self.read(|connection| find_by_column(connection, "id", &id.0))
    }

    /// Returns every tenant with the number of its keys, revoked keys included, ordered by name.
    pub fn list_tenants(&self) -> Result<Vec<(TenantRow, i64)>> {
        self.read(|connection| {
            let sql = "SELECT *, (SELECT count(*) FROM keys WHERE tenant_id = tenants.id) AS keys
                       FROM tenants ORDER BY name";
            let mut statement = connection.prepare_cached(sql)?;
            let rows =
                statement.query_map([], |row| Ok((TenantRow::read(row)?, row.get("keys")?)))?;
            rows.collect()
        })
    }

    /// Suspends the tenant: its keys are refused from the next request on. Changes that already run
    /// may still commit, until the caller has called [`TenantFile::await_writer`].
    ///
    /// [`TenantFile::await_writer`]: crate::store::TenantFile::await_writer
    pub fn suspend(&self, name: &str, reason: Inactive) -> Result<TenantRow> {
        self.change_tenant(name, |tenant| tenant.suspension = Some(reason))
    }

    /// Lifts a suspension and removes the end of a trial.
    pub fn activate(&self, name: &str) -> Result<TenantRow> {
        self.change_tenant(name, |tenant| (tenant.suspension, tenant.trial_until) = (None, None))
    }

    /// Sets the last day of the tenant's trial, `YYYY-MM-DD`. A suspension remains.
    pub fn set_trial(&self, name: &str, until: &str) -> Result<TenantRow> {
        self.change_tenant(name, |tenant| tenant.trial_until = Some(until.to_owned()))
    }

    /// Renames the tenant. Its keys, sessions and records remain.
    pub fn rename_tenant(&self, name: &str, new_name: &str) -> Result<TenantRow> {
        check_tenant_name(new_name).map_err(StoreError::other)?;
        self.change(|transaction| {
            if find_by_column(transaction, "name", &new_name)?.is_some() {
                return Err(exists(new_name));
            }
            self.update_tenant(transaction, name, |tenant| tenant.name = new_name.to_owned())
        })
    }

    fn change_tenant(&self, name: &str, change: impl FnOnce(&mut TenantRow)) -> Result<TenantRow> {
        self.change(|transaction| self.update_tenant(transaction, name, change))
    }

    fn update_tenant(
        &self,
        transaction: &Transaction<'_>,
        name: &str,
        change: impl FnOnce(&mut TenantRow),
    ) -> Result<TenantRow> {
        let found = find_by_column(transaction, "name", &name)?;
        let mut tenant = found.ok_or_else(|| self.unknown_tenant(name))?;
        change(&mut tenant);
        let TenantRow { id, name, suspension, trial_until, .. } = &tenant;
        let (suspended, moving) = (suspension.is_some(), *suspension == Some(Inactive::Moving));
        let sql = "UPDATE tenants SET name = ?2, suspended = ?3, moving = ?4, trial_until = ?5
                   WHERE id = ?1";
        let values = params![id.0, name, suspended, moving, trial_until];
        transaction.prepare_cached(sql)?.execute(values)?;
        Ok(tenant)
    }

    /// Deletes the tenant, its keys, sessions and events, then its file. Returns its id.
    pub fn delete_tenant(&self, name: &str) -> Result<TenantId> {
        let id = self.change(|transaction| {
            let sql = "DELETE FROM tenants WHERE name = ?1 RETURNING id";
            let deleted = transaction.query_row(sql, [name], |row| row.get(0).map(TenantId));
            deleted.optional()?.ok_or_else(|| self.unknown_tenant(name))
        })?;
        let database = tenant_database(self.data_dir(), id);
        let removed = database.remove().and_then(|()| files::sync_parent(database.path()));
        removed.map_err(|error| {
            // Its id is never used again.
            let path = database.path().display();
            let message = "the tenant is deleted, but its file remains";
            StoreError::other(format!("{message} ({error}); remove {path}"))
        })?;
        Ok(id)
    }
}

fn exists(name: &str) -> StoreError {
    StoreError::other(format!("the tenant {name} exists already"))
}

fn find_by_column(
    connection: &Connection,
    column: &str,
    value: &dyn ToSql,
) -> rusqlite::Result<Option<TenantRow>> {
    let sql = format!("SELECT * FROM tenants WHERE {column} = ?1");
    connection.prepare_cached(&sql)?.query_row([value], TenantRow::read).optional()
}
