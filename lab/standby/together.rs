//! Litestream, the server and the command line at work on the same files.

use std::time::{Duration, Instant};

use crate::load::{self, Load};
use crate::machines::{Copy, Machine, equipped, take_over};
use crate::support::server::Tenant;
use crate::support::{ALL, Api, DataDir, until};

/// Rows of the import: its one transaction is larger than what Litestream lets the log grow to
/// before it empties it.
const ROWS: usize = 5000;

/// A first machine with the tenant `acme`, which has one customer, and the destination of its copy.
fn acme() -> (Copy, Machine, Tenant, Api) {
    let first = Machine::first(DataDir::new(false));
    let tenant = first.data_dir.tenant("acme");
    let api = tenant.with_scopes(ALL);
    api.customer("First");
    (Copy::to_directory(), first, tenant, api)
}

#[test]
fn backup_import_and_restore_go_on_beside_the_copy() {
    if !equipped() {
        return;
    }
    let copy = Copy::to_directory();
    let first = Machine::first(DataDir::new(false));
    let data_dir = &first.data_dir;
    let known = load::tenants(data_dir, 4);
    let file = |name: &str| data_dir.home().join(name).to_str().unwrap().to_owned();
    let old_backup = file("old");
    // Litestream's own tables are not compared.
    data_dir.with_key(&known[0].key).customer("From before");
    data_dir.cli(&["backup", &old_backup, "shop-0"]).done();

    let mut copying = copy.begin(data_dir);
    copy.await_begun(known.iter().map(|tenant| tenant.id));
    let load = Load::begin(data_dir, &known[1..], 6, false);
    let rows: String = (0..ROWS).map(|n| format!("Row {n},{}\n", "x".repeat(200))).collect();
    std::fs::write(file("rows.csv"), format!("name,notes\n{rows}")).unwrap();
    for _ in 0..2 {
        data_dir.cli(&["import", "shop-0", "customers", &file("rows.csv")]).done();
        data_dir.cli(&["backup", &file("all")]).done();
        data_dir.cli(&["import", "shop-1", "customers", &file("rows.csv")]).done();
        data_dir.cli(&["restore", &old_backup, "shop-0", "--force"]).done();
        assert_eq!(data_dir.with_key(&known[0].key).total("/customers.php"), 1);
        data_dir.cli(&["restore", &file("all"), "shop-0", "--force"]).done();
        data_dir.cli(&["check"]).done();
    }
    let changes = load.end();
    let slowest = changes.iter().map(|change| change.acknowledged - change.sent).max().unwrap();
    eprintln!(
        "beside all that: {} changes, the slowest took {:.2} s",
        changes.len(),
        slowest.as_secs_f64()
    );
    assert!(slowest < Duration::from_secs(10));

    let export = |data_dir: &DataDir, name: &str| {
        data_dir.cli(&["export", name, "customers", "--format", "jsonl"]).stdout
    };
    let ended = Instant::now();
    until("the copy is what the first machine holds", || {
        let second = DataDir::new(false);
        let fetched = take_over(&second, &copy).output().unwrap();
        let same = fetched.status.success()
            && known
                .iter()
                .all(|tenant| export(data_dir, &tenant.name) == export(&second, &tenant.name));
        same.then(|| second.cli(&["check"]).done())
    });
    eprintln!("the copy had caught up after {:.1} s", ended.elapsed().as_secs_f64());
    assert_eq!(copying.complaints(), Vec::<String>::new());
    assert!(!first.log().contains("cannot"), "{}", first.log());
    copying.kill();
}

/// A deleted tenant's file is removed, although Litestream holds it open.
#[test]
fn a_deleted_tenant_leaves_nothing_in_the_data_directory() {
    if !equipped() {
        return;
    }
    let (copy, first, tenant, _) = acme();
    let _copying = copy.begin(&first.data_dir);
    copy.await_begun([tenant.id]);
    tenant.ask("delete", &["--yes"]);
    let left = || {
        std::fs::read_dir(first.data_dir.data().join("tenants"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
    };
    until("nothing is left", || (left().count() == 0).then_some(()));
    first.data_dir.cli(&["check"]).done();
}

/// If a missing file is replaced by another one of its name, Litestream does not copy it until it
/// is started again. `restore` says so.
#[test]
fn a_file_that_restore_replaced_is_copied_again_by_a_litestream_started_anew() {
    if !equipped() {
        return;
    }
    let (copy, first, tenant, api) = acme();
    let backups = first.data_dir.home().join("backups");
    let backups = backups.to_str().unwrap();
    first.data_dir.cli(&["backup", backups, "acme"]).done();
    let mut copying = copy.begin(&first.data_dir);
    copy.await_begun([tenant.id]);
    for file in tenant.files() {
        let _ = std::fs::remove_file(file);
    }
    let restored = first.data_dir.cli(&["restore", backups, "acme", "--force"]).done();
    assert!(restored.stderr.contains("restart it"), "{restored:?}");
    api.customer("Second");
    copying.kill();
    let _copying = copy.begin(&first.data_dir);
    copy.await_customers("acme", 2);
}
