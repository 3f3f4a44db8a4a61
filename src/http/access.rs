//! The log line of a request.

use std::net::IpAddr;
use std::time::Duration;

use uuid::Uuid;

/// What the log says about one request. Never its query, headers or body: they may hold secrets and personal data.
#[derive(Debug)]
pub struct Line<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    pub duration: Duration,
    /// The tenant's name, where the request got that far.
    pub tenant: &'a str,
    /// The first characters of the key.
    pub key: &'a str,
    pub request_id: Uuid,
    pub client: IpAddr,
}

impl Line<'_> {
    /// Writes the line, with the target `request`.
    pub fn write(&self) {
        tracing::info!(
            target: "request",
            method = self.method,
            path = self.path,
            status = self.status,
            duration_ms = self.duration.as_secs_f64() * 1e3,
            tenant = self.tenant,
            key = self.key,
            request_id = %self.request_id,
            client = %self.client,
        );
    }
}
