//! A mutation that waits for the writer: what it does, and who is told the outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

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

/// Whether a mutation's writes stay in the transaction.
pub(super) enum Verdict {
    Keep,
    RollBack,
    /// A statement failed. What the mutation wrote is rolled back.
    Failed(rusqlite::Error),
}

/// A queued mutation.
pub(super) struct Queued {
    pub(super) job: Box<dyn Job>,
    pub(super) demand: Demand,
    pub(super) since: Instant,
}

impl Queued {
    /// Tells the outcome. A panic while one response is sent must not keep the others from theirs;
    /// the panic hook prints it.
    pub(super) fn finish(self, committed: Result<(), StoreError>) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.job.finish(committed)));
    }
}

pub(super) trait Job: Send {
    /// Runs once, inside the transaction.
    fn run(&mut self, writing: &Writing<'_>) -> Verdict;

    /// Runs once, after the commit, or with the reason why nothing was committed.
    fn finish(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A mutation of two closures: what it does, and who is told the outcome.
pub(super) struct Mutation<W, D, T, E> {
    work: Option<W>,
    outcome: Option<Result<T, E>>,
    done: D,
}

impl<W, D, T, E> Mutation<W, D, T, E> {
    pub(super) fn new(work: W, done: D) -> Mutation<W, D, T, E> {
        Mutation { work: Some(work), outcome: None, done }
    }
}

impl<W, D, T, E> Job for Mutation<W, D, T, E>
where
    W: FnOnce(&Writing<'_>) -> Result<T, MutationError<E>> + Send,
    D: FnOnce(Result<Result<T, E>, StoreError>) + Send,
    T: Send,
    E: Send,
{
    fn run(&mut self, writing: &Writing<'_>) -> Verdict {
        let Some(work) = self.work.take() else { return Verdict::RollBack };
        match work(writing) {
            Ok(value) => {
                self.outcome = Some(Ok(value));
                Verdict::Keep
            }
            Err(MutationError::Rejected(error)) => {
                self.outcome = Some(Err(error));
                Verdict::RollBack
            }
            Err(MutationError::Database(error)) => Verdict::Failed(error.0),
        }
    }

    fn finish(self: Box<Self>, committed: Result<(), StoreError>) {
        let outcome = match (self.outcome, committed) {
            (Some(outcome), Ok(())) => Ok(outcome),
            // What a mutation was rejected for may be a change of the same transaction.
            (_, Err(error)) => Err(error),
            (None, Ok(())) => Err(StoreError::Internal),
        };
        (self.done)(outcome);
    }
}
