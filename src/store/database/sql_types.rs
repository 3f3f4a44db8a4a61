//! Ids, versions and timestamps as SQL values.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use crate::clock::Timestamp;
use crate::model::{KeyId, RecordId, TenantId, Version};

impl ToSql for TenantId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for TenantId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<TenantId> {
        value.as_i64().map(TenantId)
    }
}

impl ToSql for KeyId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for KeyId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<KeyId> {
        value.as_i64().map(KeyId)
    }
}

impl ToSql for RecordId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for RecordId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<RecordId> {
        value.as_i64().map(RecordId)
    }
}

impl ToSql for Version {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for Version {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Version> {
        value.as_i64().map(Version)
    }
}

/// RFC 3339 in UTC and whole seconds, whose order as text is that of time.
impl ToSql for Timestamp {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.to_string().into())
    }
}

impl FromSql for Timestamp {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Timestamp> {
        value.as_str()?.parse().map_err(FromSqlError::other)
    }
}
