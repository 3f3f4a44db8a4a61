//! TenantDesk: a JSON REST API for customers, employees and hardware, one SQLite file per tenant.

pub mod api;
pub mod app;
pub mod cli;
pub mod clock;
pub mod error;
pub mod gate;
pub mod http;
pub mod password;
pub mod resources;
pub mod secret;
pub mod service;
pub mod store;
pub mod turns;
