//! Records a history: clients of one tenant, and what disturbs them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::json;
use uuid::Uuid;

use super::checker::Timed;
use super::clients::{Client, Tenant};
use super::model::{Answer, Fields, Operation, Request, Version};
use crate::support::random::Random;
use crate::support::{ALL, TestServer, until};

/// The number of requests of all clients together. The change log has to fit in one page.
const REQUESTS: usize = 160;

/// The rows of an import, and the value of the field `customer_id` in their records.
const ROWS: usize = 5;
const IMPORTED: u16 = 21;

/// The employees that have a device, which has the same id.
pub(crate) const OWNERS: i64 = 4;

/// The requests and answers so far.
#[derive(Default)]
pub(crate) struct Recorder {
    clock: AtomicU64,
    operations: Mutex<Vec<Timed>>,
}

impl Recorder {
    /// Records a request.
    pub(crate) fn record(
        &self,
        request: Request,
        request_id: Uuid,
        send: impl FnOnce() -> Answer,
    ) -> Answer {
        let called = self.clock.fetch_add(1, Ordering::SeqCst);
        let answer = send();
        let returned = self.clock.fetch_add(1, Ordering::SeqCst);
        let operation =
            Operation { request, request_id, answer: answer.clone(), imported: Vec::new() };
        self.operations.lock().unwrap().push(Timed { called, returned, rank: None, operation });
        answer
    }

    /// Records a command that succeeds.
    fn command(&self, server: &TestServer, request: Request, arguments: &[&str]) {
        self.record(request, Uuid::nil(), || {
            server.cli(arguments).done();
            Answer::Done
        });
    }

    /// Waits until some of the clients' requests have returned.
    fn await_requests(&self, count: usize) {
        until("the clients are at work", || {
            (self.operations.lock().unwrap().len() >= count).then_some(())
        });
    }
}

/// Records one history on a server of its own. Beside the clients, every third history has an
/// import, and every third a restore.
pub(crate) fn record(seed: u64) -> Vec<Timed> {
    let mut random = Random::new(seed);
    let (server, tenant) = TestServer::with_unlimited_tenant();
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
        match seed % 3 {
            1 => import(&server, &recorder),
            2 => restore(&server, &recorder),
            _ => (),
        }
    });
    observer.list();
    observer.log();
    server.cli(&["check"]).done();
    resolve(recorder.operations.into_inner().unwrap())
}

fn import(server: &TestServer, recorder: &Recorder) {
    recorder.await_requests(REQUESTS / 4);
    // Numbers that no client names, so that no `update_by` finds such a record.
    let mut rows = "email,phone,customer_id\n".to_owned();
    for phone in 100..100 + ROWS {
        rows += &format!("row@shop.example,{phone},{IMPORTED}\n");
    }
    std::fs::write(server.home().join("e.csv"), rows).unwrap();
    recorder.command(server, Request::Import, &["import", "acme", "employees", "e.csv"]);
}

fn restore(server: &TestServer, recorder: &Recorder) {
    recorder.await_requests(REQUESTS / 4);
    recorder.command(server, Request::Backup, &["backup", "backups", "acme"]);
    recorder.await_requests(REQUESTS / 2);
    recorder.command(server, Request::Restore, &["restore", "backups", "acme", "--force"]);
}

/// Gives each change its place in the change log, and the import its records, as clients have seen
/// them.
fn resolve(mut history: Vec<Timed>) -> Vec<Timed> {
    let mut ranks: BTreeMap<Uuid, i64> = BTreeMap::new();
    let mut imported: BTreeMap<i64, (Fields, Version)> = BTreeMap::new();
    for timed in &history {
        match &timed.operation.answer {
            Answer::Log(log, records) => {
                for entry in log {
                    if let Some(id) = entry.request_id {
                        ranks.extend(entry.seq.map(|seq| (id, seq)));
                    } else {
                        imported.insert(entry.id, (records[&entry.id].unwrap(), entry.seq));
                    }
                }
            }
            Answer::List(records) => {
                let rows = records.iter().filter(|(_, fields)| fields[1] == Some(IMPORTED));
                for (id, fields) in rows {
                    imported.entry(*id).or_insert((*fields, None));
                }
            }
            _ => (),
        }
    }
    assert!([0, ROWS].contains(&imported.len()), "an import is all or none: {imported:?}");
    // If a restore has removed an entry, nobody may have seen it. But if only one write has answered
    // a version, the version belongs to its change.
    let mut answered: BTreeMap<i64, usize> = BTreeMap::new();
    for version in history.iter().flat_map(|timed| versions(&timed.operation)) {
        *answered.entry(version).or_default() += 1;
    }
    for timed in &mut history {
        let operation = &mut timed.operation;
        if operation.request == Request::Import {
            let rows = imported.iter();
            operation.imported = rows.map(|(id, (fields, seq))| (*id, *fields, *seq)).collect();
            timed.rank = operation.imported.iter().find_map(|(.., seq)| *seq);
        } else {
            let own = versions(operation).find(|version| answered[version] == 1);
            timed.rank = ranks.get(&operation.request_id).copied().or(own);
        }
    }
    history.sort_by_key(|timed| timed.called);
    history
}

/// The versions that a write answered.
fn versions(operation: &Operation) -> impl Iterator<Item = i64> {
    let outcomes = match &operation.answer {
        Answer::Written { outcomes, is_replay: false } => outcomes.as_slice(),
        _ => &[],
    };
    outcomes.iter().filter_map(|outcome| outcome.version)
}
