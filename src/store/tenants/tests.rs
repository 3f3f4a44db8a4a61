//! Opening, closing, and the bounds on both.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::clock::Clock;
use crate::metrics::StoreGauges;
use crate::model::Value;
use crate::store::connection;
use crate::store::error::MutationError;
use crate::store::records::{KeyLabel, Origin};
use crate::store::schema;
use uuid::Uuid;

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
    // The maintenance thread may hold a tenant for a moment.
    wait_until(|| unbounded.shared.budget.used() == 0);

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
    add_customer(&tenants.open(1).unwrap(), "");
    let log = connection::sibling_path(&file(&tenants.folder, 1), "-wal");
    let other = connection::open_raw(&file(&tenants.folder, 1)).unwrap();
    other.execute_batch("UPDATE customers SET updated_at = created_at").unwrap();
    drop(other);
    assert!(fs::metadata(&log).unwrap().len() > 0);
    let inode = fs::metadata(&log).unwrap().ino();
    tenants.close();
    let left = fs::metadata(&log).unwrap();
    assert_eq!((left.len(), left.ino()), (0, inode));
    let found = tenants.open(1).unwrap().read(|reading| reading.exists(crate::model::ALL[0], 1));
    assert!(found.unwrap());
}

/// Inserts a customer in a commit of its own and waits for the commit.
fn add_customer(tenant: &Arc<Tenant>, notes: &str) {
    let resource = crate::model::ALL[0];
    let text = |name: &str| match name {
        "name" => Some("Customer".to_owned()),
        "notes" => Some(notes.to_owned()),
        _ => None,
    };
    let value = |field: &crate::model::Field| text(field.name).map_or_else(|| field.default_value(), Value::Text);
    let values = resource.fields.iter().map(value).collect();
    let key = KeyLabel { id: 1, name: "key".to_owned(), prefix: "tdk_abcd".to_owned() };
    let origin = Origin::new(Clock::system().now(), key, Uuid::nil());
    let (report, outcome) = std::sync::mpsc::channel();
    tenant.mutate(
        move |writing| writing.insert(resource, values, &origin).map_err(MutationError::<()>::from),
        move |outcome| report.send(outcome.map(drop)).unwrap(),
    );
    outcome.recv().unwrap().unwrap();
}

/// Waits until `condition` holds, for at most half a minute.
#[track_caller]
fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "the condition does not become true");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Fewer than 16 segments stay on each of the three levels that a few hundred commits make.
const FEW: u64 = 3 * 16;

fn segments(tenant: &Tenant) -> u64 {
    tenant.read(|reading| Ok(crate::store::records::most_segments(reading.connection())?)).unwrap()
}

#[test]
fn search_segments_are_merged_between_commits() {
    let folder = data_dir(1);
    let tenants = tenants(&folder, TenantLimits::default());
    let tenant = tenants.open(1).unwrap();
    for n in 0..300 {
        add_customer(&tenant, &format!("note {n}"));
    }
    wait_until(|| segments(&tenant) < FEW);
    wait_until(|| (1..FEW).contains(&tenants.most_search_segments()));
    assert!(tenants.shared.metrics.render(StoreGauges::default()).contains("tenantdesk_search_merge_seconds_count"));
}

#[test]
fn search_segments_are_bounded_while_commits_never_pause() {
    let folder = data_dir(1);
    let tenants = tenants(&folder, TenantLimits::default());
    let tenant = tenants.open(1).unwrap();
    let commits = 2_000;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| (0..commits).for_each(|n| add_customer(&tenant, &format!("note {n}"))));
        let mut most = 0;
        while !writing.is_finished() {
            most = most.max(segments(&tenant));
        }
        assert!(most < commits / 2, "{most} segments of {commits} commits");
    });
}

#[test]
fn segments_that_a_server_left_are_merged_after_a_restart_that_only_reads() {
    let folder = data_dir(1);
    let other = schema::open(&file(&super::folder(folder.path()), 1), &SCHEMA).unwrap();
    for id in 1..=100 {
        other.execute("INSERT INTO customers_search (rowid, terms) VALUES (?, 'customer')", [id]).unwrap();
    }
    drop(other);
    let tenants = tenants(&folder, TenantLimits::default());
    let tenant = tenants.open(1).unwrap();
    assert_eq!(segments(&tenant), 100);
    wait_until(|| segments(&tenant) < FEW);
}

#[test]
fn the_write_ahead_log_starts_again_although_commits_never_pause() {
    let folder = data_dir(1);
    let tenants = tenants(&folder, TenantLimits::default());
    let tenant = tenants.open(1).unwrap();
    let log = connection::sibling_path(&file(&tenants.folder, 1), "-wal");
    let database = || fs::metadata(file(&tenants.folder, 1)).unwrap().len();
    let notes = "x".repeat(100_000);
    let mut longest = 0;
    std::thread::scope(|scope| {
        let write = || (0..250).for_each(|_| add_customer(&tenant, &notes));
        for thread in [scope.spawn(write), scope.spawn(write)] {
            while !thread.is_finished() {
                longest = longest.max(fs::metadata(&log).unwrap().len());
                std::thread::yield_now();
            }
        }
    });
    assert!(longest < 40 << 20, "{longest} bytes for 100 MB");
    wait_until(|| database() > 50 << 20);
}
