//! Stored responses of idempotent requests (contract section 8).

use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Reading, Writing};
use crate::clock::Timestamp;
use crate::store::error::DatabaseError;

/// The response of a successful request, stored under its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// SHA-256 of the request.
    pub request: [u8; 32],
    /// The HTTP status.
    pub status: u16,
    pub location: Option<String>,
    pub etag: Option<String>,
    /// Empty without one.
    pub body: Vec<u8>,
}

/// How long a response is stored, in seconds.
const KEPT_FOR: i64 = 24 * 60 * 60;

impl Reading<'_> {
    /// The response stored under `key`, unless it is over 24 hours old.
    pub fn stored_response(
        &self,
        key: &[u8; 16],
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, DatabaseError> {
        let sql = "SELECT request, status, location, etag, body FROM idempotency
                   WHERE key = ? AND created_at > ?";
        let mut statement = self.connection.prepare_cached(sql)?;
        let stored = statement.query_row(params![key, now.unix() - KEPT_FOR], |row| {
            Ok(StoredResponse {
                request: row.get(0)?,
                status: row.get(1)?,
                location: row.get(2)?,
                etag: row.get(3)?,
                body: row.get(4)?,
            })
        });
        Ok(stored.optional()?)
    }
}

impl Writing<'_> {
    /// Stores a response under `key`, in place of one that is over.
    pub fn store_response(
        &self,
        key: &[u8; 16],
        response: &StoredResponse,
        now: Timestamp,
    ) -> Result<(), DatabaseError> {
        let StoredResponse { request, status, location, etag, body } = response;
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

/// Removes at most `count` responses that are over. Runs inside a transaction.
pub(crate) fn remove_old_responses(
    connection: &Connection,
    now: Timestamp,
    count: i64,
) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM idempotency WHERE id IN
                 (SELECT id FROM idempotency WHERE created_at <= ? ORDER BY created_at LIMIT ?)";
    connection.prepare_cached(sql)?.execute([now.unix() - KEPT_FOR, count])
}
