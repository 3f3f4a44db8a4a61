//! The runs whose power fails: each starts from a disk, and is recorded to its end.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, client_of, label};
use crate::disk::{Disk, Image, Loss};
use crate::history::{History, State, difference};
use crate::operator::{Operator, timed};
use crate::recorder::{Log, Recorder};
use crate::support::server::fixture;
use crate::support::{Setup, TestServer};

/// A recorded run.
pub(crate) struct Run {
    pub name: &'static str,
    /// The disk before it.
    pub start: Disk,
    pub log: Log,
    /// The tenants, keys and passwords.
    pub registry: History,
    pub clients: Vec<ClientRun>,
    pub backups: Vec<BackupRun>,
    /// The command that an operator repeats, in an empty directory, if the power loss has left no
    /// registry.
    pub repeated: Vec<&'static str>,
    /// The options of `serve` that the server is started with after the power loss.
    pub serve: Vec<String>,
    /// Whether the databases are of an earlier version before the run.
    pub migrates: bool,
}

/// One client's part of a run.
#[derive(Clone)]
pub(crate) struct ClientRun {
    /// How the labels of its records begin.
    pub name: String,
    /// A key of the tenant with all scopes.
    pub key: String,
    pub history: History,
}

/// A backup that was reported done.
#[derive(Clone)]
pub(crate) struct BackupRun {
    /// Its directory, relative to the root.
    pub directory: String,
    pub acknowledged: usize,
    /// The moment before the command that may remove it.
    pub removed: Option<usize>,
}

impl Run {
    /// The number of moments: before the first record, and after each.
    pub(crate) fn moments(&self) -> usize {
        self.log.records.len() + 1
    }

    /// Compares the recorded changes with the directory. The shim has seen every change if they are
    /// the same.
    fn check_recording(&self, root: &Path) {
        let mut disk = self.start.clone();
        for record in &self.log.records {
            disk.apply(&self.log, record);
        }
        let recorded = disk.after(Loss::Nothing);
        let mut found = Disk::of(root).after(Loss::Nothing);
        found.retain(|path, _| !path.ends_with("-shm"));
        let names = |image: &Image| image.keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            names(&recorded),
            names(&found),
            "{}: a change of names was not recorded",
            self.name
        );
        for (path, content) in found {
            assert!(
                recorded[&path] == content,
                "{}: a change of {path} was not recorded",
                self.name
            );
        }
    }
}

fn setup(recorder: &Recorder) -> Setup {
    let variables = recorder.variables().into_iter();
    variables
        .fold(Setup::without_rate_limit(), |setup, (name, value)| setup.variable(&name, &value))
}

/// A server with the shim.
pub(crate) fn serve(recorder: &Recorder, options: &[&str]) -> TestServer {
    options
        .iter()
        .fold(setup(recorder), |setup, option| setup.option(option))
        .start_at(Arc::clone(&recorder.data_dir))
}

/// The same, where faults concern only commands.
pub(crate) fn serve_spared(recorder: &Recorder) -> TestServer {
    setup(recorder).variable("CRASH_SPARED", "1").start_at(Arc::clone(&recorder.data_dir))
}

pub(crate) fn finish(
    name: &'static str,
    recorder: &Recorder,
    start: Disk,
    operator: Operator<'_>,
    clients: Vec<ClientRun>,
) -> Run {
    let log = recorder.log();
    let (registry, backups) = (operator.history, operator.backups);
    let run = Run {
        name,
        start,
        log,
        registry,
        clients,
        backups,
        repeated: Vec::new(),
        serve: Vec::new(),
        migrates: false,
    };
    run.check_recording(recorder.data_dir.home());
    run
}

