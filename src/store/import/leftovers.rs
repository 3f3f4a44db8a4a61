//! Removal of hidden records that an import has left.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::ImportLock;
use super::portion::Pace;
use crate::model::ALL;
use crate::store::connection;
use crate::store::error::DatabaseError;
use crate::store::records::{Reading, Writing};

/// Observes a removal: the number of records that were removed, and of all that are to be.
pub type RemovalProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// Removes all hidden records, in portions between which other writers get the file. With the lock, no import runs.
///
/// # Errors
///
/// [`DatabaseError`]. The rest remains hidden.
pub fn remove_leftovers(
    connection: &Connection,
    _lock: &ImportLock,
    progress: RemovalProgress<'_>,
) -> Result<(), DatabaseError> {
    let reading = Reading::new(connection);
    for resource in ALL {
        let all = reading.number_hidden(resource)?.unsigned_abs();
        let mut done = 0;
        let mut pace = Pace::new();
        loop {
            pace.pause();
            let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            pace.begin();
            let count = pace.rows();
            let removed = Writing::new(&transaction).remove_hidden(resource, count)?;
            connection::commit(transaction)?;
            let Some(removed) = removed.filter(|removed| *removed == count) else { break };
            pace.end(removed);
            done += removed as u64;
            progress(done, all);
        }
    }
    Ok(())
}
