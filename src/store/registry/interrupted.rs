//! What interrupted commands have left of tenants: finished or removed.

use rusqlite::Transaction;

use super::{Registry, RegistryError};
use crate::store::{schema, tenants};

/// A tenant that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTenant {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
}

impl Registry {
    /// Removes the files of tenants whose creation, restore or deletion was interrupted, and the marks of those that exist.
    ///
    /// # Errors
    ///
    /// [`RegistryError::File`] if a file cannot be removed; [`RegistryError::Database`] if the registry cannot be locked.
    pub(in crate::store) fn finish_interrupted(&self) -> Result<(), RegistryError> {
        self.change(|transaction| self.remove_uncommitted_files(transaction).map(drop))
    }

    /// Returns the tenants whose deletion was finished. The caller's transaction keeps other processes from creating and deleting
    /// tenants, and has not changed any.
    pub(super) fn remove_uncommitted_files(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<Vec<DeletedTenant>, RegistryError> {
        let failed = |error: std::io::Error| RegistryError::File(error.to_string());
        let mut row = transaction.prepare_cached("SELECT 1 FROM tenants WHERE id = ?1")?;
        let mut finished = Vec::new();
        for marked in tenants::marked_files(&self.data_dir).map_err(failed)? {
            if row.exists([marked.id])? {
                tenants::unmark(&self.tenant_file(marked.id));
            } else {
                tenants::remove_file(&self.data_dir, marked.id).map_err(failed)?;
                finished.push(DeletedTenant { id: marked.id, name: marked.deleted });
            }
        }
        for id in tenants::file_ids(&self.data_dir).map_err(failed)? {
            // Earlier versions set no mark. A file without a table holds nothing.
            if !row.exists([id])? && schema::is_unfinished(&self.tenant_file(id)) {
                tenants::remove_file(&self.data_dir, id).map_err(failed)?;
            }
        }
        Ok(finished)
    }
}
