//! The databases: the registry of tenants and keys, and one file of records for each tenant.

pub mod backup;
pub mod check;
pub mod connection;
pub mod data_dir;
pub mod data_dir_lock;
mod error;
mod file_identity;
pub mod import;
pub mod lock_file;
mod log_file;
mod log_health;
mod page_copy;
mod private_folders;
pub mod records;
pub mod registry;
pub mod restore;
pub mod schema;
pub mod tenant_file;
pub mod tenants;

#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod sqlite_tests;
#[cfg(test)]
mod upgrade_tests;

pub use connection::{OpenError, sqlite_version};
pub use error::{DatabaseError, MutationError, StoreError};
pub use records::{
    Changes, ChangesPage, ChangesQuery, DeleteOutcome, JournalPosition, KeyLabel, Origin, Page, Reading, Record, Start,
    StoredResponse, Writing,
};
pub use registry::Registry;
pub use tenants::{Tenant, Tenants};
