//! The databases: the registry of tenants and keys, and one file of records for each tenant.
//!
//! | module | concept |
//! |---|---|
//! | `database` | one database: open, pragmas, schema, migration, commit, checkpoint, copy |
//! | `data_dir` | the directory of all databases: paths, schemas, locks, recovery after a start |
//! | `registry` | tenants, keys, sessions, events |
//! | `tenant` | one tenant's file in the server: readers, the writer, stored responses, upkeep |
//! | `records` | statements, lists, search, change log |
//! | `backup` | backup, restore, check |

pub mod backup;
mod data_dir;
mod database;
mod error;
mod records;
pub mod registry;
mod tenant;

pub use data_dir::{DataDir, REGISTRY_FILE, tenants_dir};
pub use database::Deadline;
pub(crate) use database::{LAST_LINE, fold};
pub use error::{Rejection, StoreCode, StoreError, who_refer};
pub use records::{
    Actor, Change, ChangeContext, ChangeKind, Changed, ChangesPage, ChangesQuery, Draft,
    EntryFilter, KeyLabel, Leave, MAX_CHANGED_SINCE, Page, Position, Precondition, Reading, Reason,
    Record, RecordVersion, ReferenceFault, Run, Selection, SentKey, Start, Target, Undo, Undone,
    Writing, find_referred,
};
pub use registry::Registry;
pub use tenant::{
    FileTransaction, IdempotencyKey, Mutation, Outcome, StoredResponse, Tenant, TenantFile, Tenants,
};

/// The version of the SQLite library in this program.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

#[cfg(test)]
mod tests;
