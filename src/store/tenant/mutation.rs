//! The changes of one request on their way through the writer.

use std::mem;
use std::time::Instant;

use crate::clock::Timestamp;
use crate::store::error::{DatabaseError, StoreError};
use crate::store::records::{
    Answer, Change, ChangeContext, ChangeError, ChangeKind, Changed, IdempotencyKey, Reading,
    Rejection, Writing,
};

/// Changes that commit together or not at all.
pub struct Mutation {
    /// One change, or the operations of a batch.
    pub changes: Vec<Change>,
    /// Whether the changes are rolled back even if they succeed.
    pub is_trial: bool,
    pub idempotency_key: Option<IdempotencyKey>,
    pub context: ChangeContext,
    /// The client waits since then.
    pub since: Instant,
    pub client: Box<dyn Client>,
}

/// The client that waits for a mutation.
pub trait Client: Send {
    /// The response to these changes. It is stored under the idempotency key, in the same
    /// transaction.
    fn answer(&self, changed: &[Changed]) -> Answer;

    /// Sends the outcome. Called once: after the commit, or when nothing will be committed.
    fn send(self: Box<Self>, outcome: Outcome);
}

/// How a mutation ended. Only [`Outcome::Changed`] has changed anything.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    Changed(Answer),
    /// The answer of an earlier request with the same idempotency key.
    Replayed(Answer),
    /// Another request had the same idempotency key.
    KeyReused,
    /// With the number of the rejected change.
    Rejected(usize, Rejection),
    /// The changes would have succeeded.
    Tried,
    Failed(StoreError),
}

impl Reading<'_> {
    /// The outcome of a request if its idempotency key was used in the last 24 hours.
    pub fn replay(
        &self,
        IdempotencyKey { key, request }: &IdempotencyKey,
        now: Timestamp,
    ) -> Result<Option<Outcome>, DatabaseError> {
        Ok(match self.stored_answer(key, now)? {
            Some((stored, answer)) if stored == *request => Some(Outcome::Replayed(answer)),
            Some(_) => Some(Outcome::KeyReused),
            None => None,
        })
    }
}

impl Mutation {
    /// Runs inside a savepoint. The caller rolls back, unless the outcome is [`Outcome::Changed`].
    /// With a `shortage`, only deletions run.
    pub(super) fn run(
        &mut self,
        writing: &Writing<'_>,
        shortage: Option<StoreError>,
    ) -> Result<Outcome, DatabaseError> {
        let now = self.context.at;
        if let Some(key) = &self.idempotency_key
            && let Some(outcome) = writing.replay(key, now)?
        {
            return Ok(outcome);
        }
        let is_deletion = |change: &Change| matches!(change.kind, ChangeKind::Delete(_));
        if let Some(error) = shortage
            && !self.changes.iter().all(is_deletion)
        {
            return Ok(Outcome::Failed(error));
        }
        let mut done = Vec::with_capacity(self.changes.len());
        for (number, mut change) in mem::take(&mut self.changes).into_iter().enumerate() {
            change.fill_results(&done);
            match writing.apply(&change, &self.context) {
                Ok(changed) => done.push(changed),
                Err(ChangeError::Database(error)) => return Err(error),
                Err(ChangeError::Rejected(rejection)) => {
                    return Ok(Outcome::Rejected(number, rejection));
                }
            }
        }
        if self.is_trial {
            return Ok(Outcome::Tried);
        }
        let answer = self.client.answer(&done);
        if let Some(key) = &self.idempotency_key {
            writing.store_answer(key, &answer, now)?;
        }
        Ok(Outcome::Changed(answer))
    }
}
