//! How much a tenant may still write (contract section 6, `tenant_unavailable`).

use std::path::Path;

use rusqlite::Connection;
use rustix::fs::statvfs;

use crate::store::error::StoreError;

/// Writes of tenants stop while less than this is free, so that the registry has room: keys can
/// still be revoked and tenants suspended.
const RESERVE: u64 = 64 << 20;

/// What deletions may take beyond the limit: they write before they free.
const MARGIN: u64 = 64 << 20;

const PAGE: u64 = 4 << 10;

/// Has SQLite itself refuse to let the file grow far beyond `max_size` bytes.
pub(super) fn limit(connection: &Connection, max_size: u64) -> rusqlite::Result<()> {
    let pages = i64::try_from(max_size.saturating_add(MARGIN) / PAGE).unwrap_or(i64::MAX);
    // SQLite's own highest limit.
    let pages = pages.min(4_294_967_294);
    connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
}

/// Why nothing but deletions may be written now; `None` where there is room.
pub(super) fn shortage(
    connection: &Connection,
    file: &Path,
    max_size: u64,
) -> rusqlite::Result<Option<StoreError>> {
    if statvfs(file).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < RESERVE) {
        return Ok(Some(StoreError::DiskFull));
    }
    let count =
        |pragma: &str| connection.prepare_cached(pragma)?.query_row([], |row| row.get::<_, i64>(0));
    let used = count("PRAGMA page_count")?.saturating_sub(count("PRAGMA freelist_count")?);
    let used = u64::try_from(used).unwrap_or(0).saturating_mul(PAGE);
    Ok((used >= max_size).then_some(StoreError::SizeLimit))
}
