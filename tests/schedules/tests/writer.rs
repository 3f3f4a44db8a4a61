//! Mutations on their way to the writers of tenants that are closed and opened again.

use std::panic;
use std::path::Path;
use std::time::Duration;

use schedules::explore::{explore, finds};
use schedules::faults::Fault;
use schedules::stand_ins::monitor::Monitor;
use schedules::stand_ins::program::config::TenantLimits;
use schedules::stand_ins::program::model::TenantId;
use schedules::stand_ins::rusqlite;
use schedules::store::error::{MutationError, StoreError};
use schedules::store::records::Writing;
use schedules::store::tenant::{MutationSize, Tenants};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::thread;

const CLIENTS: u32 = 3;

/// Of each client.
const MUTATIONS: u32 = 4;

const ONE: MutationSize = MutationSize { operations: 1, frees_space: false };

/// The outcome of each mutation, by its record: whether it was committed.
type Outcomes = Arc<Monitor<Vec<(u32, bool)>>>;

/// One tenant is open at a time, so the other is closed for it.
fn tenants() -> Arc<Tenants> {
    rusqlite::new_disk();
    let limits = TenantLimits { open: 1, keep_changes: Duration::ZERO, max_size: u64::MAX };
    Arc::new(Tenants::new(Path::new(""), limits))
}

/// Submits a mutation that inserts `record` and then fails in some way, or does not.
fn submit(tenants: &Tenants, record: u32, outcomes: &Outcomes) {
    let (ending, tenant) = (thread_rng().gen_range(0..6), thread_rng().gen_range(1..=2));
    let outcomes = Arc::clone(outcomes);
    let tell = move |is_committed| {
        outcomes.change_for_all(|told| told.push((record, is_committed)));
    };
    let Ok(tenant) = tenants.open(TenantId(tenant)) else { return tell(false) };
    let work = move |writing: &Writing<'_>| {
        writing.insert(record)?;
        match ending {
            0 => Err(MutationError::Rejected(())),
            // Without the panic hook, which takes it for the end of the scenario.
            1 => panic::resume_unwind(Box::new("as asked")),
            _ => Ok(()),
        }
    };
    tenant.mutate(ONE, work, move |outcome: Result<Result<(), ()>, StoreError>| {
        tell(outcome == Ok(Ok(())));
        if ending == 2 {
            panic::resume_unwind(Box::new("as asked"));
        }
    });
}

/// Checks that each record has one outcome, and that the files have exactly the committed records.
fn verify(told: &[(u32, bool)]) {
    let files = [1, 2].map(|id| rusqlite::file(TenantId(id)).records());
    let mut records: Vec<u32> = files.concat();
    records.sort_unstable();
    let mut committed: Vec<u32> =
        told.iter().filter_map(|(record, is_committed)| is_committed.then_some(*record)).collect();
    committed.sort_unstable();
    assert_eq!(records, committed);
    let mut all: Vec<u32> = told.iter().map(|(record, _)| *record).collect();
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "told twice: {all:?}");
}

/// Clients submit mutations for two tenants and wait for them, while all files are closed.
fn every_mutation_is_answered_once() {
    let tenants = tenants();
    let outcomes = Outcomes::default();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (tenants, outcomes) = (Arc::clone(&tenants), Arc::clone(&outcomes));
            thread::spawn(move || {
                for mutation in 0..MUTATIONS {
                    submit(&tenants, client * MUTATIONS + mutation, &outcomes);
                }
            })
        })
        .collect();
    tenants.close();
    let expected = (CLIENTS * MUTATIONS) as usize;
    drop(outcomes.wait_until(|told| told.len() >= expected));
    for client in clients {
        client.join().unwrap();
    }
    tenants.close();
    verify(&outcomes.lock());
}

/// When `close` returns, each mutation of an open tenant has its outcome. This holds even if the
/// tenant was closed and opened before, and its earlier writer still runs.
fn closing_waits_for_the_outcomes() {
    let tenants = tenants();
    let earlier = Outcomes::default();
    for record in 0..MUTATIONS {
        submit(&tenants, record, &earlier);
    }
    let outcomes = Outcomes::default();
    if let Ok(tenant) = tenants.open(TenantId(1)) {
        for record in 0..MUTATIONS {
            let outcomes = Arc::clone(&outcomes);
            let work = |_: &Writing<'_>| Ok::<(), MutationError<()>>(());
            let tell = move |_| outcomes.change_for_all(|told| told.push((record, true)));
            tenant.mutate(ONE, work, tell);
        }
        tenants.close();
        assert_eq!(outcomes.lock().len(), MUTATIONS as usize);
    }
    drop(earlier.wait_until(|told| told.len() == MUTATIONS as usize));
}

#[test]
fn every_mutation_is_answered_once_in_all_schedules() {
    explore(every_mutation_is_answered_once);
}

#[test]
fn closing_waits_for_the_outcomes_in_all_schedules() {
    explore(closing_waits_for_the_outcomes);
}

#[test]
fn mutations_without_an_answer_are_found() {
    finds(Fault::RefusedWithoutAnswer, every_mutation_is_answered_once);
    finds(Fault::MissingLockIsNotTold, every_mutation_is_answered_once);
    finds(Fault::PanicEndsTheWriter, every_mutation_is_answered_once);
    finds(Fault::CloseDoesNotWait, closing_waits_for_the_outcomes);
}

#[test]
fn wrong_outcomes_are_found() {
    finds(Fault::FailedCommitIsNotTold, every_mutation_is_answered_once);
    finds(Fault::NothingIsUndone, every_mutation_is_answered_once);
}
