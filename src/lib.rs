//! TenantDesk: a JSON REST API for customers, employees and hardware, one SQLite file per tenant.
//!
//! A request goes through the modules in one direction. No layer calls upward.
//!
//! | module | task |
//! |---|---|
//! | [`edge`] | reads the request from the client and validates the HTTP message |
//! | [`workers`] | brings the request to a worker when its tenant has its turn |
//! | [`app`] | decides who answers the request |
//! | [`api`] | makes the checks of contract section 5 in their order |
//! | [`model`] | declares the fields of a record |
//! | [`store`] | keeps records on disk |
//! | [`cli`] | is the command line |
//!
//! "Contract section 5" in a comment means this section in docs/api.md or docs/commands.md. The two
//! pages together are the contract, and count their sections as one.
//!
//! Absent on purpose: async code outside the edge, an ORM, global state, caches of keys or records.
//! docs/decisions.md says why.

pub mod api;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod edge;
mod files;
pub mod http;
pub mod json_writer;
pub mod metrics;
pub mod model;
pub mod panel;
pub mod password;
mod process;
pub mod reference;
pub mod secret;
pub mod store;
pub mod transfer;
pub mod words;
pub mod workers;
