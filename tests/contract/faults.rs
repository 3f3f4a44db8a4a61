//! A tenant's file is missing, damaged, read-only, locked or on a full disk. Only this tenant is
//! unavailable. The server serves all other tenants as before. When the fault is over, the server
//! serves this tenant again without a restart.
//!
//! After a sync that failed, the content of the disk is unknown. So the process ends, and the next
//! start makes the files consistent.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::support::client::Pending;
use crate::support::syncs::Syncs;
use crate::support::{ALL, Api, Setup, Tenant, TestServer, database, tree, until};

const RECORDS: &str = "/customers.php";

/// A tenant whose file becomes unusable, and one that must not be affected.
struct Fixture {
    server: TestServer,
    tenant: Tenant,
    api: Api,
    other: Api,
}

impl Fixture {
    fn new(setup: Setup) -> Fixture {
        let server = setup.option("--log-format").option("json").start();
        let tenant = server.tenant("unlucky");
        let api = tenant.with_scopes(ALL);
        let other = server.tenant("other").with_scopes(ALL);
        other.customer("Fine");
        Fixture { server, tenant, api, other }
    }

    /// The other tenant is served while this one is not.
    #[track_caller]
    fn assert_only_this_tenant_is_down(&self) {
        // Reads rely for a moment on the last look at the file's path.
        until("the tenant is down", || (self.api.get(RECORDS).status == 503).then_some(()));
        for _ in 0..3 {
            for target in [RECORDS, "/hardware.php", "/employees.php?id=1"] {
                self.api.get(target).fails_with(503, "tenant_unavailable");
            }
            self.api.post(RECORDS, json!({"name": "Lost"})).fails_with(503, "tenant_unavailable");
            self.api.delete("/customers.php?id=1").fails_with(503, "tenant_unavailable");
            self.server.anonymous().get("/readyz").is(200);
            self.other.get("/customers.php?id=1").is(200);
            self.other.customer("Another");
        }
    }

    #[track_caller]
    fn resumes(&self) {
        until("service resumes", || (self.api.get(RECORDS).status == 200).then_some(()));
        self.api.customer("After");
    }

    /// The warnings and errors in the log.
    fn warnings(&self) -> Vec<String> {
        let log = self.server.log();
        let is_warning = |line: &&str| line.contains("\"ERROR\"") || line.contains("\"WARN\"");
        log.lines().filter(is_warning).map(str::to_owned).collect()
    }

    /// A fault is logged once, not for every request.
    #[track_caller]
    fn has_warned(&self, count: usize) {
        // A thread of the test reads the log.
        until("the warnings are read", || (self.warnings().len() >= count).then_some(()));
        assert_eq!(self.warnings().len(), count, "{:#?}", self.warnings());
    }
}

#[test]
fn a_file_that_is_removed_and_comes_back() {
    let fixture = Fixture::new(Setup::without_rate_limit());
    fixture.api.customer("Before");
    let aside = fixture.server.home().join("aside.db");
    std::fs::rename(fixture.tenant.file(), &aside).unwrap();
    fixture.assert_only_this_tenant_is_down();
    fixture.has_warned(1);
    std::fs::rename(&aside, fixture.tenant.file()).unwrap();
    fixture.resumes();
    assert_eq!(fixture.api.get("/customers.php?id=1").found()["name"], "Before");
    // A second failure is reported again.
    std::fs::rename(fixture.tenant.file(), &aside).unwrap();
    fixture.assert_only_this_tenant_is_down();
    fixture.has_warned(2);
    std::fs::rename(&aside, fixture.tenant.file()).unwrap();
    fixture.resumes();
}

/// Replaces a tenant's file, as an operator does who restores it by hand.
fn put_in_place(file: &Path, tenant: &Tenant) {
    for sibling in &tenant.files()[1..] {
        let _ = std::fs::remove_file(sibling);
    }
    std::fs::rename(file, tenant.file()).unwrap();
}

#[test]
fn a_file_that_is_replaced_by_garbage_or_an_empty_one_and_restored() {
    for content in ["This is no database. ".repeat(5_000), String::new()] {
        replaced_by(&content);
    }
}

