//! The write-ahead log of a file starts again from its beginning while clients write, and the copy
//! lacks no page of it.

use std::io::Read as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::load::{self, Load};
use crate::machines::{Copy, Machine, equipped};
use crate::support::{ALL, DataDir, until};

/// Records of one tenant, each committed alone or with a few others: the log starts again some ten
/// times.
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
    let mut first = Machine::first(Arc::clone(&data_dir));
    let load = Load::begin(&data_dir, &known, 8, false);
    let api = data_dir.with_key(&known[0].key);
    let began = Instant::now();
    while api.total("/customers.php") < RECORDS {
        assert!(began.elapsed() < DEADLINE, "clients are not answered");
        thread::sleep(Duration::from_millis(100));
    }
    load.end();
    let second =
        copy.await_customers("shop-0", usize::try_from(api.total("/customers.php")).unwrap());
    second.cli(&["check"]).done();
    let expected =
        data_dir.cli(&["export", "shop-0", "customers", "--format", "jsonl"]).done().stdout;
    first.kill();
    copying.kill();
    let found = second.cli(&["export", "shop-0", "customers", "--format", "jsonl"]).done().stdout;
    assert!(found == expected, "the copy has other records");
}

/// More than the server lets a log grow to, and less than what is written in these tests.
const LOG_LIMIT: u64 = 64 << 20;

/// Litestream recognises by the end of the last log that it has seen all of it. It has not seen
/// what came after its own end.
#[test]
fn the_copy_has_what_was_written_while_litestream_did_not_run() {
    if !equipped() {
        return;
    }
    let copy = Copy::to_directory();
    let mut first = Machine::first(DataDir::new(false));
    let data_dir = Arc::clone(&first.data_dir);
    let tenant = data_dir.tenant("acme");
    let api = tenant.with_scopes(ALL);
    let mut copying = copy.begin(&data_dir);
    copy.await_begun([tenant.id]);
    for number in 0..40 {
        api.customer(&format!("Customer {number}"));
    }
    copy.await_customers("acme", 40);
    copying.kill();
    let log = tenant.file().with_file_name("1.db-wal");
    let rows = data_dir.home().join("rows.csv");
    std::fs::write(
        &rows,
        format!("name,notes\n{}", format!("Row,{}\n", "x".repeat(1_000)).repeat(2_000)),
    )
    .unwrap();
    // Its beginning changes when the log starts again.
    let beginning = || {
        let mut beginning = Vec::new();
        std::fs::File::open(&log).unwrap().take(32).read_to_end(&mut beginning).unwrap();
        beginning
    };
    let earlier = beginning();
    data_dir.cli(&["import", "acme", "customers", rows.to_str().unwrap()]).done();
    until("the log starts again", || {
        api.customer("Small");
        (beginning() != earlier).then_some(())
    });
    copying = copy.begin(&data_dir);
    api.customer("Later");
    let second =
        copy.await_customers("acme", usize::try_from(api.total("/customers.php")).unwrap());
    let export = |data_dir: &DataDir| {
        data_dir.cli(&["export", "acme", "customers", "--format", "jsonl"]).done().stdout
    };
    assert!(export(&second) == export(&data_dir), "the copy has other customers");
    first.kill();
    copying.kill();
}

/// Whether or not Litestream runs, the server copies the log into the file.
#[test]
fn the_log_stays_short_while_litestream_does_not_run() {
    if !equipped() {
        return;
    }
    let (copy, data_dir) = (Copy::to_directory(), DataDir::new(false));
    let tenant = data_dir.tenant("acme");
    let mut copying = copy.begin(&data_dir);
    copy.await_begun([tenant.id]);
    let mut machine = Machine::first(Arc::clone(&data_dir));
    let api = tenant.with_scopes(ALL);
    api.customer("With the copy");
    copy.await_customers("acme", 1);
    copying.kill();
    let length = || std::fs::metadata(tenant.file().with_file_name("1.db-wal")).unwrap().len();
    let customer = json!({"method": "POST", "path": "/customers.php", "body": {"name": "Without", "notes": "x".repeat(4_000)}});
    let batch = json!({"operations": vec![customer; 100]});
    // Each writes some 3 MB.
    for _ in 0..40 {
        api.post("/batch.php", batch.clone()).is(200);
        assert!(length() < LOG_LIMIT, "{} bytes", length());
    }
    copying = copy.begin(&data_dir);
    api.customer("Again with the copy");
    let second =
        copy.await_customers("acme", usize::try_from(api.total("/customers.php")).unwrap());
    let expected =
        data_dir.cli(&["export", "acme", "customers", "--format", "jsonl"]).done().stdout;
    machine.kill();
    copying.kill();
    second.cli(&["check"]).done();
    let found = second.cli(&["export", "acme", "customers", "--format", "jsonl"]).done().stdout;
    assert!(found == expected, "the copy has other customers");
}
