//! Stored responses of idempotent requests (contract section 8).

use rusqlite::{OptionalExtension as _, params};

use super::{Origin, Reading, Writing};
use crate::store::error::DatabaseError;

/// The response of a successful request, stored under its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// SHA-256 of the request.
    pub request: [u8; 32],
    /// The HTTP status.
    pub status: u16,
    /// The value of `Location`.
    pub location: Option<String>,
    /// The value of `ETag`.
    pub etag: Option<String>,
    /// The body, empty without one.
    pub body: Vec<u8>,
}

/// How long a response is stored, in seconds.
const KEPT_FOR: i64 = 24 * 60 * 60;

/// Old responses that are removed or corrected with each new one: more than one, so that their number falls.
const CHANGED_AT_ONCE: i64 = 8;

/// Seconds by which a stored response may be later than another request: requests are stored in another order than they arrive.
const TOLERANCE: i64 = 60 * 60;

impl Reading<'_> {
    /// The response stored under `key`, unless it is over 24 hours old at `now` (Unix seconds), see `Moment::steady_seconds`.
    pub fn stored_response(&self, key: &[u8; 16], now: i64) -> Result<Option<StoredResponse>, DatabaseError> {
        let sql = "SELECT request, status, location, etag, body FROM idempotency WHERE key = ? AND created_at > ?";
        let mut statement = self.connection().prepare_cached(sql)?;
        let stored = statement.query_row(params![key, now - KEPT_FOR], |row| {
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
    /// Stores a response under `key`, in place of an expired one. `origin` is that of the request.
    pub fn store_response(
        &self,
        key: &[u8; 16],
        response: &StoredResponse,
        origin: &Origin,
    ) -> Result<(), DatabaseError> {
        let StoredResponse { request, status, location, etag, body } = response;
        self.remove_expired(origin.steady_seconds)?;
        self.correct_future(origin.seconds)?;
        self.connection()
            .prepare_cached(
                "INSERT OR REPLACE INTO idempotency (key, request, status, location, etag, body, created_at)
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![key, request, status, location, etag, body, origin.seconds])?;
        Ok(())
    }

    fn remove_expired(&self, now: i64) -> Result<(), DatabaseError> {
        let sql = "DELETE FROM idempotency WHERE id IN
                     (SELECT id FROM idempotency WHERE created_at <= ? ORDER BY created_at LIMIT ?)";
        self.connection().prepare_cached(sql)?.execute([now - KEPT_FOR, CHANGED_AT_ONCE])?;
        Ok(())
    }

    /// Dates responses from the future to the present: the clock was set back since. Otherwise they would be kept too long.
    fn correct_future(&self, now: i64) -> Result<(), DatabaseError> {
        let sql = "UPDATE idempotency SET created_at = ?1 WHERE id IN
                     (SELECT id FROM idempotency WHERE created_at > ?1 + ?2 ORDER BY created_at DESC LIMIT ?3)";
        self.connection().prepare_cached(sql)?.execute([now, TOLERANCE, CHANGED_AT_ONCE])?;
        Ok(())
    }
}