fn replaced_by(content: &str) {
    let fixture = Fixture::new(Setup::without_rate_limit());
    fixture.api.customer("Before");
    let good = fixture.server.home().join("good.db");
    database(&fixture.tenant.file()).execute("VACUUM INTO ?1", [good.to_str().unwrap()]).unwrap();
    let bad = fixture.server.home().join("bad.db");
    std::fs::write(&bad, content).unwrap();
    put_in_place(&bad, &fixture.tenant);
    fixture.assert_only_this_tenant_is_down();
    fixture.has_warned(1);
    fixture.server.cli(&["check"]).ends_with(1);
    put_in_place(&good, &fixture.tenant);
    fixture.resumes();
    assert_eq!(fixture.api.get("/customers.php?id=1").found()["name"], "Before");
}

#[test]
fn a_file_that_is_read_only_can_be_read() {
    let mut fixture = Fixture::new(Setup::without_rate_limit().unprivileged());
    fixture.api.customer("Before");
    let file = fixture.tenant.file();
    let set_mode =
        |mode: u32| std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    set_mode(0o400);
    // An open file stays writable. The restarted server opens it read-only.
    fixture.server.restart();
    let lost = json!({"name": "Lost"});
    for _ in 0..5 {
        fixture.api.post(RECORDS, lost.clone()).fails_with(503, "tenant_unavailable");
        let put = fixture.api.put("/customers.php?id=1", lost.clone());
        put.fails_with(503, "tenant_unavailable");
        assert_eq!(fixture.api.get("/customers.php?id=1").found()["name"], "Before");
        fixture.other.customer("Another");
    }
    fixture.has_warned(1);
    set_mode(0o600);
    until("writes work again", || {
        (fixture.api.post(RECORDS, json!({"name": "After"})).status == 201).then_some(())
    });
}

/// Sends forty requests for the unusable tenant, more than there are workers; requests of others
/// are served meanwhile.
#[track_caller]
fn assert_others_do_not_wait(fixture: &Fixture, ask: impl Fn(&Api) -> Pending) {
    let stuck: Vec<_> = (0..40).map(|_| ask(&fixture.api)).collect();
    fixture.other.get(RECORDS).is(200);
    fixture.other.customer("Served");
    // A lock is waited for 5 s. A request behind them would have had to wait for their responses.
    assert!(stuck.iter().any(|request| !request.is_answered()), "others waited");
    for _ in 0..10 {
        fixture.other.get(RECORDS).is(200);
        fixture.other.customer("Served");
    }
    for request in stuck {
        request.reply().fails_with(503, "tenant_unavailable");
    }
}

#[test]
#[ignore = "takes 6 s; `make proof` runs it"]
fn proof_a_file_with_a_long_write_of_another_process() {
    let fixture = Fixture::new(Setup::without_rate_limit());
    fixture.api.customer("Before");
    let locked = database(&fixture.tenant.file());
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_others_do_not_wait(&fixture, |api| {
        api.call("POST", RECORDS).json(&json!({"name": "Late"})).start()
    });
    assert_eq!(fixture.api.get("/customers.php?id=1").found()["name"], "Before", "reads go on");
    fixture.has_warned(1);
    let warnings = fixture.warnings();
    assert!(warnings[0].contains("another process has locked the file"), "{warnings:?}");
    locked.execute_batch("ROLLBACK").unwrap();
    fixture.api.customer("After");
    assert_eq!(fixture.api.total(RECORDS), 2, "refused writes are not stored");
}

#[test]
fn a_write_waits_for_a_short_lock() {
    let fixture = Fixture::new(Setup::without_rate_limit());
    let locked = database(&fixture.tenant.file());
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let pending = fixture.api.call("POST", RECORDS).json(&json!({"name": "Patient"})).start();
    fixture.other.customer("Meanwhile");
    assert!(!pending.is_answered());
    locked.execute_batch("COMMIT").unwrap();
    pending.reply().is(201);
}

#[test]
#[ignore = "takes 7 s; `make proof` runs it"]
fn proof_a_file_that_another_process_locks_exclusively() {
    let fixture = Fixture::new(Setup::without_rate_limit());
    let locked = database(&fixture.tenant.file());
    locked.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT").unwrap();
    assert_others_do_not_wait(&fixture, |api| api.call("GET", RECORDS).start());
    drop(locked);
    fixture.resumes();
}

