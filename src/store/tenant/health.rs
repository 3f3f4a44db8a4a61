//! Whether one tenant's file can be used. A failure is logged once, not for every request, and once
//! more when it has ended.

use std::fmt::Display;

use parking_lot::Mutex;
use rusqlite::ErrorCode;

use crate::model::TenantId;
use crate::store::error::StoreError;

/// What a file is used for. Opening counts as reading.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Reading,
    Writing,
}

/// The present failures of one tenant's file.
#[derive(Debug)]
pub(super) struct Health {
    tenant: TenantId,
    reading: Mutex<Option<String>>,
    writing: Mutex<Option<String>>,
}

impl Health {
    pub(super) fn new(tenant: TenantId) -> Health {
        Health { tenant, reading: Mutex::default(), writing: Mutex::default() }
    }

    fn known(&self, usage: Use) -> &Mutex<Option<String>> {
        match usage {
            Use::Reading => &self.reading,
            Use::Writing => &self.writing,
        }
    }

    pub(super) fn works(&self, usage: Use) {
        if self.known(usage).lock().take().is_some() {
            tracing::info!(tenant = %self.tenant, ?usage, "the tenant's file can be used again");
        }
    }

    /// Returns the answer to the request.
    pub(super) fn fails(&self, usage: Use, cause: &dyn Display) -> StoreError {
        let cause = cause.to_string();
        let mut known = self.known(usage).lock();
        if known.as_ref() != Some(&cause) {
            tracing::error!(tenant = %self.tenant, ?usage, cause, "the tenant's file cannot be used");
            *known = Some(cause);
        }
        StoreError::Unavailable
    }

    /// The answer to a mutation that failed in the database.
    pub(super) fn write_failed(&self, error: &rusqlite::Error) -> StoreError {
        let answer = self.fails(Use::Writing, error);
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::DiskFull,
            _ => answer,
        }
    }
}
