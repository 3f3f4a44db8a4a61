//! Runs in which the disk refuses to sync. The process ends and says so in one line, its supervisor
//! starts it again, and clients repeat what was not answered.

use std::thread;

use serde_json::json;

use crate::client::{Client, observe};
use crate::disk::Disk;
use crate::history::{Effect, History};
use crate::operator::{Operator, import_change, try_change_password_in_panel};
use crate::recorder::{Call, Fault, Recorder};
use crate::run::{ClientRun, Run, finish, serve, serve_spared};
use crate::support::TestServer;

/// The acknowledged changes after a failed sync at which the power is cut, too.
const CHANGES_AFTER: usize = 3;

/// The moments from each failed sync up to some commits after the restart.
pub(crate) fn moments(run: &Run) -> Vec<usize> {
    let histories = run.clients.iter().map(|client| &client.history).chain([&run.registry]);
    let changes = histories.flat_map(|history| &history.changes);
    let mut acknowledged: Vec<usize> = changes.filter_map(|change| change.acknowledged).collect();
    acknowledged.sort_unstable();
    let mut moments: Vec<usize> = Vec::new();
    for (number, _) in run.log.records.iter().enumerate().filter(|(_, record)| record.failed) {
        let later = acknowledged.iter().filter(|moment| **moment > number);
        let end = later.copied().take(CHANGES_AFTER).last().unwrap_or(run.moments() - 1);
        moments.extend(number..=end.min(run.moments() - 1));
    }
    moments.sort_unstable();
    moments.dedup();
    moments
}

/// A server, or none, with two tenants, a client of each, and an operator.
struct Scene<'a> {
    recorder: &'a Recorder,
    start: Disk,
    operator: Operator<'a>,
    clients: Vec<(Client<'a>, String)>,
    imports: History,
}

