//! Black-box tests of the contract: one module for each topic. Each test name states what a
//! client or an operator observes.

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "each test binary needs another part of it")]
mod support;

mod addressing;
mod backup;
mod batch;
mod bulk;
mod changes;
mod command_line;
mod custom_fields;
mod faults;
mod histories;
mod idempotency;
mod imports;
mod include;
mod key_commands;
mod keys;
mod lists;
mod logs;
mod messages;
mod model;
mod operations;
mod order_of_checks;
mod past;
mod rate_limit;
mod records;
mod references;
mod scale;
mod search;
mod space;
mod storage;
mod undo;
mod update_by;
mod versions;
