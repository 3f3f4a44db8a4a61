//! Tenants: created, listed, changed and deleted, each together with its file.

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, Transaction, params};

use super::events::{Action, Actor, insert_event};
use super::interrupted::DeletedTenant;
use super::keys::{self, NewKey};
use super::{Registry, RegistryError};
use crate::clock::Moment;
use crate::store::private_folders::create_private_dir;
use crate::store::tenants::{mark, unmark};
use crate::store::{schema, tenants};

/// Why a tenant is inactive. A suspension takes precedence over a trial that is over (contract section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inactive {
    /// The operator suspended the tenant.
    Suspended,
    /// The last day of the trial is past.
    TrialOver,
}

/// One tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    /// Never used again after the tenant is deleted.
    pub id: i64,
    /// Follows [`check_tenant_name`]. Unique.
    pub name: String,
    /// Whether the operator suspended the tenant.
    pub suspended: bool,
    /// The last day of the trial, `YYYY-MM-DD`, UTC; `None` without a trial.
    pub trial_until: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// In PHC string format.
    pub password_hash: String,
}

/// Whether a tenant's keys are accepted, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantState {
    /// The keys are accepted.
    Active,
    /// The operator suspended the tenant.
    Suspended,
    /// The last day of the trial is past.
    TrialOver,
}

impl TenantState {
    /// Returns the spelling of `tenant list --json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            TenantState::Active => "active",
            TenantState::Suspended => "suspended",
            TenantState::TrialOver => "trial_over",
        }
    }
}

impl TenantRow {
    /// Returns why the tenant is inactive on the day `today` (`YYYY-MM-DD`, UTC), or `None` if it is active.
    pub fn inactive(&self, today: &str) -> Option<Inactive> {
        inactive(self.suspended, self.trial_until.as_deref(), today)
    }

    /// Returns the state on the day `today` (`YYYY-MM-DD`, UTC).
    pub fn state(&self, today: &str) -> TenantState {
        match self.inactive(today) {
            None => TenantState::Active,
            Some(Inactive::Suspended) => TenantState::Suspended,
            Some(Inactive::TrialOver) => TenantState::TrialOver,
        }
    }

    /// Reads [`TENANT_COLUMNS`], in their order.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<TenantRow> {
        Ok(TenantRow {
            id: row.get(0)?,
            name: row.get(1)?,
            suspended: row.get(2)?,
            trial_until: row.get(3)?,
            created_at: row.get(4)?,
            password_hash: row.get(5)?,
        })
    }
}

pub(super) const TENANT_COLUMNS: &str =
    "tenants.id, tenants.name, tenants.suspended, tenants.trial_until, tenants.created_at, tenants.password_hash";

/// A trial ends with its last day. Dates in this format have the order of their texts.
pub(super) fn inactive(suspended: bool, trial_until: Option<&str>, today: &str) -> Option<Inactive> {
    if suspended {
        Some(Inactive::Suspended)
    } else if trial_until.is_some_and(|last_day| last_day < today) {
        Some(Inactive::TrialOver)
    } else {
        None
    }
}

/// Checks a tenant's name: `[a-z0-9][a-z0-9-]{0,62}`.
///
/// # Errors
///
/// The rule, as a text for the operator.
pub fn check_tenant_name(name: &str) -> Result<(), &'static str> {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_valid = (1..=63).contains(&name.len())
        && name.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-')
        && name.bytes().next().is_some_and(is_alphanumeric);
    if is_valid {
        Ok(())
    } else {
        Err("a tenant's name has 1 to 63 small letters a-z, digits and hyphens, and does not begin with a hyphen")
    }
}

impl Registry {
    /// Creates a tenant and its empty file. `name` follows [`check_tenant_name`]; `trial_until` is a date.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Invalid`] or [`RegistryError::TenantExists`] for the name; [`RegistryError::File`] if the file cannot
    /// be created. Neither a row nor a file remains after an error.
    pub fn create_tenant(
        &self,
        name: &str,
        trial_until: Option<&str>,
        password_hash: &str,
        now: Moment,
    ) -> Result<TenantRow, RegistryError> {
        let created = self.create_with(name, trial_until, password_hash, now, |_, _| Ok(()));
        created.map(|(tenant, ())| tenant)
    }

    /// Creates a tenant, its empty file and its first key, all or nothing. Returns the tenant and the key's secret, which is not
    /// stored.
    ///
    /// # Errors
    ///
    /// Those of [`Registry::create_tenant`] and [`Registry::create_key`].
    pub fn create_tenant_with_key(
        &self,
        name: &str,
        password_hash: &str,
        key: NewKey<'_>,
        now: Moment,
    ) -> Result<(TenantRow, String), RegistryError> {
        let key = key.checked(now).map_err(RegistryError::Invalid)?;
        self.create_with(name, None, password_hash, now, |transaction, tenant| {
            let (row, secret) = keys::insert(transaction, tenant.id, &key, now)?;
            insert_event(transaction, tenant.id, Action::Created, Some(&row), Actor::CommandLine, now)?;
            Ok(secret)
        })
    }

