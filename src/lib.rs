//! TenantDesk: a JSON REST API for customers, employees and hardware, one SQLite file per tenant.
//!
//! A request goes through the modules in one direction. [`edge`] reads it from the client and
//! validates the HTTP message. [`http`] brings it to a worker. [`api`] makes the checks of contract
//! section 5 in their order. [`model`] declares the fields of a record. [`store`] keeps records on
//! disk. [`cli`] is the command line. No layer calls upward.
//!
//! Absent on purpose: async code outside the edge, an ORM, global state, caches of keys or records.
//! docs/decisions.md says why.

mod allocator;
pub mod api;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod edge;
mod files;
pub mod html;
pub mod http;
pub mod json_writer;
pub mod metrics;
pub mod model;
pub mod panel;
pub mod password;
pub mod readiness;
pub mod reference;
pub mod secret;
pub mod server;
pub mod store;
pub mod transfer;
pub mod words;