/// A first start with `serve --create-tenant`.
pub(crate) fn first_start() -> Run {
    let recorder = Recorder::in_memory();
    let start = Disk::of(recorder.data_dir.home());
    let mut operator = Operator::new(&recorder);
    let options = ["--create-tenant", "acme"];
    let mut server = serve(&recorder, &options);
    let acknowledged = recorder.moment();
    let output = server.output();
    let key = output.split_whitespace().find(|word| word.starts_with("tdk_")).unwrap().to_owned();
    let effect = vec![
        ("tenant acme".to_owned(), Some(json!(true))),
        (format!("key {key}"), Some(json!("active"))),
    ];
    operator.history.add("serve --create-tenant acme", 0, Some(acknowledged), effect);
    let mut client = Client::new(&recorder, "c", &key);
    client.make_requests(8);
    let clients = vec![client_run(client, &key)];
    server.stop();
    let serve = options.map(str::to_owned).to_vec();
    Run { serve, ..finish("first start", &recorder, start, operator, clients) }
}

fn assert_acknowledged(client: &Client<'_>) {
    assert!(
        client.history.changes.iter().all(|change| change.acknowledged.is_some()),
        "a request failed"
    );
}

fn client_run(client: Client<'_>, key: &str) -> ClientRun {
    assert_acknowledged(&client);
    ClientRun { name: client.name, key: key.to_owned(), history: client.history }
}

/// Clients of several tenants at once, and an operator who uses every command that changes data
/// meanwhile.
pub(crate) fn everything() -> Run {
    let recorder = Recorder::in_memory();
    let start = Disk::of(recorder.data_dir.home());
    let mut operator = Operator::new(&recorder);
    let keys = ["acme", "globex", "operated"].map(|tenant| {
        operator.create_tenant(tenant);
        operator.create_key(tenant).0
    });
    let mut server = serve(&recorder, &[]);
    let mut clients = while_clients_write(&recorder, &keys, || operate(&mut operator, &keys));
    operator.back_up(&[]);
    let mut late = Client::new(&recorder, "late", &keys[1]);
    late.make_requests(4);
    server.stop();
    clients.push(client_run(late, &keys[1]));
    finish("everything", &recorder, start, operator, clients)
}

/// Has two clients of the first tenant and one of the second write while `work` runs. Returns the
/// parts of the run that `work` returns, and then the parts of these clients.
fn while_clients_write(
    recorder: &Recorder,
    keys: &[String; 3],
    work: impl FnOnce() -> Vec<ClientRun>,
) -> Vec<ClientRun> {
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let threads = [("a1", &keys[0]), ("a2", &keys[0]), ("g1", &keys[1])].map(|(name, key)| {
            scope.spawn(move || {
                let mut client = Client::new(recorder, name, key);
                while !done.load(Ordering::Relaxed) {
                    client.next();
                    // The time that a client takes between two requests.
                    thread::sleep(Duration::from_millis(15));
                }
                client_run(client, key)
            })
        });
        let mut clients = work();
        done.store(true, Ordering::Relaxed);
        clients.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        clients
    })
}

/// The operator's commands, and the requests of a client of its own tenant.
fn operate(operator: &mut Operator<'_>, keys: &[String; 3]) -> Vec<ClientRun> {
    let mut client = Client::new(operator.recorder, "op", &keys[2]);
    client.make_requests(6);
    operator.change_keys();
    operator.back_up(&["operated"]);
    let at_backup = client.history.end();
    operator.import("operated", "op-import", &mut client.history);
    client.next();
    // While the tenant is served.
    let (started, _, acknowledged) =
        timed(operator.recorder, &["restore", "backups", "operated", "--force"]);
    client.history.restored(started, acknowledged, &at_backup);
    client.make_requests(4);
    let mut imports = History::default();
    let run = operator.import("acme", "im-port", &mut imports);
    operator.undo("acme", &run, &mut imports);
    operator.import("acme", "im-again", &mut imports);
    operator.back_up(&["operated", "--keep", "1"]);
    operator.change_tenants();
    operator.change_passwords("operated", "acme");
    client.make_requests(3);
    let imports = ClientRun { name: "im".to_owned(), key: keys[0].clone(), history: imports };
    vec![client_run(client, &keys[2]), imports]
}

