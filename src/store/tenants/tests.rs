//! Opening, closing, and the bounds on both.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::store::connection;
use crate::store::schema;

fn tenants(folder: &tempfile::TempDir, limits: TenantLimits) -> Tenants {
    Tenants::new(folder.path(), limits, Metrics::new(|_| "").into())
}

/// A data directory with the tenants 1 to `count`, without records.
fn data_dir(count: i64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(super::folder(folder.path())).unwrap();
    for id in 1..=count {
        drop(schema::create(&file(&super::folder(folder.path()), id), &SCHEMA).unwrap());
    }
    folder
}

/// Reads every page of the file.
fn read_all(tenant: &Tenant) {
    tenant.read(|reading| Ok(reading.connection().execute_batch("PRAGMA quick_check")?)).unwrap();
}

#[test]
fn what_all_tenants_take_is_bounded_together() {
    let folder = data_dir(20);
    let unbounded = tenants(&folder, TenantLimits::default());
    read_all(&unbounded.open(1).unwrap());
    let one = unbounded.shared.budget.used();
    assert!(one > 150_000, "the file has over fifty pages of 4 KiB: {one}");
    unbounded.close();
    assert_eq!(unbounded.shared.budget.used(), 0);

    let bounded = tenants(&folder, TenantLimits { memory: 5 * one, ..TenantLimits::default() });
    for id in (1..=20).chain(1..=20) {
        let tenant = bounded.open(id).unwrap();
        // A read within a read takes a second connection.
        let within = tenant.read(|_| {
            read_all(&tenant);
            Ok(())
        });
        within.unwrap();
        read_all(&tenant);
        assert!(bounded.shared.budget.used() < 8 * one, "after {id}: {}", bounded.shared.budget.used());
    }
    assert_eq!(bounded.open_count(), 20, "none was closed for it");
}

#[test]
fn few_stay_open_where_most_are_closed_again_before_their_next_use() {
    let folder = data_dir(40);
    let tenants = tenants(&folder, TenantLimits { open: 32, ..TenantLimits::default() });
    let use_in_turn = |ids: std::ops::RangeInclusive<i64>, uses: usize| {
        ids.cycle().take(uses).for_each(|id| drop(tenants.open(id).unwrap()));
    };
    use_in_turn(1..=40, 120);
    assert_eq!(tenants.open_count(), 32, "at first as many as may be");
    use_in_turn(1..=40, 2_000);
    assert_eq!(tenants.open_count(), 1);
    use_in_turn(1..=20, 1_000);
    assert_eq!(tenants.open_count(), 20, "each is found open at its next use");
}

#[test]
fn closing_a_tenant_leaves_its_log_empty_and_in_place() {
    let folder = data_dir(1);
    let tenants = tenants(&folder, TenantLimits::default());
    read_all(&tenants.open(1).unwrap());
    let log = connection::sibling_path(&file(&tenants.folder, 1), "-wal");
    let other = connection::open_raw(&file(&tenants.folder, 1)).unwrap();
    other
        .execute_batch("INSERT INTO customers (id, name, status, created_at, updated_at, search) VALUES (1, 'a', 's', 'c', 'u', 'a')")
        .unwrap();
    drop(other);
    assert!(fs::metadata(&log).unwrap().len() > 0);
    let inode = fs::metadata(&log).unwrap().ino();
    tenants.close();
    let left = fs::metadata(&log).unwrap();
    assert_eq!((left.len(), left.ino()), (0, inode));
    let found = tenants.open(1).unwrap().read(|reading| reading.exists(crate::model::ALL[0], 1));
    assert!(found.unwrap());
}