    /// Creates a tenant. What `add` inserts commits with its row.
    fn create_with<T>(
        &self,
        name: &str,
        trial_until: Option<&str>,
        password_hash: &str,
        now: Moment,
        add: impl FnOnce(&Transaction<'_>, &TenantRow) -> Result<T, RegistryError>,
    ) -> Result<(TenantRow, T), RegistryError> {
        check_tenant_name(name).map_err(RegistryError::Invalid)?;
        let mut new_file = None;
        let created = self.change(|transaction| {
            if exists(transaction, name)? {
                return Err(RegistryError::TenantExists(name.to_owned()));
            }
            self.remove_uncommitted_files(transaction)?;
            let tenant = loop {
                let tenant = insert(transaction, name, trial_until, password_hash, now)?;
                if self.create_tenant_file(tenant.id, &mut new_file)? {
                    break tenant;
                }
                // The file of this id may hold the records of another tenant. It is left alone, and the next id is used.
                transaction.execute("DELETE FROM tenants WHERE id = ?1", [tenant.id])?;
            };
            let added = add(transaction, &tenant)?;
            Ok((tenant, added))
        });
        match &created {
            Ok((tenant, _)) => unmark(&self.tenant_file(tenant.id)),
            Err(_) => self.remove_file_without_tenant(new_file),
        }
        created
    }

    /// Returns whether the file was created: not if it, or one of SQLite's files for it, exists. `new_file` is set before it is.
    fn create_tenant_file(&self, id: i64, new_file: &mut Option<i64>) -> Result<bool, RegistryError> {
        let failed = |error: &dyn std::fmt::Display| RegistryError::File(error.to_string());
        create_private_dir(&tenants::folder(&self.data_dir)).map_err(|error| failed(&error))?;
        let path = self.tenant_file(id);
        for name in tenants::with_companions(&path) {
            if name.try_exists().map_err(|error| failed(&error))? {
                return Ok(false);
            }
        }
        *new_file = Some(id);
        mark(&path, "").map_err(|error| failed(&error))?;
        schema::create(&path, &tenants::SCHEMA).map(|_| true).map_err(|error| failed(&error))
    }

    /// Removes the new file after a failed commit. An error here is ignored: the first one is reported, and the next command
    /// removes what remains.
    fn remove_file_without_tenant(&self, id: Option<i64>) {
        if let Some(id) = id
            // Otherwise the tenant may be there after a crash.
            && !self.log.needs_discard()
            && matches!(self.tenant(id), Ok(None))
        {
            let _ = tenants::remove_file(&self.data_dir, id);
        }
    }

    /// Returns the tenant of this name, or `None`.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Database`] if the registry cannot be read.
    pub fn find_tenant(&self, name: &str) -> Result<Option<TenantRow>, RegistryError> {
        self.read(|connection| {
            let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants WHERE name = ?1");
            connection.prepare_cached(&sql)?.query_row([name], TenantRow::read).optional()
        })
    }

    /// Returns the tenant of this id, or `None`.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Database`] if the registry cannot be read.
    pub fn tenant(&self, id: i64) -> Result<Option<TenantRow>, RegistryError> {
        self.read(|connection| {
            let sql = format!("SELECT {TENANT_COLUMNS} FROM tenants WHERE id = ?1");
            connection.prepare_cached(&sql)?.query_row([id], TenantRow::read).optional()
        })
    }

    /// Returns the highest id that a tenant ever had, 0 before the first.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Database`] if the registry cannot be read.
    pub(in crate::store) fn last_tenant_id(&self) -> Result<i64, RegistryError> {
        self.read(|connection| {
            let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'tenants'";
            connection.query_row(sql, [], |row| row.get(0))
        })
    }

    /// Returns the ids of all tenants. It waits for other processes that are creating or deleting a tenant.
    ///
    /// # Errors
    ///
    /// [`RegistryError`] if the registry cannot be locked or read.
    pub(in crate::store) fn tenant_ids_locked(&self) -> Result<Vec<i64>, RegistryError> {
        self.change(|transaction| {
            let mut statement = transaction.prepare_cached("SELECT id FROM tenants ORDER BY id")?;
            let ids = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            Ok(ids)
        })
    }

    /// Returns every tenant with the number of its keys, revoked keys included, ordered by name.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Database`] if the registry cannot be read.
    pub fn list_tenants(&self) -> Result<Vec<(TenantRow, i64)>, RegistryError> {
        self.read(|connection| {
            let sql = format!(
                "SELECT {TENANT_COLUMNS}, (SELECT count(*) FROM keys WHERE tenant_id = tenants.id) FROM tenants ORDER BY name"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map([], |row| Ok((TenantRow::read(row)?, row.get(6)?)))?;
            rows.collect()
        })
    }

    /// Suspends the tenant: its keys are refused from the next request on.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoTenant`] if there is no tenant of this name.
    pub fn suspend(&self, name: &str) -> Result<TenantRow, RegistryError> {
        self.change_tenant(name, "suspended = 1", &[])
    }

    /// Lifts a suspension and removes the end of a trial.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoTenant`] if there is no tenant of this name.
    pub fn activate(&self, name: &str) -> Result<TenantRow, RegistryError> {
        self.change_tenant(name, "suspended = 0, trial_until = NULL", &[])
    }

    /// Sets the last day of the tenant's trial, `YYYY-MM-DD`. A suspension remains.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoTenant`] if there is no tenant of this name.
    pub fn set_trial(&self, name: &str, until: &str) -> Result<TenantRow, RegistryError> {
        self.change_tenant(name, "trial_until = ?2", &[&until])
    }

    /// Renames the tenant. Its keys, sessions and records remain.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoTenant`] if there is no tenant `name`; [`RegistryError::Invalid`] or [`RegistryError::TenantExists`] for
    /// the new name.
    pub fn rename_tenant(&self, name: &str, new_name: &str) -> Result<TenantRow, RegistryError> {
        check_tenant_name(new_name).map_err(RegistryError::Invalid)?;
        self.change(|transaction| {
            if !exists(transaction, name)? {
                return Err(RegistryError::NoTenant(name.to_owned()));
            }
            if exists(transaction, new_name)? {
                return Err(RegistryError::TenantExists(new_name.to_owned()));
            }
            let sql = format!("UPDATE tenants SET name = ?2 WHERE name = ?1 RETURNING {TENANT_COLUMNS}");
            Ok(transaction.prepare_cached(&sql)?.query_row([name, new_name], TenantRow::read)?)
        })
    }

    /// Sets the panel's password, ends all sessions of the tenant and records the event.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoTenant`] if there is no tenant of this id.
    pub fn set_password(
        &self,
        tenant_id: i64,
        password_hash: &str,
        actor: Actor,
        now: Moment,
    ) -> Result<(), RegistryError> {
        self.change(|transaction| {
            let sql = "UPDATE tenants SET password_hash = ?2 WHERE id = ?1";
            if transaction.execute(sql, params![tenant_id, password_hash])? == 0 {
                return Err(RegistryError::NoTenant(tenant_id.to_string()));
            }
            transaction.execute("DELETE FROM sessions WHERE tenant_id = ?1", [tenant_id])?;
            Ok(insert_event(transaction, tenant_id, Action::PasswordChanged, None, actor, now)?)
        })
    }

    /// Deletes the tenant, its keys, sessions and events, then its file. A deletion of a tenant of this name that was interrupted
    /// is finished.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoTenant`] if there is no tenant of this name; [`RegistryError::FileRemains`] if the tenant is deleted and
    /// its file is not; any other error if nothing is changed.
    pub fn delete_tenant(&self, name: &str) -> Result<DeletedTenant, RegistryError> {
        let mut marked = None;
        let committed = self.change(|transaction| {
            let finished = self.remove_uncommitted_files(transaction)?;
            let sql = "DELETE FROM tenants WHERE name = ?1 RETURNING id";
            let Some(id) = transaction.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()? else {
                let earlier = finished.into_iter().find(|deleted| deleted.name == name);
                return earlier.ok_or_else(|| RegistryError::NoTenant(name.to_owned()));
            };
            marked = Some(id);
            mark(&self.tenant_file(id), name).map_err(|error| RegistryError::File(error.to_string()))?;
            Ok(DeletedTenant { id, name: name.to_owned() })
        });
        let deleted = committed.inspect_err(|_| {
            // Otherwise the tenant may be gone after a crash, and the mark has its file removed.
            if let Some(id) = marked.filter(|_| !self.log.needs_discard()) {
                unmark(&self.tenant_file(id));
            }
        })?;
        tenants::remove_file(&self.data_dir, deleted.id)
            .map_err(|error| RegistryError::FileRemains { name: name.to_owned(), cause: error.to_string() })?;
        Ok(deleted)
    }

    /// `assignments` is trusted SQL. The parameters of `values` begin at `?2`.
    fn change_tenant(&self, name: &str, assignments: &str, values: &[&dyn ToSql]) -> Result<TenantRow, RegistryError> {
        self.change(|transaction| {
            let sql = format!("UPDATE tenants SET {assignments} WHERE name = ?1 RETURNING {TENANT_COLUMNS}");
            let mut parameters: Vec<&dyn ToSql> = vec![&name];
            parameters.extend(values);
            let changed = transaction.prepare_cached(&sql)?.query_row(&*parameters, TenantRow::read).optional()?;
            changed.ok_or_else(|| RegistryError::NoTenant(name.to_owned()))
        })
    }
}

fn exists(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM tenants WHERE name = ?1")?.exists([name])
}

fn insert(
    transaction: &Transaction<'_>,
    name: &str,
    trial_until: Option<&str>,
    password_hash: &str,
    now: Moment,
) -> rusqlite::Result<TenantRow> {
    let sql = format!(
        "INSERT INTO tenants (name, trial_until, password_hash, created_at) VALUES (?1, ?2, ?3, ?4)
         RETURNING {TENANT_COLUMNS}"
    );
    let values = params![name, trial_until, password_hash, now.rfc3339()];
    transaction.prepare_cached(&sql)?.query_row(values, TenantRow::read)
}
