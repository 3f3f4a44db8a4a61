//! The changes of one request on their way through the writer, and the stored response of a request
//! with an idempotency key (contract section 8).

use std::time::Instant;

use rusqlite::{Connection, params};

use crate::clock::Timestamp;
use crate::store::error::{Rejection, Result, StoreError};
use crate::store::records::{Change, ChangeContext, ChangeKind, Changed, Reading, Writing};

/// Changes that commit together or not at all.
pub struct Mutation {
    /// One change, or the operations of a batch.
    pub changes: Vec<Change>,
    pub idempotency_key: Option<IdempotencyKey>,
    pub context: ChangeContext,
    /// The client waits since then.
    pub since: Instant,
    /// Makes the response to these changes. It is stored under the idempotency key, in the same
    /// transaction.
    pub respond: MakeResponse,
    pub send: SendOutcome,
}

pub(super) type MakeResponse = Box<dyn Fn(&[Changed]) -> StoredResponse + Send>;

/// Sends the outcome to the client: after the commit, or when nothing will be committed.
pub(super) type SendOutcome = Box<dyn FnOnce(Outcome) + Send>;

/// The response to a mutation. It is stored under the idempotency key of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// The HTTP status.
    pub status: u16,
    /// The path of a new record.
    pub location: Option<String>,
    /// The version of a record that is there after the mutation.
    pub etag: Option<String>,
    /// Empty without one.
    pub body: Vec<u8>,
}

/// An idempotency key and the fingerprint of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The bytes of the UUID.
    pub key: [u8; 16],
    /// SHA-256 of what makes two requests the same.
    pub request: [u8; 32],
}

/// How long a response is stored, in seconds.
const KEPT_FOR: i64 = 24 * 60 * 60;

/// How a mutation ended. Only [`Outcome::Changed`] has changed anything.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    Changed(StoredResponse),
    /// The response to an earlier request with the same idempotency key.
    Replayed(StoredResponse),
    /// Another request had the same idempotency key.
    KeyReused,
    /// With the number of the rejected change.
    Rejected(usize, Rejection),
    Failed(StoreError),
}

impl Reading<'_> {
    /// The outcome of a request if its idempotency key was used in the last 24 hours.
    pub fn replay(&self, key: &IdempotencyKey, now: Timestamp) -> Result<Option<Outcome>> {
        let sql = "SELECT status, location, etag, body, request FROM idempotency
                   WHERE key = ? AND created_at > ?";
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut rows = statement.query(params![key.key, now.unix() - KEPT_FOR])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        if row.get::<_, [u8; 32]>(4)? != key.request {
            return Ok(Some(Outcome::KeyReused));
        }
        let response = StoredResponse {
            status: row.get(0)?,
            location: row.get(1)?,
            etag: row.get(2)?,
            body: row.get(3)?,
        };
        Ok(Some(Outcome::Replayed(response)))
    }
}

impl Writing<'_> {
    /// Stores the response to a request, in place of one that is over.
    fn store_response(
        &self,
        IdempotencyKey { key, request }: &IdempotencyKey,
        response: &StoredResponse,
        now: Timestamp,
    ) -> Result<()> {
        let StoredResponse { status, location, etag, body } = response;
        self.connection()
            .prepare_cached(
                "INSERT OR REPLACE INTO idempotency
                   (key, request, status, location, etag, body, created_at)
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![key, request, status, location, etag, body, now.unix()])?;
        Ok(())
    }
}

impl Mutation {
    /// Runs inside a savepoint. The caller rolls back, unless the outcome is [`Outcome::Changed`].
    /// With a `shortage`, only deletions run.
    pub(super) fn run(
        &self,
        writing: &Writing<'_>,
        shortage: Option<&StoreError>,
    ) -> Result<Outcome> {
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
            return Ok(Outcome::Failed(error.clone()));
        }
        let mut done = Vec::with_capacity(self.changes.len());
        for (number, change) in self.changes.iter().enumerate() {
            match writing.apply(change, &done) {
                Ok(changed) => done.push(changed),
                Err(error) => return Ok(Outcome::Rejected(number, error.into_rejection()?)),
            }
        }
        let response = (self.respond)(&done);
        if let Some(key) = &self.idempotency_key {
            writing.store_response(key, &response, now)?;
        }
        Ok(Outcome::Changed(response))
    }
}

/// Removes at most `count` responses that are over. Runs inside a transaction.
pub(super) fn remove_old_responses(
    connection: &Connection,
    now: Timestamp,
    count: u16,
) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM idempotency WHERE id IN
                 (SELECT id FROM idempotency WHERE created_at <= ? ORDER BY created_at LIMIT ?)";
    connection.prepare_cached(sql)?.execute(params![now.unix() - KEPT_FOR, count])
}
