//! Records a history: clients of one tenant, and what disturbs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use serde_json::json;
use uuid::Uuid;

use super::checker::Timed;
use super::clients::{Client, Tenant};
use super::model::{Answer, Entry, Fields, Operation, Request, Version};
use crate::support::random::Random;
use crate::support::syncs::Syncs;
use crate::support::{ALL, Setup, TestServer, until};

/// The number of requests of all clients together. The change log has to fit in one page.
const REQUESTS: usize = 160;

/// The rows of an import, and the value of the field `customer_id` in their records.
const ROWS: usize = 5;
const IMPORTED: u16 = 21;

/// The employees that have a device, which has the same id.
pub(crate) const OWNERS: i64 = 4;

/// The event beside the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    Nothing,
    Import,
    Kill,
    FailedSync,
    Restore,
}

impl Disturbance {
    const ALL: [Disturbance; 5] = [
        Disturbance::Nothing,
        Disturbance::Import,
        Disturbance::Kill,
        Disturbance::FailedSync,
        Disturbance::Restore,
    ];
}

/// The requests and answers so far.
#[derive(Default)]
pub(crate) struct Recorder {
    clock: AtomicU64,
    /// How often the server was started again.
    starts: AtomicUsize,
    operations: Mutex<Vec<Timed<Operation>>>,
}

impl Recorder {
    /// Records a request. `send` returns `None` where the server went away; the request has taken
    /// effect before it is back, or never.
    pub(crate) fn record(
        &self,
        request: Request,
        request_id: Uuid,
        send: impl FnOnce() -> Option<Answer>,
    ) -> Option<Answer> {
        let starts = self.starts.load(Ordering::SeqCst);
        let called = self.clock.fetch_add(1, Ordering::SeqCst);
        let answer = send();
        if answer.is_none() {
            until("the server is back", || {
                (self.starts.load(Ordering::SeqCst) > starts).then_some(())
            });
        }
        let returned = self.clock.fetch_add(1, Ordering::SeqCst);
        let is_command = answer == Some(Answer::Done);
        let (entries, imported) = (Vec::new(), Vec::new());
        let operation =
            Operation { request, request_id, answer: answer.clone(), entries, imported };
        self.operations.lock().unwrap().push(Timed {
            called,
            returned,
            rank: None,
            is_settled: answer.is_some() && !is_command,
            operation,
        });
        answer
    }

    /// Records a command that succeeds.
    fn command(&self, request: Request, run: impl FnOnce()) {
        self.record(request, Uuid::nil(), || {
            run();
            Some(Answer::Done)
        });
    }

    /// Waits until some of the clients' requests have returned.
    fn await_requests(&self, count: usize) {
        until("the clients are at work", || {
            (self.operations.lock().unwrap().len() >= count).then_some(())
        });
    }
}

/// Records one history on a server of its own. Seeds that follow each other have another
/// disturbance.
pub(crate) fn record(seed: u64, syncs: &Syncs) -> Vec<Timed<Operation>> {
    let mut random = Random::new(seed);
    let disturbance = Disturbance::ALL[(seed % 5) as usize];
    let (mut server, tenant) =
        syncs.observe_server(Setup::without_rate_limit()).start_with_tenant();
    let api = tenant.with_scopes(ALL);
    let recorder = Recorder::default();
    let tenant = Tenant::default();
    let count = 8 << random.below(3);
    let mut new_client =
        || Client::new(api.clone(), &recorder, &tenant, Random::new(random.next()));
    let mut observer = new_client();
    for number in 1..=IMPORTED {
        api.customer(&format!("Customer {number}"));
    }
    for employee in 1..=OWNERS {
        observer.post();
        api.create("/hardware.php", json!({"name": "Laptop", "employee_id": employee}));
    }
    thread::scope(|scope| {
        for mut client in (0..count).map(|_| new_client()).collect::<Vec<_>>() {
            scope.spawn(move || (0..REQUESTS / count).for_each(|_| client.ask()));
        }
        disturb(&mut server, syncs, &recorder, disturbance);
    });
    observer.list();
    observer.log();
    server.cli(&["check"]).done();
    resolve(recorder.operations.into_inner().unwrap())
}