/// Limits the size of the files that the server writes, to simulate a full disk.
fn limit_file_size(server: &TestServer, bytes: Option<u64>) {
    let pid = Pid::from_raw(server.pid().try_into().unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

#[test]
fn a_service_without_its_registry_or_its_data_directory_is_not_ready() {
    let server = TestServer::start();
    let aside = server.home().join("aside");
    let ask = || server.anonymous().get("/readyz");
    for missing in [server.registry_file(), server.data()] {
        std::fs::rename(&missing, &aside).unwrap();
        let reply =
            until("the service is not ready", || Some(ask()).filter(|reply| reply.status != 200));
        reply.fails_with(503, "not_ready");
        server.anonymous().get("/healthz").is(200);
        std::fs::rename(&aside, &missing).unwrap();
        until("the service is ready", || (ask().status == 200).then_some(()));
    }
}

#[test]
fn a_service_on_a_full_disk_is_not_ready() {
    let server = TestServer::start();
    let ask = || server.anonymous().get("/readyz");
    ask().is(200);
    let files = tree(&server.data());
    limit_file_size(&server, Some(0));
    let reply =
        until("the service is not ready", || Some(ask()).filter(|reply| reply.status != 200));
    let reply = reply.fails_with(503, "not_ready");
    assert!(reply.message().contains("data directory"), "{reply}");
    assert!(!reply.message().contains("os error"), "{reply}");
    assert_eq!(reply.header("Retry-After"), Some("5"));
    server.cli(&["health", &server.address().to_string()]).fails_saying("data directory");
    server.anonymous().get("/healthz").is(200);
    assert_eq!(tree(&server.data()), files, "the probe leaves no file behind");
    limit_file_size(&server, None);
    until("the service is ready", || (ask().status == 200).then_some(()));
    assert_eq!(tree(&server.data()), files, "the probe leaves no file behind");
}

/// A server whose syncs can fail, with one tenant.
struct SyncFixture {
    syncs: Syncs,
    server: TestServer,
    api: Api,
}

impl SyncFixture {
    fn new() -> SyncFixture {
        let syncs = Syncs::new();
        let (server, tenant) =
            syncs.observe_server(Setup::without_rate_limit()).start_with_tenant();
        let api = tenant.with_scopes(ALL);
        api.customer("Before");
        SyncFixture { syncs, server, api }
    }
}

#[test]
fn others_do_not_wait_for_a_sync_that_takes_long() {
    let fixture = SyncFixture::new();
    let other = fixture.server.tenant("other").with_scopes(ALL);
    fixture.syncs.hold("/1.db-wal");
    let post = || fixture.api.call("POST", RECORDS).json(&json!({"name": "Waits"})).start();
    // More than there are workers.
    let waiting: Vec<Pending> = (0..64).map(|_| post()).collect();
    for _ in 0..10 {
        other.customer("Made meanwhile");
        fixture.api.get(RECORDS).is(200);
    }
    assert!(waiting.iter().all(|pending| !pending.is_answered()));
    fixture.syncs.release();
    waiting.into_iter().for_each(|pending| _ = pending.reply().created());
}

/// More than there are workers. Nobody has used them since the start.
#[test]
fn reads_of_idle_tenants_do_not_wait_for_a_disk_that_hangs() {
    let syncs = Syncs::new();
    let names: Vec<String> = (0..8).map(|n| format!("idle-{n}")).collect();
    let setup = Setup::without_rate_limit().option("--workers").option("4");
    let setup = setup.option("--create-tenant").option(&names.join(","));
    let mut server = syncs.observe_server(setup).start();
    let keys = crate::command_line::keys_in(&server.output());
    assert_eq!(keys.len(), names.len());
    server.restart();
    syncs.hold("");
    for key in &keys {
        server.with_key(key).get(RECORDS).is(200);
    }
    syncs.release();
}

/// Also with more connections than there are workers.
#[test]
#[ignore = "takes 8 s; `make proof` runs it"]
fn proof_readiness_and_reads_do_not_wait_for_a_disk_that_hangs() {
    let fixture = SyncFixture::new();
    let ask = || fixture.server.anonymous().get("/readyz");
    ask().is(200);
    // The probe's file has no name.
    fixture.syncs.hold("(deleted)");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    ask();
                }
            });
        }
        let reply = until("the probe takes too long", || {
            fixture.api.get(RECORDS).is(200);
            Some(ask()).filter(|reply| reply.status != 200)
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(reply.fails_with(503, "not_ready").message().contains("does not respond"));
    });
    fixture.syncs.release();
    until("the service is ready", || (ask().status == 200).then_some(()));
}
