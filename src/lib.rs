//! TenantDesk: a JSON REST API for customers, employees and hardware, one SQLite file per tenant.

pub mod api;
pub mod app;
pub mod cli;
pub mod clock;
pub mod error;
pub mod http;
pub mod password;
pub mod resources;
pub mod secret;
pub mod store;
pub mod turns;
