//! TenantDesk: a JSON REST API for customers, employees and hardware, one SQLite file per tenant.
//!
//! ARCHITECTURE.md has the modules, and the way of a request through them.
//!
//! "Contract section 5" in a comment means this section in docs/api.md or docs/commands.md. The two
//! pages have one numbering of their sections. With docs/openapi.json, they are the contract.
//!
//! Absent on purpose: async code outside the edge, an ORM, caches of keys or records.
//! docs/decisions.md says why.

// The tests may panic, and the program may not.
#![warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
mod files;
pub mod http;
pub mod json_writer;
pub mod metrics;
pub mod model;
pub mod panel;
pub mod reference;
pub mod secret;
pub mod server;
pub mod store;
pub mod transfer;
pub mod words;
