//! Two machines behind a proxy, eight tenants, and `examples/several/move`, which moves one of them while
//! all clients go on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use crate::support::proxy::{Kind, Proxy};
use crate::support::server::binary;
use crate::support::{ALL, Api, Tenant, TestServer, example, tree, until, uuid};

const TENANTS: usize = 8;
const MOVES: usize = 7;

/// The machine that a tenant is on at first.
fn home(tenant: usize) -> usize {
    tenant % 2
}

/// Runs `examples/several/move` between two servers on this machine, with this route command.
fn move_between(from: &TestServer, to: &TestServer, tenant: &str, route: &[&str]) -> Command {
    let program = binary().display().to_string();
    let mut command = Command::new("sh");
    command.arg(example("several/move")).arg(tenant).args(route);
    command.env("DATA", to.data()).env("LOCK", from.home().join("move.lock"));
    command.env("HERE", format!("{program} --data-dir '{}'", from.data().display()));
    command.env("THERE", format!("{program} --data-dir '{}'", to.data().display()));
    // Like ssh, it passes its arguments after the host, joined by spaces, to a shell.
    let ssh = script(to, &uuid(), "shift\nexec sh -c \"$*\"\n");
    command.env("TO", format!("sh {ssh} two")).env("AS", "env");
    command.env("TMPDIR", to.home());
    command
}

/// A script of this text, which `sh` runs.
fn script(server: &TestServer, name: &str, text: &str) -> String {
    let path = server.home().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_tenant_moves_behind_nginx_while_its_clients_go_on() {
    move_under_load(Kind::Nginx);
}

#[test]
fn a_tenant_moves_behind_caddy_while_its_clients_go_on() {
    move_under_load(Kind::Caddy);
}

/// Clients of every tenant, which write until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    /// How many records were acknowledged so far, by tenant.
    acknowledged: Arc<[AtomicUsize; TENANTS]>,
    clients: Vec<(usize, thread::JoinHandle<Seen>)>,
}

impl Load {
    /// One client for each tenant, and three more for the tenant that moves.
    fn start(api: impl Fn(usize) -> Api) -> Load {
        let (stop, acknowledged) =
            (Arc::<AtomicBool>::default(), Arc::<[AtomicUsize; TENANTS]>::default());
        let clients = (0..TENANTS).chain([MOVES; 3]).map(|n| {
            let (api, stop, acknowledged) = (api(n), Arc::clone(&stop), Arc::clone(&acknowledged));
            (n, thread::spawn(move || client(&api, &stop, &acknowledged[n])))
        });
        let clients = clients.collect();
        Load { stop, acknowledged, clients }
    }

    /// Waits until each tenant has some more records.
    #[track_caller]
    fn await_progress(&self) {
        let count = || -> Vec<usize> {
            self.acknowledged.iter().map(|count| count.load(Ordering::Relaxed)).collect()
        };
        let before = count();
        until("every tenant has ten more records", || {
            before.iter().zip(count()).all(|(before, now)| now >= before + 10).then_some(())
        });
    }

    /// The names of the acknowledged records by id, for each tenant.
    fn stop(self) -> Vec<BTreeMap<i64, String>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = vec![BTreeMap::new(); TENANTS];
        for (n, client) in self.clients {
            let seen = client.join().unwrap();
            match n {
                MOVES => assert!(seen.rejected > 0, "the client did not meet the move"),
                _ => assert_eq!(seen.rejected, 0, "shop-{n} did not move"),
            }
            for (id, name) in seen.made {
                assert_eq!(acknowledged[n].insert(id, name), None, "an id was given twice");
            }
        }
        acknowledged
    }
}

