//! Why the store did not do what it was asked. No type of the database library appears outside `store/`.

/// A statement failed. The text is SQLite's own.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DatabaseError(#[from] pub(super) rusqlite::Error);

/// Why a request's read or mutation was not done. The cause is in the log already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The tenant's file cannot be used now: it is missing, damaged, of a newer schema, read-only, on a full disk, locked for
    /// too long, or has too many requests waiting for it.
    #[error("the tenant's file cannot be used")]
    Unavailable,
    /// The program failed, not the file.
    #[error("the store failed")]
    Internal,
}

/// Why a mutation is rolled back.
#[derive(Debug)]
pub enum MutationError<E> {
    /// The caller's own reason.
    Rejected(E),
    /// A statement failed.
    Database(DatabaseError),
}

impl<E> From<DatabaseError> for MutationError<E> {
    fn from(error: DatabaseError) -> MutationError<E> {
        MutationError::Database(error)
    }
}