impl<'a> Scene<'a> {
    fn new(recorder: &'a Recorder) -> Scene<'a> {
        let start = Disk::of(recorder.data_dir.home());
        let mut operator = Operator::new(recorder);
        let clients = [("c", "acme"), ("o", "other")].map(|(name, tenant)| {
            operator.create_tenant(tenant);
            let (key, _) = operator.create_key(tenant);
            (Client::new(recorder, name, &key), key)
        });
        Scene { recorder, start, operator, clients: clients.into(), imports: History::default() }
    }

    /// One sync of the path fails, counted from 1.
    fn fail(&self, path: &str, first: u64) {
        self.recorder.set_fault(&Fault { lasting: false, ..failing_syncs(path, first) });
    }

    /// Both clients go on.
    fn go_on(&mut self) {
        for (client, _) in &mut self.clients {
            client.make_requests(3);
        }
    }

    /// The first client's request is not answered because the server has ended. It is repeated
    /// after the restart.
    fn restart_and_repeat(&mut self, server: &mut TestServer) {
        server.ended_at_failed_sync();
        self.repair_and_repeat(server);
    }

    /// The same where the first restart ends at a failed sync, too.
    fn restart_twice_and_repeat(&mut self, server: &mut TestServer) {
        let code = server.try_restart();
        server.assert_failed_sync(code);
        self.repair_and_repeat(server);
    }

    fn repair_and_repeat(&mut self, server: &mut TestServer) {
        self.recorder.end_fault();
        server.restart();
        self.clients[0].0.repeat();
        self.go_on();
    }

    /// All clients send a request at the same time, and one commit fails. Requests without an
    /// answer are repeated after the restart.
    fn all_at_once(&mut self, server: &mut TestServer) {
        self.fail("tenants/1.db-wal$", 1);
        thread::scope(|scope| {
            for (client, _) in &mut self.clients {
                scope.spawn(move || client.attempt());
            }
        });
        server.ended_at_failed_sync();
        self.recorder.end_fault();
        server.restart();
        for (client, _) in &mut self.clients {
            if client.history.changes.last().is_some_and(|change| change.acknowledged.is_none()) {
                client.repeat();
            }
        }
        self.go_on();
    }

    /// A command fails because the disk refuses to sync, and says so in one line. Its change may be
    /// there. Returns the moment before the command.
    fn command_fails(&mut self, arguments: &[&str]) -> usize {
        let started = self.recorder.moment();
        let output = self.recorder.cli(arguments);
        assert!(self.recorder.end_fault() > 0, "no sync of {arguments:?} has failed");
        let lines: Vec<&str> = output.stderr.lines().collect();
        assert!(
            output.code == Some(1) && matches!(lines[..], [line] if line.contains("sync")),
            "{output:?}"
        );
        started
    }

    /// A command of the registry fails in this way.
    fn registry_command_fails(&mut self, arguments: &[&str], effect: Effect) {
        let started = self.command_fails(arguments);
        self.operator.history.add(arguments.join(" "), started, None, effect);
    }

    /// An import into a tenant fails. The operator looks whether it has taken effect, and repeats
    /// it if not.
    fn import_fails(&mut self, tenant: &str, prefix: &str, between: impl FnOnce(&mut Self)) {
        let (directory, effect) = import_change(prefix);
        let file = directory.path().join("rows.jsonl");
        let arguments = ["import", tenant, "customers", file.to_str().unwrap()];
        let started = self.command_fails(&arguments);
        self.imports.add("import", started, None, effect);
        between(self);
        let mut found = observe(&self.recorder.data_dir.with_key(&self.clients[0].1));
        found.retain(|label, _| label.starts_with(&format!("customers/{prefix}-")));
        let count = self.imports.changes.last().unwrap().effect.len();
        assert!(
            found.is_empty() || found.len() == count,
            "the import is half done: {} of {count}",
            found.len()
        );
        if found.is_empty() {
            self.recorder.cli(&arguments).done();
        }
        self.imports.changes.last_mut().unwrap().acknowledged = Some(self.recorder.moment());
    }

    fn finish(self, name: &'static str) -> Run {
        let key = self.clients[0].1.clone();
        let mut clients: Vec<ClientRun> = self
            .clients
            .into_iter()
            .map(|(client, key)| ClientRun { name: client.name, key, history: client.history })
            .collect();
        clients.push(ClientRun { name: "im".to_owned(), key, history: self.imports });
        finish(name, self.recorder, self.start, self.operator, clients)
    }
}

fn failing_syncs(path: &str, first: u64) -> Fault {
    Fault { call: Call::Sync, path: path.to_owned(), errno: 5, first, lasting: true }
}

#[track_caller]
fn assert_has_failed(run: &Run, ends: &[&str]) {
    for end in ends {
        let has_failed =
            run.log.records.iter().any(|record| record.failed && record.path.ends_with(end));
        assert!(has_failed, "no sync of {end} has failed");
    }
}

/// The server: at commits and checkpoints of a tenant and of the registry, and when it makes good
/// what the last one has left.
pub(crate) fn by_server() -> Run {
    let recorder = Recorder::in_memory();
    let mut scene = Scene::new(&recorder);
    let mut server = serve(&recorder, &[]);
    let key = scene.clients[0].1.clone();
    scene.clients.extend(["d", "e"].map(|name| (Client::new(&recorder, name, &key), key.clone())));
    scene.go_on();
    scene.all_at_once(&mut server);
    // At a commit.
    scene.fail("tenants/1.db-wal$", 1);
    assert!(scene.clients[0].0.attempt().is_none());
    scene.restart_and_repeat(&mut server);
    // At a commit and at the next start.
    recorder.set_fault(&failing_syncs("tenants/1.db-wal$", 1));
    assert!(scene.clients[0].0.attempt().is_none());
    server.ended_at_failed_sync();
    scene.restart_twice_and_repeat(&mut server);
    // At a commit, and when the next start copies the log into the file.
    scene.fail("tenants/1.db-wal$", 1);
    assert!(scene.clients[0].0.attempt().is_none());
    server.ended_at_failed_sync();
    scene.fail("tenants/1.db$", 1);
    scene.restart_twice_and_repeat(&mut server);
    // At a checkpoint.
    scene.fail("tenants/1.db$", 1);
    while scene.clients[0].0.attempt_large_customer().is_some() {}
    scene.restart_and_repeat(&mut server);
    registry_fails(&mut scene, &mut server);
    server.stop();
    let run = scene.finish("failed syncs of the server");
    assert_has_failed(&run, &["1.db-wal", "1.db", "registry.db-wal", "registry.db"]);
    run
}

/// At a commit of the registry, and at its checkpoint when the server stops.
fn registry_fails(scene: &mut Scene<'_>, server: &mut TestServer) {
    let (name, new) = ("password acme", "a password that may be set");
    let present = scene.operator.history.end()[name].clone();
    scene.fail("registry.db-wal$", 1);
    let started = scene.recorder.moment();
    let present = present.as_str().unwrap();
    assert!(try_change_password_in_panel(scene.recorder, "acme", present, new).is_err());
    let effect = vec![(name.to_owned(), Some(json!(new)))];
    scene.operator.history.add("a new password in the panel", started, None, effect);
    server.ended_at_failed_sync();
    scene.recorder.end_fault();
    server.restart();
    scene.operator.generate_password("acme");
    scene.go_on();
    let (key, id) = scene.operator.create_key("acme");
    scene.operator.revoke(&key, &id);
    scene.fail("registry.db$", 1);
    server.signal("TERM");
    server.ended_at_failed_sync();
    scene.recorder.end_fault();
    server.restart();
    let (key, id) = scene.operator.create_key("acme");
    scene.operator.revoke(&key, &id);
    scene.go_on();
}

/// Commands beside a server: of the registry, and of a tenant whose file the server has open, or
/// not.
pub(crate) fn by_commands_beside_a_server() -> Run {
    let recorder = Recorder::in_memory();
    let mut scene = Scene::new(&recorder);
    // The server writes to the registry by itself, too: the last use of each key.
    let mut server = serve_spared(&recorder);
    scene.go_on();
    scene.fail("registry.db-wal$", 1);
    let create = ["key", "create", "acme", "--name", "lost", "--scope", "all"];
    scene.registry_command_fails(&create, Vec::new());
    scene.go_on();
    let (key, id) = scene.operator.create_key("acme");
    scene.fail("registry.db-wal$", 1);
    let effect = vec![(format!("key {key}"), Some(json!("revoked_api_key")))];
    scene.registry_command_fails(&["key", "revoke", "acme", &id], effect);
    scene.go_on();
    scene.operator.revoke(&key, &id);
    scene.fail("tenants/1.db-wal$", 1);
    scene.import_fails("acme", "im-open", |scene| scene.go_on());
    scene.go_on();
    // An empty log is synced once when it is begun, and once at the commit.
    for first in 1..=2 {
        server.restart();
        scene.fail("tenants/1.db-wal$", first);
        scene.import_fails("acme", &format!("im-closed{first}"), |scene| scene.go_on());
        scene.go_on();
    }
    server.stop();
    let run = scene.finish("failed syncs of commands beside a server");
    assert_has_failed(&run, &["1.db-wal", "registry.db-wal"]);
    run
}

/// The syncs of a log by a command without a server. The first makes the remaining log durable. The
/// second copies the log into the file. The third begins the log again. The last is the commit.
const SYNCS: std::ops::RangeInclusive<u64> = 1..=4;

/// Commands without a server. The next command makes their logs durable.
pub(crate) fn by_commands_alone() -> Run {
    let recorder = Recorder::in_memory();
    let mut scene = Scene::new(&recorder);
    let mut server = serve(&recorder, &[]);
    for first in SYNCS {
        // An import leaves an empty WAL, these changes do not.
        scene.go_on();
        server.kill();
        scene.fail("tenants/1.db-wal$", first);
        scene.import_fails("acme", &format!("im-alone{first}"), |scene| {
            scene.operator.create_key("other");
            server.restart();
            scene.go_on();
        });
    }
    server.kill();
    for first in SYNCS {
        scene.operator.create_key("other");
        tenant_create_fails(&mut scene, first);
    }
    scene.operator.create_key("acme");
    server.restart();
    scene.go_on();
    server.stop();
    let run = scene.finish("failed syncs of commands alone");
    assert_has_failed(&run, &["1.db-wal", "registry.db-wal"]);
    run
}

/// The tenant may be there after the next crash, so nothing removes its file. The repeat tells.
fn tenant_create_fails(scene: &mut Scene<'_>, first: u64) {
    let name = format!("new-{first}");
    scene.fail("registry.db-wal$", first);
    let effect = vec![(format!("tenant {name}"), Some(json!(true)))];
    scene.registry_command_fails(&["tenant", "create", &name], effect);
    let repeat = scene.recorder.cli(&["tenant", "create", &name]);
    assert!(repeat.code == Some(0) || repeat.stderr.contains("exists"), "{repeat:?}");
    scene.operator.history.changes.last_mut().unwrap().acknowledged = Some(scene.recorder.moment());
}
