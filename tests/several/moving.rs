//! Two machines, twenty tenants, and one of them moves with `examples/move` while all clients go on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::proxy::{Kind, Proxy};
use crate::support::{ALL, Api, Tenant, TestServer, uuid};

const TENANTS: usize = 20;
const MOVES: usize = 7;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

/// The machine that a tenant begins on.
fn home(tenant: usize) -> usize {
    tenant % 2
}

fn line_end() -> &'static str {
    if Kind::of_this_binary() == Some(Kind::Nginx) { ";" } else { "" }
}

/// `examples/move/move` between two machines of this one, with a route command.
fn move_between(from: &TestServer, to: &TestServer, tenant: &str, route: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_tenantdesk");
    let mut command = Command::new(example("move/move"));
    command.arg(tenant).args(route);
    command.env("FROM_DESK", format!("{program} --data-dir '{}'", from.data().display()));
    command.env("TO_DESK", format!("{program} --data-dir '{}'", to.data().display()));
    // As ssh does it: words with a space between them, to a shell.
    let ssh = to.home().join("ssh");
    std::fs::write(&ssh, "exec sh -c \"$*\"\n").unwrap();
    command.env("TO", format!("sh {}", ssh.display())).env("AS", "env");
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_tenant_moves_while_its_clients_go_on() {
    let machines = [TestServer::without_rate_limit(), TestServer::without_rate_limit()];
    let tenants: Vec<Tenant> = (0..TENANTS).map(|n| machines[home(n)].tenant(&format!("shop-{n}"))).collect();
    let keys: Vec<String> = tenants.iter().map(|tenant| tenant.key(ALL).key).collect();
    let names = ["one", "two"];
    let routes: String =
        (0..TENANTS).map(|n| format!("shop-{n}.desk.example {}{}\n", names[home(n)], line_end())).collect();
    let proxy =
        Proxy::start_several(Kind::of_this_binary().unwrap(), [machines[0].address(), machines[1].address()], &routes);
    let (file, reload) = (proxy.routes(), proxy.reload().to_owned());
    machines[0].set_proxy(proxy);
    let api = |n: usize| machines[0].with_key(&keys[n]).at_host(&format!("shop-{n}.desk.example"));
    api(0)
        .at_host("nobody.desk.example")
        .call("GET", "/healthz")
        .try_send()
        .map(|reply| assert_eq!(reply.status, 404))
        .unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..TENANTS)
        .chain([MOVES, MOVES, MOVES])
        .map(|n| {
            let (api, stop) = (api(n), Arc::clone(&stop));
            thread::spawn(move || (n, client(&api, &stop)))
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    let (from, to) = (home(MOVES), 1 - home(MOVES));
    let name = format!("shop-{MOVES}");
    let script = example("several/route");
    let mut command =
        move_between(&machines[from], &machines[to], &name, &[script.to_str().unwrap(), &name, names[to]]);
    command.env("ROUTES", &file).env("END", line_end()).env("RELOAD", &reload);
    let began = Instant::now();
    let moved = command.output().unwrap();
    let took = began.elapsed();
    assert!(moved.status.success(), "{}", said(&moved));
    thread::sleep(Duration::from_secs(1));
    stop.store(true, Ordering::Relaxed);

    let mut acknowledged: Vec<BTreeMap<i64, String>> = vec![BTreeMap::new(); TENANTS];
    let mut longest = Duration::ZERO;
    for client in clients {
        let (n, seen) = client.join().unwrap();
        if n == MOVES {
            assert!(seen.refused > 0, "the move was too quick to be noticed");
            longest = longest.max(seen.longest);
        } else {
            assert_eq!(seen.refused, 0, "shop-{n} did not move");
        }
        for (id, name) in seen.made {
            assert_eq!(acknowledged[n].insert(id, name), None, "an id was given twice");
        }
    }
    eprintln!("the move took {:.1} s; a client waited {:.1} s at most", took.as_secs_f64(), longest.as_secs_f64());

    // Every row that was acknowledged is there, once, and none besides.
    for (n, expected) in acknowledged.iter().enumerate() {
        let found: BTreeMap<i64, String> = api(n)
            .all("/customers.php?limit=200")
            .iter()
            .map(|record| (record["id"].as_i64().unwrap(), record["name"].as_str().unwrap().to_owned()))
            .collect();
        assert!(!found.is_empty());
        assert_eq!(&found, expected, "shop-{n}");
    }
    // What it left behind is what it took along, byte for byte, and goes no further.
    let export = |server: &TestServer| server.cli(&["export", &name, "customers", "--format", "jsonl"]).done().stdout;
    let (old, new) = (export(&machines[from]), export(&machines[to]));
    assert!(!old.is_empty() && new.starts_with(&old) && new.len() > old.len());
    for machine in &machines {
        machine.cli(&["check"]).done();
    }
}

/// What a client saw.
#[derive(Default)]
struct Seen {
    made: BTreeMap<i64, String>,
    /// How often it was told that its tenant is inactive.
    refused: usize,
    /// The longest that one change took, all its tries together.
    longest: Duration,
}

/// Makes customers, and tries each again with its key until it is made.
fn client(api: &Api, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let (name, key, began) = (uuid(), uuid(), Instant::now());
        loop {
            assert!(began.elapsed() < Duration::from_secs(60), "a client waits in vain");
            match api.call("POST", "/customers.php").json(&json!({"name": name})).key(&key).try_send() {
                Ok(reply) if reply.status == 201 => {
                    seen.made.insert(reply.json()["id"].as_i64().unwrap(), name);
                    break;
                }
                Ok(reply) => {
                    assert_eq!((reply.status, reply.code().as_str()), (403, "tenant_inactive"), "{}", reply.text());
                    seen.refused += 1;
                }
                // A proxy that reads its configuration again closes connections that are idle.
                Err(_) => (),
            }
            thread::sleep(Duration::from_millis(20));
        }
        seen.longest = seen.longest.max(began.elapsed());
        thread::sleep(Duration::from_millis(5));
    }
    seen
}

#[test]
fn a_move_that_fails_leaves_the_tenant_where_it_was() {
    let (from, to) = (TestServer::start(), TestServer::start());
    let tenant = from.tenant_with("acme", &["--trial-until", "2099-12-31"]);
    let api = tenant.with_scopes(ALL);
    api.customer("First");
    let listed = || from.cli(&["--json", "tenant", "list"]).done().stdout;
    let before = listed();

    // There the restore fails: the data directory is no directory.
    let mut command = move_between(&from, &to, "acme", &["true"]);
    command.env("WAIT", "0").env("TO_DESK", format!("{} --data-dir /dev/null/data", env!("CARGO_BIN_EXE_tenantdesk")));
    let output = command.output().unwrap();
    assert!(!output.status.success());
    let mut command = move_between(&from, &to, "acme", &["true"]);
    let server = format!("{} --data-dir '{}'", env!("CARGO_BIN_EXE_tenantdesk"), to.data().display());
    let script = format!("case $* in *restore*) exit 1 ;; *) exec {server} \"$@\" ;; esac");
    let wrapper = to.home().join("desk");
    std::fs::write(&wrapper, script).unwrap();
    command.env("WAIT", "0").env("TO_DESK", format!("sh '{}'", wrapper.display()));
    let output = command.output().unwrap();
    assert!(!output.status.success() && said(&output).contains("goes on here"), "{}", said(&output));
    assert_eq!(listed(), before, "active, with its trial");
    api.customer("Second");

    // The same with what works: there it is what it was here, here it is suspended.
    let output = move_between(&from, &to, "acme", &["true"]).env("WAIT", "0").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let there = to.cli(&["--json", "tenant", "list"]).done().json();
    assert_eq!((&there[0]["state"], &there[0]["trial_until"]), (&json!("active"), &json!("2099-12-31")));
    api.get("/customers.php").fails_with(403, "tenant_inactive").saying("suspended");
    // And not twice.
    let output = move_between(&from, &to, "acme", &["true"]).env("WAIT", "0").output().unwrap();
    assert!(!output.status.success() && said(&output).contains("there already"), "{}", said(&output));
}

#[test]
fn a_route_that_the_proxy_does_not_take_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let routes = folder.path().join("routes");
    std::fs::write(&routes, "acme.desk.example one;\nother.desk.example one;\n").unwrap();
    let route = |reload: &str| {
        let mut command = Command::new(example("several/route"));
        command.args(["acme", "two"]).env("ROUTES", &routes).env("RELOAD", reload);
        (command.status().unwrap().success(), std::fs::read_to_string(&routes).unwrap())
    };
    assert_eq!(route("false"), (false, "acme.desk.example one;\nother.desk.example one;\n".to_owned()));
    assert_eq!(route("true"), (true, "other.desk.example one;\nacme.desk.example two;\n".to_owned()));
}
