//! A mutation that waits for the writer: what it does, and who is told the outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::store::error::{MutationError, StoreError};
use crate::store::records::Writing;

/// What a mutation needs of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// How many records it changes at most.
    pub operations: usize,
    /// Whether it only deletes: it may run where there is no space for anything else.
    pub frees_space: bool,
}

pub(super) type Work = Box<dyn FnOnce(&Writing<'_>) -> Result<(), MutationError<()>> + Send>;
pub(super) type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// A mutation that waits.
pub(super) struct Mutation {
    /// Runs inside the transaction. After an error, its writes are rolled back.
    pub(super) run: Work,
    pub(super) done: Done,
    pub(super) demand: Demand,
    pub(super) since: Instant,
}

impl Mutation {
    /// `done` gets what `work` returned or rejected, or why nothing was committed.
    pub(super) fn new<T: Send + 'static, E: Send + 'static>(
        demand: Demand,
        work: impl FnOnce(&Writing<'_>) -> Result<T, MutationError<E>> + Send + 'static,
        done: impl FnOnce(Result<Result<T, E>, StoreError>) + Send + 'static,
    ) -> Mutation {
        let outcome = Arc::new(Mutex::new(None));
        let result = Arc::clone(&outcome);
        let run = move |writing: &Writing<'_>| match work(writing) {
            Ok(value) => {
                *result.lock() = Some(Ok(value));
                Ok(())
            }
            Err(MutationError::Rejected(reason)) => {
                *result.lock() = Some(Err(reason));
                Err(MutationError::Rejected(()))
            }
            Err(MutationError::Database(error)) => Err(MutationError::Database(error)),
        };
        let done = move |committed: Result<(), StoreError>| {
            // What a mutation was rejected for may be a change of the same transaction.
            done(committed.and_then(|()| outcome.lock().take().ok_or(StoreError::Internal)));
        };
        Mutation { run: Box::new(run), done: Box::new(done), demand, since: Instant::now() }
    }
}

/// Tells the outcome of a mutation, after the commit or when nothing will be committed. A panic
/// while one response is sent must not keep the others from theirs; the panic hook prints it.
pub(super) fn tell(done: Done, committed: Result<(), StoreError>) {
    let _ = catch_unwind(AssertUnwindSafe(|| done(committed)));
}
