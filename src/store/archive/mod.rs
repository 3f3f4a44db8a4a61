//! Backups, and the check of databases (contract section 10).
//!
//! | file | its concern |
//! |---|---|
//! | `backup` | consistent copies of the databases, in a new directory |
//! | `manifest` | what a backup says about itself |
//! | `restore` | brings back everything, or one tenant |
//! | `staging` | the directory in which a backup or a restore prepares its files |
//! | `verify` | the files of a backup, copied if they can be trusted |
//! | `check` | what is wrong with a database |

pub mod backup;
pub mod check;
mod error;
pub mod manifest;
pub mod restore;
mod staging;
mod verify;

pub use backup::Backup;
pub use check::Finding;
pub use error::ArchiveError;
pub use manifest::{BackupKind, LeftOutTenant, Manifest, SavedFile, SavedTenant};
pub use restore::{Restore, Restored, RestoredTenant};

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
