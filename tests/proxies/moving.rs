//! Two machines behind a proxy, eight tenants, and `examples/several/move`, which moves one of them while
//! all clients go on.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::proxy::{Kind, Proxy};
use crate::support::random::{Random, seed};
use crate::support::server::binary;
use crate::support::{ALL, Api, DataDir, Tenant, TestServer, example, tree, until, uuid};

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
    let proxy = Proxy::start_several(
        kind,
        [machines[0].address(), machines[1].address(), machines[1].address()],
        &routes,
    );
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

#[test]
fn the_page_about_several_machines_works_as_printed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proxies/page");
    let output = Command::new("bash").arg(page).arg(binary()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", stderr(&output));
}

/// Moves tenants at random between three machines while 16 clients write through nginx and Caddy,
/// for `MOVING_SECONDS`. Then one machine dies, and its tenants come back from its backup. With
/// `--nocapture`, it prints what it counted.
#[test]
fn tenants_move_at_random_and_a_machine_dies() {
    let seconds = std::env::var("MOVING_SECONDS").map_or(30, |text| text.parse().unwrap());
    let mut fleet = Fleet::start(if seconds < 300 { 30 } else { 200 });
    let mut random = Random::new(seed("MOVING_SEED"));

    let moves = AtomicUsize::new(0);
    let load = fleet.write_during(&mut random, |seeds| {
        let end = Instant::now() + Duration::from_secs(seconds);
        thread::scope(|scope| {
            for (machine, seed) in seeds.into_iter().enumerate() {
                let (fleet, moves) = (&fleet, &moves);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    while Instant::now() < end {
                        let moved = fleet.move_one(machine, &mut random);
                        moves.fetch_add(usize::from(moved), Ordering::Relaxed);
                    }
                });
            }
        });
    });
    println!(
        "{} tenants, {} moves in {seconds} s: {load}",
        fleet.tenants.len(),
        moves.into_inner()
    );
    fleet.compare();

    // The first machine dies. Its tenants come back on the others.
    fleet.machines[0].cli(&["backup", "backups"]).done();
    fleet.machines[0].kill();
    let load = fleet.write_during(&mut random, |_| fleet.bring_back(0));
    println!("a machine died and its tenants came back: {load}");
    fleet.compare();

    // It comes back where it was. The suspensions come before its service.
    let dead = &fleet.machines[0];
    for row in dead.cli_json(&["tenant", "list"]).as_array().unwrap() {
        dead.cli(&["tenant", "suspend", row["name"].as_str().unwrap()]).done();
    }
    let mut command = dead.command();
    command.arg("--data-dir").arg(dead.data());
    command.args(["serve", "--listen", &dead.address().to_string()]);
    let mut returned = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    until("it listens", || TcpStream::connect(dead.address()).ok());
    let load = fleet.write_during(&mut random, |_| {
        for tenant in &fleet.tenants {
            let reply = dead.with_key(&tenant.key).call("GET", "/customers.php").send();
            assert!([401, 403].contains(&reply.status), "the dead machine serves {}", tenant.name);
        }
    });
    println!("the machine returned: {load}");
    fleet.compare();
    returned.kill().unwrap();
    returned.wait().unwrap();
}

/// Three machines, and two proxies in front of them.
struct Fleet {
    machines: [TestServer; 3],
    /// Clients of these go through a proxy each.
    proxies: [Arc<DataDir>; 2],
    tenants: Vec<Moving>,
}

/// A tenant of the fleet.
struct Moving {
    name: String,
    key: String,
    machine: Mutex<usize>,
    /// The names of the acknowledged records.
    acknowledged: Mutex<Vec<String>>,
}

/// What the clients counted.
#[derive(Default)]
struct Counts {
    writes: usize,
    /// Responses 503 with `Retry-After`.
    told_to_wait: usize,
    /// Connections that a proxy closed or could not make.
    broken: usize,
    /// The longest time from a request to its success, whatever happened between.
    longest: Duration,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts { writes, told_to_wait, broken, longest } = self;
        write!(
            f,
            "{writes} writes, {told_to_wait} answers 503 with Retry-After, {broken} connections \
             closed, longest gap of a tenant {longest:.1?}"
        )
    }
}

const MACHINES: [&str; 3] = ["one", "two", "three"];

impl Fleet {
    fn start(count: usize) -> Fleet {
        let machines: [TestServer; 3] = std::array::from_fn(|_| TestServer::without_rate_limit());
        let tenants: Vec<Moving> = (0..count)
            .map(|n| {
                let name = format!("shop-{n}");
                let key = machines[n % 3].tenant(&name).key(ALL).key;
                Moving { name, key, machine: Mutex::new(n % 3), acknowledged: Mutex::default() }
            })
            .collect();
        let addresses = machines.each_ref().map(|machine| machine.address());
        let mut set = String::from("set -e\n");
        let proxies = Kind::ALL.map(|kind| {
            let end = kind.end_of_route();
            let routes: String = tenants
                .iter()
                .map(|Moving { name, machine, .. }| {
                    format!("{name}.desk.example {}{end}\n", MACHINES[*machine.lock().unwrap()])
                })
                .collect();
            let proxy = Proxy::start_several(kind, addresses, &routes);
            let reload = proxy.routes().with_file_name("reload");
            std::fs::write(&reload, reload_and_wait(kind, &proxy)).unwrap();
            set += &format!(
                "ROUTES='{}' END='{end}' RELOAD=\"sh '{}'\" '{}' \"$@\"\n",
                proxy.routes().display(),
                reload.display(),
                example("several/route").display()
            );
            let clients = DataDir::new(false);
            clients.set_proxy(proxy);
            clients
        });
        for machine in &machines {
            script(machine, "routes", &set);
        }
        Fleet { machines, proxies, tenants }
    }

