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
use crate::history::{Change, History, State, difference};
use crate::recorder::{Call, Fault, Log, Recorder, temporary_folder};
use crate::support::server::Output;
use crate::support::{Api, DataDir, Setup, TestServer, encoded, until};

/// A recorded run.
pub struct Run {
    pub name: &'static str,
    /// The disk before it.
    pub start: Disk,
    pub log: Log,
    /// The tenants, keys and passwords.
    pub registry: History,
    pub clients: Vec<ClientRun>,
    pub backups: Vec<BackupRun>,
    /// The command that an operator repeats after the power loss if it was not done.
    pub repeated: Vec<String>,
    /// The options of `serve` that the server is started with after the power loss.
    pub serve: Vec<String>,
}

/// One client's part of a run.
#[derive(Clone)]
pub struct ClientRun {
    /// How the labels of its records begin.
    pub name: String,
    /// A key of the tenant with all scopes.
    pub key: String,
    pub history: History,
}

/// A backup that was reported done.
#[derive(Clone)]
pub struct BackupRun {
    /// Its folder, relative to the root.
    pub folder: String,
    pub acknowledged: usize,
    /// The moment before the command that may remove it.
    pub removed: Option<usize>,
}

impl Run {
    /// The number of moments: before the first record, and after each.
    pub fn moments(&self) -> usize {
        self.log.records.len() + 1
    }

    /// Compares what was recorded with what is there. The shim has seen every change if they are the same.
    fn check_recording(&self, root: &Path) {
        let mut disk = self.start.clone();
        for record in &self.log.records {
            disk.apply(&self.log, record);
        }
        let recorded = disk.after(Loss::Nothing);
        let mut found = Disk::of(root).after(Loss::Nothing);
        found.retain(|path, _| !path.ends_with("-shm"));
        let names = |image: &Image| image.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&recorded), names(&found), "{}: a change of names was not recorded", self.name);
        for (path, content) in found {
            assert!(recorded[&path] == content, "{}: a change of {path} was not recorded", self.name);
        }
    }
}

/// The operator: commands that change the registry, one after the other.
struct Operator<'a> {
    recorder: &'a Recorder,
    history: History,
    backups: Vec<BackupRun>,
    root: String,
}

