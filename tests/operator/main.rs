//! An operator's day: what a service is asked and told by those who run it.

#[path = "../support/mod.rs"]
mod support;

mod doctor;
mod help;
mod metrics;
mod supervisor;