fn move_under_load(kind: Kind) {
    let machines = [TestServer::without_rate_limit(), TestServer::without_rate_limit()];
    let tenants: Vec<Tenant> =
        (0..TENANTS).map(|n| machines[home(n)].tenant(&format!("shop-{n}"))).collect();
    let keys: Vec<String> = tenants.iter().map(|tenant| tenant.key(ALL).key).collect();
    let (names, end) = (["one", "two"], kind.end_of_route());
    let routes: String =
        (0..TENANTS).map(|n| format!("shop-{n}.desk.example {}{end}\n", names[home(n)])).collect();
    let proxy = Proxy::start_several(kind, [machines[0].address(), machines[1].address()], &routes);
    let (file, reload) = (proxy.routes(), proxy.reload().to_owned());
    machines[0].set_proxy(proxy);
    let api = |n: usize| machines[0].with_key(&keys[n]).at_host(&format!("shop-{n}.desk.example"));
    let unknown = api(0).at_host("nobody.desk.example").call("GET", "/healthz").try_send().unwrap();
    assert_eq!(unknown.status, 404);

    let load = Load::start(api);
    load.await_progress();
    let (from, to) = (home(MOVES), 1 - home(MOVES));
    let name = format!("shop-{MOVES}");
    let script = example("several/route");
    let mut command = move_between(
        &machines[from],
        &machines[to],
        &name,
        &[script.to_str().unwrap(), &name, names[to]],
    );
    command.env("ROUTES", &file).env("END", end).env("RELOAD", &reload);
    let moved = command.output().unwrap();
    assert!(moved.status.success(), "{}", stderr(&moved));
    load.await_progress();

    // Every acknowledged record is stored exactly once, and no other is.
    for (n, expected) in load.stop().iter().enumerate() {
        let found: BTreeMap<i64, String> = api(n)
            .all("/customers.php?limit=200")
            .iter()
            .map(|record| {
                (record["id"].as_i64().unwrap(), record["name"].as_str().unwrap().to_owned())
            })
            .collect();
        assert_eq!(&found, expected, "shop-{n}");
    }
    // The old copy is the state at the move: the new one begins with the same bytes.
    let export = |server: &TestServer| {
        server.cli(&["export", &name, "customers", "--format", "jsonl"]).done().stdout
    };
    let (old, new) = (export(&machines[from]), export(&machines[to]));
    assert!(!old.is_empty() && new.starts_with(&old) && new.len() > old.len());
    for machine in &machines {
        machine.cli(&["check"]).done();
    }
}

/// The answers that a client had.
#[derive(Default)]
struct Seen {
    /// The names of the acknowledged records by id.
    made: BTreeMap<i64, String>,
    /// The number of responses `tenant_unavailable`.
    rejected: usize,
}

/// Creates customers. Each is retried with its idempotency key until it is acknowledged.
fn client(api: &Api, stop: &AtomicBool, acknowledged: &AtomicUsize) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let (name, key) = (uuid(), uuid());
        let id = until("the customer is created", || {
            match api
                .call("POST", "/customers.php")
                .json(&json!({"name": name}))
                .key(&key)
                .try_send()
            {
                Ok(reply) if reply.status == 201 => return reply.json()["id"].as_i64(),
                Ok(reply) => {
                    let reply = reply.fails_with(503, "tenant_unavailable");
                    assert_eq!(reply.header("Retry-After"), Some("2"));
                    seen.rejected += 1;
                }
                // A proxy that reloads its configuration closes idle connections.
                Err(_) => (),
            }
            None
        });
        seen.made.insert(id, name);
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    seen
}