impl<'a> Operator<'a> {
    fn new(recorder: &'a Recorder) -> Operator<'a> {
        let root = recorder.data_dir.home().canonicalize().unwrap().to_str().unwrap().to_owned();
        Operator { recorder, history: History::default(), backups: Vec::new(), root }
    }

    /// Runs a command that changes the registry.
    fn run(&mut self, arguments: &[&str], effect: impl FnOnce(&Value) -> Vec<(String, Option<Value>)>) -> Value {
        let (started, output, acknowledged) = timed(self.recorder, arguments);
        let document = output.json();
        self.keep(arguments.join(" "), started, acknowledged, effect(&document));
        document
    }

    fn keep(&mut self, what: String, started: usize, acknowledged: usize, effect: Vec<(String, Option<Value>)>) {
        self.history.changes.push(Change { what, started, acknowledged: Some(acknowledged), effect, request: None });
    }

    fn create_tenant(&mut self, name: &str) -> Value {
        self.run(&["--json", "tenant", "create", name], |made| {
            vec![
                (format!("tenant {name}"), Some(json!(true))),
                (format!("password {name}"), Some(made["password"].clone())),
            ]
        })
    }

    fn create_key(&mut self, tenant: &str) -> (String, String) {
        let made = self.run(&["--json", "key", "create", tenant, "--name", "client", "--scope", "all"], key_made);
        (made["key"].as_str().unwrap().to_owned(), made["id"].to_string())
    }

    /// Backs up everything, or one tenant.
    fn back_up(&mut self, options: &[&str]) {
        let folder = format!("{}/backups", self.root);
        let (started, output, acknowledged) = timed(self.recorder, &[&["--json", "backup", &folder], options].concat());
        let document = output.json();
        let relative = |path: &Value| path.as_str().unwrap().strip_prefix(&self.root).unwrap()[1..].to_owned();
        for removed in document["removed"].as_array().unwrap() {
            let name = relative(removed);
            self.backups.iter_mut().find(|backup| backup.folder == name).unwrap().removed = Some(started);
        }
        self.backups.push(BackupRun { folder: relative(&document["folder"]), acknowledged, removed: None });
    }
}

fn key_made(made: &Value) -> Vec<(String, Option<Value>)> {
    vec![(format!("key {}", made["key"].as_str().unwrap()), Some(json!("active")))]
}

/// Runs a command between two moments.
fn timed(recorder: &Recorder, arguments: &[&str]) -> (usize, Output, usize) {
    let started = recorder.moment();
    let output = recorder.cli(arguments).done();
    (started, output, recorder.moment())
}

/// A server with the shim.
fn serve(recorder: &Recorder, options: &[&str]) -> TestServer {
    let mut setup = Setup::without_rate_limit();
    for (name, value) in recorder.variables() {
        setup = setup.variable(&name, &value);
    }
    options.iter().fold(setup, |setup, option| setup.option(option)).start_at(Arc::clone(&recorder.data_dir))
}

fn finish(
    name: &'static str,
    recorder: &Recorder,
    start: Disk,
    operator: Operator<'_>,
    clients: Vec<ClientRun>,
) -> Run {
    let log = recorder.log();
    let (registry, backups) = (operator.history, operator.backups);
    let run = Run { name, start, log, registry, clients, backups, repeated: Vec::new(), serve: Vec::new() };
    run.check_recording(recorder.data_dir.home());
    run
}

/// A first start with `serve --create-tenant`.
pub fn first_start() -> Run {
    let recorder = Recorder::new(DataDir::in_home(temporary_folder(), false));
    let start = Disk::of(recorder.data_dir.home());
    let mut operator = Operator::new(&recorder);
    let options = ["--create-tenant", "acme"];
    let mut server = serve(&recorder, &options);
    let acknowledged = recorder.moment();
    let output = server.output();
    let key = output.split_whitespace().find(|word| word.starts_with("tdk_")).unwrap().to_owned();
    let effect = vec![("tenant acme".to_owned(), Some(json!(true))), (format!("key {key}"), Some(json!("active")))];
    operator.keep("serve --create-tenant acme".to_owned(), 0, acknowledged, effect);
    let mut client = Client::new(&recorder, "c", &key);
    for _ in 0..8 {
        client.next();
    }
    let clients = vec![client_run(client, &key)];
    server.stop();
    let serve = options.map(str::to_owned).to_vec();
    Run { serve, ..finish("first start", &recorder, start, operator, clients) }
}

fn client_run(client: Client<'_>, key: &str) -> ClientRun {
    assert!(client.history.changes.iter().all(|change| change.acknowledged.is_some()), "a request failed");
    ClientRun { name: client.name, key: key.to_owned(), history: client.history }
}

/// Clients of several tenants at once, and an operator who uses every command that changes data meanwhile.
pub fn everything() -> Run {
    let recorder = Recorder::new(DataDir::in_home(temporary_folder(), false));
    let start = Disk::of(recorder.data_dir.home());
    let mut operator = Operator::new(&recorder);
    let mut passwords = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for tenant in ["acme", "globex", "operated"] {
        let made = operator.create_tenant(tenant);
        passwords.insert(tenant, made["password"].as_str().unwrap().to_owned());
        keys.insert(tenant, operator.create_key(tenant).0);
    }
    let mut server = serve(&recorder, &[]);
    let done = AtomicBool::new(false);
    let mut clients = thread::scope(|scope| {
        let threads: Vec<_> = [("a1", "acme"), ("a2", "acme"), ("g1", "globex")]
            .into_iter()
            .map(|(name, tenant)| {
                let mut client = Client::new(&recorder, name, &keys[tenant]);
                let (key, done) = (&keys[tenant], &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        client.next();
                        // The time that a client takes between two requests.
                        thread::sleep(Duration::from_millis(15));
                    }
                    client_run(client, key)
                })
            })
            .collect();
        let mut own = operate(&recorder, &mut operator, &keys, &passwords);
        done.store(true, Ordering::Relaxed);
        own.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        own
    });
    let at_backup: Vec<State> = clients.iter().map(|client| client.history.end()).collect();
    operator.back_up(&[]);
    let last = clients.last_mut().unwrap();
    let mut late = Client::new(&recorder, "late", &last.key);
    for _ in 0..4 {
        late.next();
    }
    server.stop();
    let late = client_run(late, &keys["globex"]);
    clients.push(late);
    let folder = format!("{}/backups", operator.root);
    let (started, _, acknowledged) = timed(&recorder, &["restore", &folder, "--force"]);
    for (number, client) in clients.iter_mut().enumerate() {
        let before = at_backup.get(number).cloned().unwrap_or_default();
        let effect = difference(&client.history.end(), &before);
        restored(&mut client.history, started, acknowledged, effect);
    }
    finish("everything", &recorder, start, operator, clients)
}

