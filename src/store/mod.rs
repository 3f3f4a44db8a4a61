//! The databases: the registry of tenants and keys, and one file of records for each tenant.

pub mod connection;

pub use connection::OpenError;