#[test]
fn a_failed_move_leaves_the_tenant_where_it_was() {
    let (from, to) = (TestServer::start(), TestServer::start());
    let tenant = from.tenant_with("acme", &["--trial-until", "2099-12-31"]);
    let api = tenant.with_scopes(ALL);
    let listed = |server: &TestServer| server.cli(&["--json", "tenant", "list"]).done().stdout;
    let before = listed(&from);
    let backups = || {
        let is_backup = |path: &PathBuf| path.ends_with("manifest.json");
        tree(to.home()).iter().filter(|path| is_backup(path)).count()
    };

    // Each command breaks off. All but the restore have had their effect before.
    for (side, step) in [
        ("HERE", "backup"),
        ("HERE", "suspend"),
        ("THERE", "restore"),
        ("THERE", "activate"),
        ("THERE", "trial"),
    ] {
        let data = if side == "HERE" { from.data() } else { to.data() };
        let text = format!(
            "case $* in *restore*) exit 255 ;; esac\n{} --data-dir '{}' \"$@\" || exit\n\
             case $* in *{step}*) exit 255 ;; esac",
            binary().display(),
            data.display()
        );
        let mut command = move_between(&from, &to, "acme", &["true"]);
        let output = command.env(side, format!("sh {}", script(&to, "desk", &text))).output();
        let text = stderr(&output.unwrap());
        assert!(text.ends_with("the move failed; the tenant stays here\n"), "{step}: {text}");
        assert_eq!(listed(&from), before, "{step}: active, with its trial");
        assert_eq!(listed(&to), "[]\n", "{step}");
        assert_eq!(backups(), 0, "{step}");
        api.customer(step);
    }

    // The move succeeds without its route: the tenant keeps its state on the new machine, and the
    // old one serves it no more.
    let output = move_between(&from, &to, "acme", &["false"]).output().unwrap();
    assert!(stderr(&output).ends_with("change it by hand\n"), "{}", stderr(&output));
    assert_eq!(backups(), 0);
    let there = to.cli_json(&["tenant", "list"]);
    assert_eq!(
        (&there[0]["state"], &there[0]["trial_until"]),
        (&json!("active"), &json!("2099-12-31"))
    );
    api.get("/customers.php").fails_with(503, "tenant_unavailable").saying("another machine");
    // The old copy does not move. Neither does a tenant whose name the other machine has.
    let refused = |from: &TestServer, to: &TestServer, why: &str| {
        let output = move_between(from, to, "acme", &["true"]).output().unwrap();
        assert!(!output.status.success() && stderr(&output).contains(why), "{}", stderr(&output));
    };
    refused(&from, &TestServer::start(), "moves, or has moved");
    refused(&to, &from, "already has a tenant");
}

#[test]
fn of_two_moves_of_a_tenant_one_succeeds() {
    let from = TestServer::start();
    let machines = [TestServer::start(), TestServer::start()];
    from.tenant("acme");
    let moves =
        machines.each_ref().map(|to| move_between(&from, to, "acme", &["true"]).spawn().unwrap());
    let moved = moves.map(|mut child| child.wait().unwrap().success());
    assert_ne!(moved[0], moved[1]);
    for (machine, moved) in machines.iter().zip(moved) {
        let has_it = machine.cli(&["--json", "tenant", "list"]).stdout.contains("active");
        assert_eq!(has_it, moved);
    }
    assert_eq!(from.cli_json(&["tenant", "list"])[0]["state"], "moving");
}

#[test]
fn a_route_that_the_proxy_rejects_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let routes = directory.path().join("routes");
    std::fs::write(&routes, "acme.desk.example one;\nother.desk.example one;\n").unwrap();
    let route = |reload: &str| {
        let mut command = Command::new(example("several/route"));
        command.args(["acme", "two"]).env("ROUTES", &routes).env("RELOAD", reload);
        (command.status().unwrap().success(), std::fs::read_to_string(&routes).unwrap())
    };
    assert_eq!(
        route("false"),
        (false, "acme.desk.example one;\nother.desk.example one;\n".to_owned())
    );
    assert_eq!(
        route("true"),
        (true, "other.desk.example one;\nacme.desk.example two;\n".to_owned())
    );
}

#[test]
fn two_moves_at_once_lose_no_route() {
    let directory = tempfile::tempdir().unwrap();
    let routes = directory.path().join("routes");
    std::fs::write(&routes, "").unwrap();
    let start = |n: usize| {
        let mut command = Command::new(example("several/route"));
        command.args([format!("shop-{n}"), "two".to_owned()]);
        command.env("ROUTES", &routes).env("RELOAD", "true").spawn().unwrap()
    };
    let moves: Vec<_> = (0..16).map(start).collect();
    for mut one in moves {
        assert!(one.wait().unwrap().success());
    }
    assert_eq!(std::fs::read_to_string(&routes).unwrap().lines().count(), 16);
}