fn restored(history: &mut History, started: usize, acknowledged: usize, effect: Vec<(String, Option<Value>)>) {
    let what = "restore".to_owned();
    history.changes.push(Change { what, started, acknowledged: Some(acknowledged), effect, request: None });
}

/// The operator's commands, and the requests of a client of its own tenant.
fn operate(
    recorder: &Recorder,
    operator: &mut Operator<'_>,
    keys: &BTreeMap<&str, String>,
    passwords: &BTreeMap<&str, String>,
) -> Vec<ClientRun> {
    let mut client = Client::new(recorder, "op", &keys["operated"]);
    for _ in 0..6 {
        client.next();
    }
    // Keys.
    let (key, id) = operator.create_key("acme");
    operator.run(&["--json", "key", "revoke", "acme", &id], |_| {
        vec![(format!("key {key}"), Some(json!("revoked_api_key")))]
    });
    let (key, id) = operator.create_key("globex");
    operator.run(&["--json", "key", "replace", "globex", &id, "--overlap", "0"], |made| {
        let mut effect = key_made(made);
        effect.push((format!("key {key}"), Some(json!("expired_api_key"))));
        effect
    });
    let (key, id) = operator.create_key("globex");
    operator.run(&["--json", "key", "delete", "globex", &id], |_| vec![(format!("key {key}"), None)]);
    // A backup of one tenant, an import and a restore of it while it is served.
    operator.back_up(&["operated"]);
    let at_backup = client.history.end();
    import(recorder, "operated", "op-import", &mut client.history);
    client.next();
    let folder = format!("{}/backups", operator.root);
    let (started, _, acknowledged) = timed(recorder, &["restore", &folder, "operated", "--force"]);
    let effect = difference(&client.history.end(), &at_backup);
    restored(&mut client.history, started, acknowledged, effect);
    for _ in 0..4 {
        client.next();
    }
    // An import into a tenant that others write to.
    let mut imports = History::default();
    import(recorder, "acme", "im-port", &mut imports);
    operator.back_up(&["operated", "--keep", "1"]);
    // Tenants.
    operator.create_tenant("brief");
    let brief = operator.create_key("brief").0;
    let password = operator.history.end()["password brief"].clone();
    operator.run(&["--json", "tenant", "rename", "brief", "renamed"], |_| {
        let old = [("tenant brief".to_owned(), None), ("password brief".to_owned(), None)];
        let new = [("tenant renamed".to_owned(), Some(json!(true))), ("password renamed".to_owned(), Some(password))];
        old.into_iter().chain(new).collect()
    });
    operator.run(&["--json", "tenant", "delete", "renamed", "--yes"], |_| {
        ["tenant renamed", "password renamed", &format!("key {brief}")].map(|name| (name.to_owned(), None)).into()
    });
    // Passwords, by the command and by the panel.
    operator.run(&["--json", "tenant", "password", "operated", "--generate"], |made| {
        vec![("password operated".to_owned(), Some(made["password"].clone()))]
    });
    let new = "a new password of acme";
    let started = recorder.moment();
    change_password_in_panel(&recorder.data_dir.anonymous(), "acme", &passwords["acme"], new);
    let acknowledged = recorder.moment();
    let effect = vec![("password acme".to_owned(), Some(json!(new)))];
    operator.keep("a new password in the panel".to_owned(), started, acknowledged, effect);
    for _ in 0..3 {
        client.next();
    }
    vec![
        client_run(client, &keys["operated"]),
        ClientRun { name: "im".to_owned(), key: keys["acme"].clone(), history: imports },
    ]
}

