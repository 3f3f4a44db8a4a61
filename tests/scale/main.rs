//! Every command and every operation beside many records of one resource. Each succeeds with the
//! right result and bounded memory. Its time does not grow faster than the number of records.
//!
//! `cargo test --release --test scale -- --ignored --nocapture` takes a million records and some
//! minutes, and prints a table.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

mod commands;
mod measure;
mod operations;
mod records;

use measure::Table;
use support::TestServer;

/// No process of the service may take more, in MiB.
const MEMORY_LIMIT: u64 = 200;

/// SQLite's temporary files of a process may not be larger, in bytes for each record: where they go
/// may be small, or memory. An import into an empty table sorts the values of a column for its index.
const TEMPORARY_LIMIT: u64 = 64;

#[test]
fn a_few_thousand_records() {
    run(2_000);
}

#[test]
#[ignore = "takes minutes, and some GiB of disk"]
fn a_million_records() {
    let small = run(100_000);
    let large = run(1_000_000);
    println!("100,000 records\n{small}\n1,000,000 records\n{large}");
    large.assert_grows_with(&small, 10.0);
}

/// Does everything there is to do beside so many records.
fn run(count: i64) -> Table {
    let mut table = Table::default();
    let mut server = TestServer::without_rate_limit();
    let tenant = server.tenant("acme");
    let api = tenant.with_scopes(support::ALL);
    commands::import(&server, &api, count, &mut table);
    operations::lists(&server, &api, count, &mut table);
    operations::searches(&server, &api, count, &mut table);
    commands::export(&server, count, &mut table);
    commands::backup_and_check(&server, count, &mut table);
    operations::changes(&server, &api, count, &mut table);
    commands::restore(&server, &api, count, &mut table);
    server.stop();
    table.assert_below(MEMORY_LIMIT << 20, (64 << 10) + TEMPORARY_LIMIT * count.unsigned_abs());
    table
}