    fn route(&self, machine: usize) -> String {
        self.machines[machine].home().join("routes").display().to_string()
    }

    /// Picks a tenant. If it is on this machine, moves it to another one, and removes the old copy.
    fn move_one(&self, machine: usize, random: &mut Random) -> bool {
        let tenant = random.pick(&self.tenants);
        if *tenant.machine.lock().unwrap() != machine {
            return false;
        }
        let to = (machine + 1 + random.below(2)) % 3;
        let here = &self.machines[machine];
        let routes = self.route(machine);
        let route = ["sh", &routes, &tenant.name, MACHINES[to]];
        let done = move_between(here, &self.machines[to], &tenant.name, &route).output().unwrap();
        assert!(done.status.success(), "{}", stderr(&done));
        here.cli(&["tenant", "delete", &tenant.name, "--yes"]).done();
        *tenant.machine.lock().unwrap() = to;
        true
    }

    /// Restores the tenants of a machine on the others.
    fn bring_back(&self, machine: usize) {
        let backups = self.machines[machine].home().join("backups").display().to_string();
        for (n, tenant) in self.tenants.iter().enumerate() {
            let mut at = tenant.machine.lock().unwrap();
            if *at == machine {
                *at = (machine + 1 + n % 2) % 3;
                self.machines[*at].cli(&["restore", &backups, &tenant.name]).done();
                let mut route = Command::new("sh");
                route.args([&self.route(machine), &tenant.name, MACHINES[*at]]);
                assert!(route.status().unwrap().success());
            }
        }
    }

    /// Runs `work` with three seeds, while 16 clients write.
    fn write_during(&self, random: &mut Random, work: impl FnOnce([u64; 3])) -> Counts {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..16)
                .map(|n| {
                    let (mut random, stop) = (Random::new(random.next()), &stop);
                    scope.spawn(move || self.write(&self.proxies[n % 2], &mut random, stop))
                })
                .collect();
            // The clients also end if this fails.
            let seeds = [random.next(), random.next(), random.next()];
            let worked = catch_unwind(AssertUnwindSafe(|| work(seeds)));
            stop.store(true, Ordering::Relaxed);
            worked.unwrap();
            let mut total = Counts::default();
            for client in clients {
                let counts = client.join().unwrap();
                total.writes += counts.writes;
                total.told_to_wait += counts.told_to_wait;
                total.broken += counts.broken;
                total.longest = total.longest.max(counts.longest);
            }
            total
        })
    }

    /// Creates customers of random tenants, ten of each at a time.
    fn write(&self, proxy: &Arc<DataDir>, random: &mut Random, stop: &AtomicBool) -> Counts {
        let mut counts = Counts::default();
        while !stop.load(Ordering::Relaxed) {
            let tenant = random.pick(&self.tenants);
            let api = proxy.with_key(&tenant.key).at_host(&format!("{}.desk.example", tenant.name));
            for _ in 0..10 {
                let (name, key, begun) = (uuid(), uuid(), Instant::now());
                while !create(&api, &name, &key, &mut counts) {
                    assert!(begun.elapsed() < Duration::from_secs(600), "{} is gone", tenant.name);
                }
                counts.writes += 1;
                counts.longest = counts.longest.max(begun.elapsed());
                tenant.acknowledged.lock().unwrap().push(name);
            }
        }
        counts
    }

    /// Every acknowledged record is stored exactly once, and no other is.
    fn compare(&self) {
        for (n, tenant) in self.tenants.iter().enumerate() {
            let api = self.proxies[n % 2].with_key(&tenant.key);
            let records = api.at_host(&format!("{}.desk.example", tenant.name));
            let records = records.all("/customers.php?limit=200");
            let name = |record: &Value| record["name"].as_str().unwrap().to_owned();
            let mut found: Vec<String> = records.iter().map(name).collect();
            let mut expected = tenant.acknowledged.lock().unwrap().clone();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{}", tenant.name);
        }
    }
}

/// A script that reloads the proxy and ends when no request has the old routes any more. An old
/// worker of nginx goes on for at least 100 ms. The test deletes the old copy right after the move,
/// and a key that the machine no longer knows would get 401.
fn reload_and_wait(kind: Kind, proxy: &Proxy) -> String {
    let reload = proxy.reload();
    match kind {
        Kind::Nginx => format!(
            "master=$(cat '{}')\nold=$(cat /proc/$master/task/$master/children)\n{reload} || exit\n\
             for worker in $old; do while kill -0 $worker 2>/dev/null; do sleep 0.02; done; done\n",
            proxy.routes().with_file_name("pid").display()
        ),
        Kind::Caddy => reload.to_owned(),
    }
}

/// Creates a customer as a client that obeys `Retry-After`. Returns whether it is acknowledged.
fn create(api: &Api, name: &str, key: &str, counts: &mut Counts) -> bool {
    let call = api.call("POST", "/customers.php").json(&json!({"name": name})).key(key);
    match call.try_send() {
        Ok(reply) if reply.status == 201 => return true,
        Ok(reply) => {
            let reply = reply.fails_with(503, "tenant_unavailable");
            let wait = reply.header("Retry-After").unwrap().parse().unwrap();
            counts.told_to_wait += 1;
            thread::sleep(Duration::from_secs(wait));
        }
        // The proxy closes idle connections when it reloads, and cannot reach a dead machine.
        Err(_) => {
            counts.broken += 1;
            thread::sleep(Duration::from_millis(20));
        }
    }
    false
}
