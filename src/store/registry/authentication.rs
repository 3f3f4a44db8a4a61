//! Whose key came with a request. It is asked at every one, and answered from memory for as long as the file says that nothing
//! was changed.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _};

use super::{Registry, RegistryError, inactive};
use crate::model::Scopes;
use crate::store::registry::Inactive;

/// Whose key it is that came with a request, and whether it may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub key_id: i64,
    pub tenant_id: i64,
    pub tenant_name: String,
    /// The key's first 8 characters.
    pub prefix: String,
    pub scopes: Scopes,
    pub revoked: bool,
    pub suspended: bool,
    /// The last day of the trial, `YYYY-MM-DD`.
    pub trial_until: Option<String>,
}

impl Principal {
    /// Why the caller's tenant is inactive on the day `today` (`YYYY-MM-DD`, UTC), if it is. Only a trial asks for the day.
    pub fn inactive(&self, today: impl FnOnce() -> String) -> Option<Inactive> {
        let today = if self.trial_until.is_some() { today() } else { String::new() };
        inactive(self.suspended, self.trial_until.as_deref(), &today)
    }
}

impl Registry {
    /// Whose key has this hash. It is asked at every request.
    pub fn find_principal(&self, hash: &[u8; 32]) -> Result<Option<Arc<Principal>>, RegistryError> {
        self.read(|reader| reader.find_principal(hash))
    }
}

/// A connection that reads, and the callers that it has found since somebody changed the file last.
pub(super) struct Reader {
    connection: Connection,
    /// What `PRAGMA data_version` said when the first of them was found. It says something else as soon as another connection,
    /// of this process or of any other, has committed.
    version: Option<i64>,
    callers: HashMap<[u8; 32], Arc<Principal>>,
}

impl Reader {
    /// How many callers it remembers: a quarter of a megabyte.
    const CALLERS: usize = 1_000;

    /// `connection` must not write: its own commits would go unseen.
    pub(super) fn new(connection: Connection) -> Reader {
        Reader { connection, version: None, callers: HashMap::new() }
    }

    fn find_principal(&mut self, hash: &[u8; 32]) -> rusqlite::Result<Option<Arc<Principal>>> {
        let version = self.connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.version.replace(version) != Some(version) {
            self.callers.clear();
        }
        // What is found from here on is of this version or of a newer one, which the next look at the version tells.
        if let Some(caller) = self.callers.get(hash) {
            return Ok(Some(Arc::clone(caller)));
        }
        let caller = find_principal(&self.connection, hash)?.map(Arc::new);
        if let Some(caller) = &caller {
            if self.callers.len() == Reader::CALLERS {
                self.callers.clear();
            }
            self.callers.insert(*hash, Arc::clone(caller));
        }
        Ok(caller)
    }
}

impl Deref for Reader {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

fn find_principal(connection: &Connection, hash: &[u8; 32]) -> rusqlite::Result<Option<Principal>> {
    let mut statement = connection.prepare_cached(
        "SELECT keys.id, keys.tenant_id, tenants.name, keys.prefix, keys.scopes, keys.revoked_at IS NOT NULL,
                tenants.suspended, tenants.trial_until
         FROM keys JOIN tenants ON tenants.id = keys.tenant_id WHERE keys.hash = ?1",
    )?;
    statement
        .query_row([hash], |row| {
            Ok(Principal {
                key_id: row.get(0)?,
                tenant_id: row.get(1)?,
                tenant_name: row.get(2)?,
                prefix: row.get(3)?,
                scopes: Scopes::from(row.get_ref(4)?.as_str()?),
                revoked: row.get(5)?,
                suspended: row.get(6)?,
                trial_until: row.get(7)?,
            })
        })
        .optional()
}
