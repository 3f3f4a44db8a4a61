//! Removal of what an interrupted import has left, beside the requests.

use std::path::Path;
use std::thread;

use crate::store::connection::{OpenError, unusable};
use crate::store::import::{self, ImportLock};
use crate::store::schema::{self, Schema};

/// Removes hidden records on a thread of its own, unless an import runs: they are its own, or it has removed them.
pub(super) fn remove_in_background(path: &Path, schema: &'static Schema) {
    // An error is ignored: hidden records only take room. The next list tries again.
    let Ok(Some(lock)) = ImportLock::try_acquire(path) else { return };
    let path = path.to_owned();
    let work = move || {
        if let Err(cause) = remove(&path, schema, &lock) {
            tracing::warn!(file = %path.display(), %cause, "what an interrupted import has left cannot be removed");
        }
    };
    let _ = thread::Builder::new().name("leftovers".to_owned()).spawn(work);
}

fn remove(path: &Path, schema: &Schema, lock: &ImportLock) -> Result<(), OpenError> {
    let connection = schema::open(path, schema)?;
    import::remove_leftovers(&connection, lock, &mut |_, _| ()).map_err(|error| unusable(path, error))
}