fn disturb(server: &mut TestServer, syncs: &Syncs, recorder: &Recorder, disturbance: Disturbance) {
    recorder.await_requests(REQUESTS / 4);
    match disturbance {
        Disturbance::Nothing => (),
        Disturbance::Import => {
            // Numbers that no client names, so that no `update_by` finds such a record.
            let mut rows = "email,phone,customer_id\n".to_owned();
            for phone in 100..100 + ROWS {
                rows += &format!("row@shop.example,{phone},{IMPORTED}\n");
            }
            std::fs::write(server.home().join("e.csv"), rows).unwrap();
            recorder.command(Request::Import, || {
                server.cli(&["import", "acme", "employees", "e.csv"]).done();
            });
        }
        Disturbance::Kill => {
            for _ in 0..2 {
                server.kill();
                server.restart();
                recorder.starts.fetch_add(1, Ordering::SeqCst);
            }
        }
        Disturbance::FailedSync => {
            syncs.fail("/1.db-wal");
            server.ended_at_failed_sync();
            syncs.succeed();
            server.restart();
            recorder.starts.fetch_add(1, Ordering::SeqCst);
        }
        Disturbance::Restore => {
            recorder.command(Request::Backup, || {
                server.cli(&["backup", "backups", "acme"]).done();
            });
            recorder.await_requests(REQUESTS / 2);
            recorder.command(Request::Restore, || {
                server.cli(&["restore", "backups", "acme", "--force"]).done();
            });
        }
    }
}

/// Adds to each operation what was seen of it in the change log and in lists.
fn resolve(mut history: Vec<Timed<Operation>>) -> Vec<Timed<Operation>> {
    let mut entries: BTreeMap<Uuid, BTreeSet<Entry>> = BTreeMap::new();
    let mut imported: BTreeMap<i64, (Fields, Version)> = BTreeMap::new();
    for timed in &history {
        match &timed.operation.answer {
            Some(Answer::Log(log, records)) => {
                for entry in log {
                    match entry.request_id {
                        Some(id) => {
                            entries.entry(id).or_default().insert(*entry);
                        }
                        None => {
                            let fields = records[&entry.id].unwrap();
                            imported.insert(entry.id, (fields, entry.seq));
                        }
                    }
                }
            }
            Some(Answer::List(records)) => {
                let rows = records.iter().filter(|(_, fields)| fields[1] == Some(IMPORTED));
                for (id, fields) in rows {
                    imported.entry(*id).or_insert((*fields, None));
                }
            }
            _ => (),
        }
    }
    assert!([0, ROWS].contains(&imported.len()), "an import is all or none: {imported:?}");
    for timed in &mut history {
        let operation = &mut timed.operation;
        if operation.request == Request::Import {
            let rows = imported.iter();
            operation.imported = rows.map(|(id, (fields, seq))| (*id, *fields, *seq)).collect();
            timed.rank = operation.imported.iter().find_map(|(.., seq)| *seq);
        } else if let Some(seen) = entries.remove(&operation.request_id) {
            operation.entries = seen.into_iter().collect();
            timed.rank = operation.entries[0].seq;
        }
    }
    assert!(entries.is_empty(), "nobody asked for these changes: {entries:?}");
    forget_without_trace(&mut history);
    rank_by_versions(&mut history);
    history.sort_by_key(|timed| timed.called);
    history
}

/// Removes what had no answer and left no trace: no entry, and no response that was replayed and can
/// only be its own.
fn forget_without_trace(history: &mut Vec<Timed<Operation>>) {
    let (mut replayed, mut stored) = (BTreeSet::new(), BTreeSet::new());
    for operation in history.iter().map(|timed| &timed.operation) {
        let Some(key) = key(operation) else { continue };
        match &operation.answer {
            Some(Answer::Reused | Answer::Written { is_replay: true, .. }) => replayed.insert(key),
            Some(Answer::Written { .. }) => stored.insert(key),
            _ if !operation.entries.is_empty() => stored.insert(key),
            _ => false,
        };
    }
    history.retain(|Timed { operation, .. }| {
        let has_trace = |key| replayed.contains(&key) && !stored.contains(&key);
        operation.answer.is_some()
            || !operation.entries.is_empty()
            || key(operation).is_some_and(has_trace)
    });
}

fn key(operation: &Operation) -> Option<Uuid> {
    match operation.request {
        Request::Write { key, .. } => key,
        _ => None,
    }
}

/// Gives a rank to writes whose entries nobody has seen, because a restore removed them. If only
/// one write has answered a version, the version belongs to its change.
fn rank_by_versions(history: &mut [Timed<Operation>]) {
    if history.iter().any(|timed| timed.operation.answer.is_none()) {
        return;
    }
    let mut answered: BTreeMap<i64, usize> = BTreeMap::new();
    for version in history.iter().flat_map(|timed| versions(&timed.operation)) {
        *answered.entry(version).or_default() += 1;
    }
    for timed in history.iter_mut().filter(|timed| timed.rank.is_none()) {
        timed.rank = versions(&timed.operation).find(|version| answered[version] == 1);
    }
}

/// The versions that a write answered.
fn versions(operation: &Operation) -> impl Iterator<Item = i64> {
    let outcomes = match &operation.answer {
        Some(Answer::Written { outcomes, is_replay: false }) => outcomes.as_slice(),
        _ => &[],
    };
    outcomes.iter().filter_map(|outcome| outcome.version)
}
