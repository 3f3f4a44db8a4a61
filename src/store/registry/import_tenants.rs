//! Import of tenants, with their keys and events, from the registry of a backup.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior, params};

use super::tenants::TENANT_COLUMNS;
use super::{FILE, Registry, RegistryError, SCHEMA, TenantRow};
use crate::store::{connection, schema};

/// A tenant of a backup that is to be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantImport<'a> {
    /// Its id in the backup.
    pub saved_id: i64,
    /// The name that it gets in this registry.
    pub name: &'a str,
}

/// A tenant that was imported from a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedTenant {
    /// Its id in the backup.
    pub saved_id: i64,
    /// Its id in this registry: the same, unless a tenant of this registry has or had that id.
    pub id: i64,
    /// The number of its keys that were imported: those that no tenant of this registry has.
    pub keys: usize,
}

impl Registry {
    /// Returns the tenants that the registry at `source` holds, too, perhaps under other names: those with the same id and the
    /// same time of creation. A registry of another data directory has other tenants under the same ids.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Database`] if one of the two cannot be read.
    pub(in crate::store) fn tenants_also_in(&self, source: &Path) -> Result<Vec<TenantRow>, RegistryError> {
        let connection = connection::open_raw(&self.data_dir.join(FILE))?;
        connection::attach(&connection, source, "saved")?;
        let sql = format!(
            "SELECT {TENANT_COLUMNS} FROM main.tenants AS tenants
             JOIN saved.tenants AS saved ON saved.id = tenants.id AND saved.created_at = tenants.created_at"
        );
        let mut statement = connection.prepare(&sql)?;
        let rows = statement.query_map([], TenantRow::read)?.collect::<rusqlite::Result<_>>()?;
        Ok(rows)
    }

    /// Imports tenants from the registry at `source`, with their keys and events, in one transaction.
    ///
    /// For each tenant, `place_file` is called with the id in the backup and the id that the tenant would get, and puts the
    /// tenant's file in place. It returns `false` if another file has that name; the tenant then gets the next id.
    ///
    /// No id that a tenant or a key of this registry ever had is used again (contract section 10). The id counters are raised
    /// to the higher value of both registries.
    ///
    /// # Errors
    ///
    /// The errors of `place_file`, and [`RegistryError`]. The transaction is rolled back.
    pub(in crate::store) fn import_tenants<E: From<RegistryError>>(
        &self,
        source: &Path,
        tenants: &[TenantImport<'_>],
        mut place_file: impl FnMut(i64, i64) -> Result<bool, E>,
    ) -> Result<Vec<ImportedTenant>, E> {
        let path = self.data_dir.join(FILE);
        let mut connection = schema::open(&path, &SCHEMA).map_err(|error| RegistryError::File(error.to_string()))?;
        connection::attach(&connection, source, "saved").map_err(RegistryError::from)?;
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(RegistryError::from)?;
        let [last_tenant, last_key] = last_ids(&transaction).map_err(RegistryError::from)?;
        connection::raise_id_counters(&transaction, "saved").map_err(RegistryError::from)?;
        let mut imported = Vec::new();
        for &TenantImport { saved_id, name } in tenants {
            let mut wanted = Some(saved_id).filter(|id| *id > last_tenant);
            let id = loop {
                let id = insert(&transaction, saved_id, name, wanted.take()).map_err(RegistryError::from)?;
                if place_file(saved_id, id)? {
                    break id;
                }
                transaction.execute("DELETE FROM tenants WHERE id = ?", [id]).map_err(RegistryError::from)?;
            };
            let keys = insert_keys(&transaction, saved_id, id, last_key).map_err(RegistryError::from)?;
            imported.push(ImportedTenant { saved_id, id, keys });
        }
        connection::commit(transaction).map_err(RegistryError::from)?;
        Ok(imported)
    }

    /// Raises the id counters to those of the registry at `replaced` that are higher.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Database`] if one of the two cannot be read or written.
    pub(in crate::store) fn raise_id_counters(&self, replaced: &Path) -> Result<(), RegistryError> {
        let connection = connection::open_raw(&self.data_dir.join(FILE))?;
        connection::attach(&connection, replaced, "replaced")?;
        Ok(connection::raise_id_counters(&connection, "replaced")?)
    }
}

/// Returns the highest ids that a tenant and a key ever had, 0 before the first.
fn last_ids(connection: &Connection) -> rusqlite::Result<[i64; 2]> {
    connection.query_row(
        "SELECT coalesce(max(seq) FILTER (WHERE name = 'tenants'), 0), coalesce(max(seq) FILTER (WHERE name = 'keys'), 0)
         FROM main.sqlite_sequence",
        [],
        |row| Ok([row.get(0)?, row.get(1)?]),
    )
}

/// Inserts the row of a tenant and returns its id: `wanted`, or the next one.
fn insert(connection: &Connection, saved_id: i64, name: &str, wanted: Option<i64>) -> rusqlite::Result<i64> {
    let inserted = connection.execute(
        "INSERT INTO main.tenants (id, name, suspended, trial_until, password_hash, created_at)
         SELECT ?2, ?3, suspended, trial_until, password_hash, created_at FROM saved.tenants WHERE id = ?1",
        params![saved_id, wanted, name],
    )?;
    if inserted == 0 {
        return Err(rusqlite::Error::QueryReturnedNoRows);
    }
    Ok(connection.last_insert_rowid())
}

/// Inserts the keys and events of a tenant, and returns the number of keys. A key gets a new id if its id is not above `last_key`; its
/// events refer to the new id.
fn insert_keys(connection: &Connection, saved_id: i64, id: i64, last_key: i64) -> rusqlite::Result<usize> {
    let keys = connection.execute(
        "INSERT INTO main.keys (id, tenant_id, name, hash, prefix, scopes, created_at, last_used_at, revoked_at,
                                expires_at, rate_limit)
         SELECT CASE WHEN k.id > ?3 THEN k.id END,
                ?2, k.name, k.hash, k.prefix, k.scopes, k.created_at, k.last_used_at, k.revoked_at,
                k.expires_at, k.rate_limit
         FROM saved.keys AS k
         WHERE k.tenant_id = ?1 AND NOT EXISTS (SELECT 1 FROM main.keys AS known WHERE known.hash = k.hash)
         ORDER BY k.id",
        [saved_id, id, last_key],
    )?;
    connection.execute(
        "INSERT INTO main.key_events (tenant_id, at, actor, action, key_id, key_name, prefix)
         SELECT ?2, e.at, e.actor, e.action, coalesce(own.id, e.key_id), e.key_name, e.prefix
         FROM saved.key_events AS e
         LEFT JOIN saved.keys AS k ON k.id = e.key_id
         LEFT JOIN main.keys AS own ON own.hash = k.hash
         WHERE e.tenant_id = ?1 ORDER BY e.id",
        [saved_id, id],
    )?;
    Ok(keys)
}