/// So many large records fill the write-ahead log more than once.
const LARGE_RECORDS: usize = 150;

/// Large records, until the write-ahead log was copied into the file and started again.
pub(crate) fn checkpoints() -> Run {
    let recorder = Recorder::in_memory();
    let start = Disk::of(recorder.data_dir.home());
    let mut operator = Operator::new(&recorder);
    operator.create_tenant("acme");
    let (key, _) = operator.create_key("acme");
    let mut server = serve(&recorder, &[]);
    let mut client = Client::new(&recorder, "c", &key);
    for _ in 0..LARGE_RECORDS {
        client.post_large_customer();
    }
    server.stop();
    let clients = vec![client_run(client, &key)];
    finish("checkpoints", &recorder, start, operator, clients)
}

/// Databases of 1.0.0, which the first start migrates.
pub(crate) fn upgrade() -> Run {
    let recorder = Recorder::in_memory();
    recorder.data_dir.place_fixture();
    let start = Disk::of(recorder.data_dir.home());
    let mut operator = Operator::new(&recorder);
    let effect = vec![("tenant acme".to_owned(), Some(json!(true)))];
    operator.history.add("before", 0, Some(0), effect);
    // Before the first start every other command refuses them.
    let mut server = serve(&recorder, &[]);
    let (key, _) = operator.create_key("acme");
    let mut client = Client::new(&recorder, "c", &key);
    client.make_requests(8);
    server.stop();
    let mut clients = vec![client_run(client, &key)];
    for (name, history) in fixture_records(&fixture().join("records.jsonl")) {
        clients.push(ClientRun { name, key: key.clone(), history });
    }
    Run { migrates: true, ..finish("upgrade", &recorder, start, operator, clients) }
}

/// The records of a fixture, as if clients had made them before the run.
fn fixture_records(file: &Path) -> BTreeMap<String, History> {
    let mut histories: BTreeMap<String, History> = BTreeMap::new();
    for line in fs::read_to_string(file).unwrap().lines() {
        let mut record: Value = serde_json::from_str(line).unwrap();
        let resource = match () {
            () if record.get("customer_number").is_some() => "customers",
            () if record.get("department").is_some() => "employees",
            () => "hardware",
        };
        // A later schema added this field.
        if resource == "employees" {
            record["employee_number"] = Value::Null;
        }
        let name = label(resource, &record);
        let history: &mut History = histories.entry(client_of(&name).to_owned()).or_default();
        history.add("before", 0, Some(0), vec![(name, Some(record))]);
    }
    histories
}

/// A restore of everything into a new data directory.
pub(crate) fn restore_anew() -> Run {
    let source = Recorder::in_memory();
    let mut operator = Operator::new(&source);
    operator.create_tenant("acme");
    let (key, _) = operator.create_key("acme");
    let mut server = serve(&source, &[]);
    let mut client = Client::new(&source, "c", &key);
    client.make_requests(16);
    server.stop();
    let recorder = Recorder::in_memory();
    let backups = recorder.data_dir.home().join("backups");
    source.cli(&["backup", backups.to_str().unwrap()]).done();
    let start = Disk::of(recorder.data_dir.home());
    let repeated = ["restore", "backups"];
    let (_, _, acknowledged) = timed(&recorder, &repeated);
    let mut registry = operator.history.end();
    registry.retain(|name, _| !name.starts_with("password"));
    let mut operator = Operator::new(&recorder);
    let effect = difference(&State::new(), &registry);
    operator.history.add("restore", 0, Some(acknowledged), effect);
    let mut client = client_run(client, &key);
    let state = client.history.end();
    client.history = History::default();
    client.history.restored(0, acknowledged, &state);
    Run {
        repeated: repeated.to_vec(),
        ..finish("restore into a new data directory", &recorder, start, operator, vec![client])
    }
}
