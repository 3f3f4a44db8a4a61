//! The first machine is stopped at a random moment, and the second takes over.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use crate::load::{self, Change, Known, Load};
use crate::machines::{Copy, Machine, equipped};
use crate::support::{DataDir, uuid};

/// A number that an environment variable may change.
fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

/// `STANDBY_ROUNDS=10 STANDBY_TENANTS=50` is the long form. Every other round copies over SFTP.
/// Each round continues with the data of the previous one.
#[test]
fn the_second_machine_holds_a_prefix_of_what_each_tenant_acknowledged() {
    if !equipped() {
        return;
    }
    let (rounds, tenants) = (number("STANDBY_ROUNDS", 2), number("STANDBY_TENANTS", 10));
    let data_dir = DataDir::new(false);
    let known = load::tenants(&data_dir, tenants);
    let mut machine = Machine::first(data_dir);
    for round in 1..=rounds {
        let copy = if round % 2 == 1 { Copy::to_directory() } else { Copy::to_second_host() };
        machine = one_round(round, machine, &copy, &known);
    }
}

fn one_round(round: usize, mut first: Machine, copy: &Copy, known: &[Known]) -> Machine {
    let before: Vec<Records> = known.iter().map(|tenant| records(&first, tenant)).collect();
    let mut copying = copy.begin(&first.data_dir);
    let load = Load::begin(&first.data_dir, known, 16, true);
    copy.await_begun(known.iter().map(|tenant| tenant.id));
    let random = u64::from_str_radix(&uuid()[..8], 16).unwrap();
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(1000 + random % 2000));
    let worked = began.elapsed();
    let killed = Instant::now();
    first.kill();
    copying.kill();
    let changes = load.end();

    let second = Machine::second(copy);
    let checked = second.data_dir.cli(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let mut lost = Vec::new();
    for (n, tenant) in known.iter().enumerate() {
        let after = records(&second, tenant);
        let old: Vec<&i64> = before[n].keys().filter(|id| !after.contains_key(id)).collect();
        assert!(old.is_empty(), "{} lacks records from before this round: {old:?}", tenant.name);
        let changes: Vec<&Change> = changes.iter().filter(|change| change.tenant == n).collect();
        lost.extend(check_prefix(tenant, &after, &changes));
        let api = second.data_dir.with_key(&tenant.key);
        let found = api.total("/customers.php?q=entry");
        assert_eq!(found, i64::try_from(after.len()).unwrap(), "the search goes with them");
    }
    let tail = lost
        .iter()
        .map(|change| killed.saturating_duration_since(change.acknowledged))
        .max()
        .unwrap_or_default();
    eprintln!(
        "round {round}: {} changes acknowledged, the last {:.1} s of them measured; lost {}, the oldest {:.2} s before the end; \
         second machine serves after {:.1} s",
        changes.len(),
        worked.as_secs_f64(),
        lost.len(),
        tail.as_secs_f64(),
        second.took.as_secs_f64()
    );
    assert!(tail < Duration::from_secs(30), "lost {tail:?}: {}", copying.log());
    second
}

/// Names by id. Each has its name in its notes, too: no change is there in part.
type Records = BTreeMap<i64, String>;

fn records(machine: &Machine, tenant: &Known) -> Records {
    let api = machine.data_dir.with_key(&tenant.key);
    let mut records = Records::new();
    for record in api.all("/customers.php?limit=200&sort=id") {
        assert_eq!(record["name"], record["notes"]);
        records.insert(record["id"].as_i64().unwrap(), record["name"].as_str().unwrap().to_owned());
    }
    records
}

/// Checks that no change is missing that was acknowledged before one that is present was sent.
/// Returns the missing changes.
#[track_caller]
fn check_prefix<'a>(tenant: &Known, records: &Records, changes: &[&'a Change]) -> Vec<&'a Change> {
    let names: HashSet<&String> = records.values().collect();
    let (kept, lost): (Vec<&Change>, Vec<&Change>) =
        changes.iter().copied().partition(|change| names.contains(&change.name));
    let first_lost = lost.iter().min_by_key(|change| change.acknowledged);
    let last_kept = kept.iter().max_by_key(|change| change.sent);
    if let (Some(first_lost), Some(last_kept)) = (first_lost, last_kept) {
        assert!(
            last_kept.sent < first_lost.acknowledged,
            "{}: {first_lost:?} is lost, but {last_kept:?} is there",
            tenant.name
        );
    }
    let last = records.keys().last().copied().unwrap_or(0);
    assert_eq!(i64::try_from(records.len()).unwrap(), last, "{}: ids without a gap", tenant.name);
    lost
}
