//! The write-ahead log of a file starts again from its beginning while clients write, and the confirmed copy lacks no page of it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{self, Load};
use crate::machines::{Copy, Machine, equipped, take_over};
use crate::support::DataDir;

/// Records of one tenant, each committed alone or with a few others: the log starts again some ten times.
const RECORDS: i64 = 4_000;

/// Generous: a busy machine makes some dozen a second.
const DEADLINE: Duration = Duration::from_mins(5);

#[test]
fn the_copy_has_every_page_although_the_log_starts_again() {
    if !equipped() {
        return;
    }
    let copy = Copy::to_directory();
    let data_dir = DataDir::new(false);
    let known = load::tenants(&data_dir, 1);
    let mut copying = copy.begin(&data_dir);
    let mut first = Machine::confirmed(Arc::clone(&data_dir), &copy);
    let load = Load::begin(&data_dir, &known, 8, false);
    let api = data_dir.with_key(&known[0].key);
    let began = Instant::now();
    while api.total("/customers.php") < RECORDS {
        assert!(began.elapsed() < DEADLINE, "clients are not answered");
        thread::sleep(Duration::from_millis(100));
    }
    load.end();
    let expected = data_dir.cli(&["export", "shop-0", "customers", "--format", "jsonl"]).done().stdout;
    first.kill();
    copying.kill();

    let second = DataDir::new(false);
    assert!(take_over(&second, &copy).status().unwrap().success());
    second.cli(&["check"]).done();
    let found = second.cli(&["export", "shop-0", "customers", "--format", "jsonl"]).done().stdout;
    assert!(found == expected, "the copy has other records");
}
