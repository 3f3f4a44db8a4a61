//! Tenants from the registry of a backup, with their keys.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior, params};

use super::{FILE, Registry, RegistryError, SCHEMA};
use crate::store::connection;

/// A tenant that comes from a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedTenant {
    /// Its id in the backup.
    pub saved: i64,
    /// Its id from now on: the same, unless a tenant of this registry has or had that one.
    pub id: i64,
}

impl Registry {
    /// Takes over the tenants `saved` (ids) from the registry at `source`, with their keys and key events, in one
    /// transaction. `place` is called for each with the id that it had and the one that it would get, and puts its file
    /// there; where it says `false`, because a file of another is in that place, the tenant gets the next id.
    ///
    /// No id that a tenant or a key of this registry ever had is given again (contract section 10), and from here on ids go
    /// on from the higher count of both registries.
    pub(in crate::store) fn import_tenants<E: From<RegistryError>>(
        &self,
        source: &Path,
        saved: &[i64],
        mut place: impl FnMut(i64, i64) -> Result<bool, E>,
    ) -> Result<Vec<ImportedTenant>, E> {
        let path = self.data_dir.join(FILE);
        let mut connection =
            connection::open(&path, &SCHEMA).map_err(|error| RegistryError::File(error.to_string()))?;
        connection::attach(&connection, source, "saved").map_err(RegistryError::from)?;
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(RegistryError::from)?;
        let [last_tenant, last_key] = last_ids(&transaction).map_err(RegistryError::from)?;
        connection::raise_id_counters(&transaction, "saved").map_err(RegistryError::from)?;
        let mut imported = Vec::new();
        for saved in saved {
            let mut wanted = Some(*saved).filter(|id| *id > last_tenant);
            let id = loop {
                let id = insert(&transaction, *saved, wanted.take()).map_err(RegistryError::from)?;
                if place(*saved, id)? {
                    break id;
                }
                transaction.execute("DELETE FROM tenants WHERE id = ?", [id]).map_err(RegistryError::from)?;
            };
            insert_keys(&transaction, *saved, id, last_key).map_err(RegistryError::from)?;
            imported.push(ImportedTenant { saved: *saved, id });
        }
        transaction.commit().map_err(RegistryError::from)?;
        Ok(imported)
    }

    /// Ids go on from the higher count of this registry and the one at `replaced`.
    pub(in crate::store) fn raise_id_counters(&self, replaced: &Path) -> Result<(), RegistryError> {
        let connection = connection::open_raw(&self.data_dir.join(FILE))?;
        connection::attach(&connection, replaced, "replaced")?;
        Ok(connection::raise_id_counters(&connection, "replaced")?)
    }
}

/// The highest ids that a tenant and a key ever had, 0 where there was none.
fn last_ids(connection: &Connection) -> rusqlite::Result<[i64; 2]> {
    connection.query_row(
        "SELECT coalesce(max(seq) FILTER (WHERE name = 'tenants'), 0), coalesce(max(seq) FILTER (WHERE name = 'keys'), 0)
         FROM main.sqlite_sequence",
        [],
        |row| Ok([row.get(0)?, row.get(1)?]),
    )
}

/// The id that the tenant got: `wanted`, or the next.
fn insert(connection: &Connection, saved: i64, wanted: Option<i64>) -> rusqlite::Result<i64> {
    let inserted = connection.execute(
        "INSERT INTO main.tenants (id, name, suspended, trial_until, password_hash, created_at)
         SELECT ?2, name, suspended, trial_until, password_hash, created_at FROM saved.tenants WHERE id = ?1",
        params![saved, wanted],
    )?;
    if inserted == 0 {
        return Err(rusqlite::Error::QueryReturnedNoRows);
    }
    Ok(connection.last_insert_rowid())
}

/// Keys whose ids are not beyond `last_key` get new ones, and so do their events.
fn insert_keys(connection: &Connection, saved: i64, id: i64, last_key: i64) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO main.keys (id, tenant_id, name, hash, prefix, scopes, created_at, last_used_at, revoked_at)
         SELECT CASE WHEN k.id > ?3 THEN k.id END,
                ?2, k.name, k.hash, k.prefix, k.scopes, k.created_at, k.last_used_at, k.revoked_at
         FROM saved.keys AS k
         WHERE k.tenant_id = ?1 AND NOT EXISTS (SELECT 1 FROM main.keys AS known WHERE known.hash = k.hash)
         ORDER BY k.id",
        [saved, id, last_key],
    )?;
    connection.execute(
        "INSERT INTO main.key_events (tenant_id, at, actor, action, key_id, key_name, prefix)
         SELECT ?2, e.at, e.actor, e.action, coalesce(own.id, e.key_id), e.key_name, e.prefix
         FROM saved.key_events AS e
         LEFT JOIN saved.keys AS k ON k.id = e.key_id
         LEFT JOIN main.keys AS own ON own.hash = k.hash
         WHERE e.tenant_id = ?1 ORDER BY e.id",
        [saved, id],
    )?;
    Ok(())
}
