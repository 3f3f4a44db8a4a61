//! A commit that cannot be synced, and that the copy has already. It is refused, and the copy then has what the file has.

use std::sync::Arc;

use serde_json::json;

use crate::machines::{Copy, Copying, Machine, equipped, take_over};
use crate::support::syncs::Syncs;
use crate::support::{ALL, Api, DataDir, Tenant, until};

const LOG: &str = "/1.db-wal";

struct Fixture {
    copy: Copy,
    syncs: Syncs,
    tenant: Tenant,
    api: Api,
    copying: Copying,
    machine: Machine,
}

impl Fixture {
    /// A tenant with so many customers that most of their pages are not in the write-ahead log.
    fn new() -> Fixture {
        let (copy, syncs, data_dir) = (Copy::to_directory(), Syncs::new(), DataDir::new(false));
        let tenant = data_dir.tenant("acme");
        let rows = data_dir.home().join("rows.csv");
        let notes = "x".repeat(200);
        let row = |n: usize| format!("Customer {n},{notes}\n");
        std::fs::write(&rows, format!("name,notes\n{}", (0..2_000).map(row).collect::<String>())).unwrap();
        data_dir.cli(&["import", "acme", "customers", rows.to_str().unwrap()]).done();
        let copying = copy.begin(&data_dir);
        copy.await_begun([tenant.id]);
        let machine = Machine::confirmed_as(Arc::clone(&data_dir), &copy, |command| syncs.observe(command));
        let api = tenant.with_scopes(ALL);
        Fixture { copy, syncs, tenant, api, copying, machine }
    }

    /// A command has the copy confirm all that Litestream finds in the log.
    fn copy_all(&self) {
        self.machine.data_dir.cli_with_copy(&self.copy.socket(), &["copy", "resume"]).done();
    }

    /// A change that cannot be synced. Litestream has copied it before it is refused.
    fn refuse(&self, target: &str, notes: &str) {
        self.syncs.take();
        self.syncs.hold(LOG);
        self.syncs.fail(LOG);
        let change = self.api.call("PUT", target).json(&json!({"notes": notes})).start();
        until("the change waits for the disk", || {
            self.syncs.has_synced(&self.tenant.file().with_file_name("1.db-wal")).then_some(())
        });
        self.copy_all();
        self.syncs.release();
        change.reply().fails_with(503, "tenant_unavailable");
        self.syncs.succeed();
    }

    /// The customers of the first machine, which fails, and of the second.
    fn take_over(mut self) -> (String, String) {
        let export =
            |data_dir: &DataDir| data_dir.cli(&["export", "acme", "customers", "--format", "jsonl"]).done().stdout;
        let first = export(&self.machine.data_dir);
        self.machine.kill();
        self.copying.kill();
        let second = DataDir::new(false);
        assert!(take_over(&second, &self.copy).status().unwrap().success());
        second.cli(&["check"]).done();
        (first, export(&second))
    }
}

#[test]
fn a_change_that_the_copy_had_before_it_was_refused_hides_no_later_one() {
    if !equipped() {
        return;
    }
    let fixture = Fixture::new();
    fixture.api.put("/customers.php?id=1", json!({"notes": "before"})).is(200);
    // Both write the same pages, the last of them with the same content.
    fixture.refuse("/customers.php?id=1", "refused");
    fixture.api.put("/customers.php?id=1", json!({"notes": "changed"})).is(200);
    let (first, second) = fixture.take_over();
    assert!(first.contains("\"changed\"") && !first.contains("\"refused\""), "{}", first.lines().next().unwrap());
    assert!(second == first, "the copy has {}", second.lines().next().unwrap());
}

#[test]
fn a_change_that_the_copy_had_before_it_was_refused_is_not_left_in_the_copy() {
    if !equipped() {
        return;
    }
    let fixture = Fixture::new();
    fixture.refuse("/customers.php?id=1000", "refused");
    fixture.api.put("/customers.php?id=1", json!({"notes": "changed"})).is(200);
    let (first, second) = fixture.take_over();
    assert!(first.contains("\"changed\"") && !first.contains("\"refused\""));
    assert!(!second.contains("\"refused\""), "the copy has the refused change");
    assert!(second == first, "the copy has other customers");
}
