//! An operator's day: what a service is asked and told by those who run it.

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

mod doctor;
mod examples;
mod help;
mod metrics;
mod supervisor;