/// Imports customers whose labels begin with `prefix`.
fn import(recorder: &Recorder, tenant: &str, prefix: &str, history: &mut History) {
    let rows: Vec<Value> = (0..60)
        .map(
            |n| json!({"name": "Imported", "customer_number": format!("{prefix}-{n}"), "notes": "word ".repeat(n + 1)}),
        )
        .collect();
    let folder = temporary_folder();
    let file = folder.path().join("rows.jsonl");
    fs::write(&file, rows.iter().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    let (started, _, acknowledged) = timed(recorder, &["import", tenant, "customers", file.to_str().unwrap()]);
    let effect = rows.into_iter().map(|row| (label("customers", &row), Some(row))).collect();
    let what = format!("import into {tenant}");
    history.changes.push(Change { what, started, acknowledged: Some(acknowledged), effect, request: None });
}

/// Signs in to the panel and changes the password.
fn change_password_in_panel(api: &Api, tenant: &str, present: &str, new: &str) {
    let mut cookies = BTreeMap::new();
    let mut ask = |method: &str, fields: &[(&str, &str)]| {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let sent: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let call = api.call(method, "/api_keys.php").header("Content-Type", "application/x-www-form-urlencoded");
        let reply = call.header("Cookie", &sent.join("; ")).body(fields.join("&")).send();
        for (_, value) in reply.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
            let (name, value) = value.split(';').next().unwrap().split_once('=').unwrap();
            cookies.insert(name.to_owned(), value.to_owned());
        }
        reply
    };
    let token =
        |page: String| page.split("name=\"token\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let form = token(ask("GET", &[]).is(200).text());
    ask("POST", &[("action", "sign-in"), ("token", &form), ("tenant", tenant), ("password", present)]).is(303);
    let form = token(ask("GET", &[]).is(200).text());
    let fields = [("action", "password"), ("token", &form), ("current", present), ("new", new), ("again", new)];
    ask("POST", &fields).is(303);
}

/// So many large records fill the write-ahead log more than once.
const LARGE_RECORDS: usize = 150;

/// Large records, until the write-ahead log was copied into the file and started again.
pub fn checkpoints() -> Run {
    let recorder = Recorder::new(DataDir::in_home(temporary_folder(), false));
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

/// Syncs that fail: those of the log at commits, and those of the database at checkpoints.
pub fn failing_syncs() -> Run {
    let recorder = Recorder::new(DataDir::in_home(temporary_folder(), false));
    let start = Disk::of(recorder.data_dir.home());
    let mut operator = Operator::new(&recorder);
    operator.create_tenant("acme");
    let (key, _) = operator.create_key("acme");
    let mut server = serve(&recorder, &[]);
    let mut client = Client::new(&recorder, "c", &key);
    until("the first request succeeds", || (client.next().status < 300).then_some(()));
    let fault = |path: &str, lasting| Fault { call: Call::Sync, path: path.to_owned(), errno: 5, first: 1, lasting };
    let both: &[bool] = if crate::moments().is_some() { &[false, true] } else { &[true] };
    for &lasting in both {
        for _ in 0..3 {
            recorder.set_fault(&fault("tenants/1.db-wal$", lasting));
            client.post_large_customer();
            client.next();
            recorder.end_fault();
            until("service resumes", || (client.next().status < 300).then_some(()));
        }
        recorder.set_fault(&fault("tenants/1.db$", lasting));
        until("a checkpoint fails", || {
            client.post_large_customer();
            (recorder.fault_hits() > 0).then_some(())
        });
        client.next();
        client.post_large_customer();
        recorder.end_fault();
        until("service resumes", || (client.next().status < 300).then_some(()));
        client.post_large_customer();
    }
    server.stop();
    let failures = client.history.changes.iter().filter(|change| change.acknowledged.is_none()).count();
    assert!(failures > 0, "no request has failed");
    let clients = vec![ClientRun { name: client.name, key, history: client.history }];
    let run = finish("failing syncs", &recorder, start, operator, clients);
    let has_failed = |end: &str| run.log.records.iter().any(|record| record.failed && record.path.ends_with(end));
    assert!(has_failed("1.db") && has_failed("1.db-wal"), "no checkpoint has failed");
    run
}

/// Databases of an earlier version, which the first use migrates.
pub fn migration() -> Run {
    let home = temporary_folder();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema-1");
    fs::create_dir_all(home.path().join("data/tenants")).unwrap();
    for (from, to) in [("registry.db", "registry.db"), ("tenant.db", "tenants/1.db")] {
        fs::copy(fixture.join(from), home.path().join("data").join(to)).unwrap();
    }
    let recorder = Recorder::new(DataDir::in_home(home, false));
    let start = Disk::of(recorder.data_dir.home());
    let mut operator = Operator::new(&recorder);
    operator.keep("before".to_owned(), 0, 0, vec![("tenant acme".to_owned(), Some(json!(true)))]);
    let (key, _) = operator.create_key("acme");
    let mut server = serve(&recorder, &[]);
    let mut client = Client::new(&recorder, "c", &key);
    for _ in 0..8 {
        client.next();
    }
    server.stop();
    let mut clients = vec![client_run(client, &key)];
    for (name, history) in fixture_records(&fixture.join("records.jsonl")) {
        clients.push(ClientRun { name, key: key.clone(), history });
    }
    finish("migration", &recorder, start, operator, clients)
}

/// The records of a fixture, as if clients had made them before the run.
fn fixture_records(file: &Path) -> BTreeMap<String, History> {
    let mut histories: BTreeMap<String, History> = BTreeMap::new();
    for line in fs::read_to_string(file).unwrap().lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let resource = match () {
            () if record.get("customer_number").is_some() => "customers",
            () if record.get("department").is_some() => "employees",
            () => "hardware",
        };
        let name = label(resource, &record);
        let effect = vec![(name.clone(), Some(record))];
        let change = Change { what: "before".to_owned(), started: 0, acknowledged: Some(0), effect, request: None };
        histories.entry(client_of(&name).to_owned()).or_default().changes.push(change);
    }
    histories
}

/// A restore of everything into a new data directory.
pub fn restore_anew() -> Run {
    let source = Recorder::new(DataDir::in_home(temporary_folder(), false));
    let mut operator = Operator::new(&source);
    operator.create_tenant("acme");
    let (key, _) = operator.create_key("acme");
    let mut server = serve(&source, &[]);
    let mut client = Client::new(&source, "c", &key);
    for _ in 0..16 {
        client.next();
    }
    server.stop();
    let recorder = Recorder::new(DataDir::in_home(temporary_folder(), false));
    let backups = recorder.data_dir.home().join("backups");
    source.cli(&["backup", backups.to_str().unwrap()]).done();
    let start = Disk::of(recorder.data_dir.home());
    let (_, _, acknowledged) = timed(&recorder, &["restore", backups.to_str().unwrap()]);
    let mut registry = operator.history.end();
    registry.retain(|name, _| !name.starts_with("password"));
    let mut operator = Operator::new(&recorder);
    operator.keep("restore".to_owned(), 0, acknowledged, difference(&State::new(), &registry));
    let mut client = client_run(client, &key);
    let effect = difference(&State::new(), &client.history.end());
    client.history = History::default();
    restored(&mut client.history, 0, acknowledged, effect);
    let repeated = ["restore", "BACKUPS", "--force"].map(str::to_owned).to_vec();
    Run { repeated, ..finish("restore into a new data directory", &recorder, start, operator, vec![client]) }
}
