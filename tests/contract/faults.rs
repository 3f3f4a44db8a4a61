//! A tenant whose file is missing, damaged, read-only, locked or on a full disk (issue 2, points 11 and 12): that tenant
//! is unavailable, every other one is served as before, and service resumes by itself.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::support::{ALL, Api, Desk, Inside, Setup, Tenant, database, until};

const RECORDS: &str = "/customers.php";

/// One tenant that will be in trouble, and one that must not notice.
struct Scene {
    desk: Desk,
    tenant: Tenant,
    api: Api,
    other: Api,
}

impl Scene {
    fn new(setup: Setup) -> Scene {
        let desk = setup.option("--log-format").option("json").start();
        let tenant = desk.tenant("unlucky");
        let api = tenant.with_scopes(ALL);
        let other = desk.tenant("other").with_scopes(ALL);
        other.customer("Fine");
        Scene { desk, tenant, api, other }
    }

    /// The other tenant is served while this one is not, and nothing but the trouble keeps this one.
    #[track_caller]
    fn is_down_alone(&self) {
        // Longer than a failure is remembered: the file is tried again more than once.
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(1_300) {
            for target in [RECORDS, "/hardware.php", "/employees.php?id=1"] {
                self.api.get(target).fails_with(503, "tenant_unavailable");
            }
            self.api.post(RECORDS, json!({"name": "Lost"})).fails_with(503, "tenant_unavailable");
            self.api.delete("/customers.php?id=1").fails_with(503, "tenant_unavailable");
            self.other.get("/customers.php?id=1").is(200);
            self.other.customer("Another");
        }
    }

    #[track_caller]
    fn resumes(&self) {
        until("service resumes", || (self.api.get(RECORDS).status == 200).then_some(()));
        self.api.customer("After");
    }

    /// The lines that are not a request's and speak of something going wrong.
    fn complaints(&self) -> Vec<String> {
        let log = self.desk.log();
        let bad = |line: &&str| line.contains("\"ERROR\"") || line.contains("\"WARN\"");
        log.lines().filter(bad).map(str::to_owned).collect()
    }
}

#[test]
fn a_file_that_is_removed_and_comes_back() {
    let scene = Scene::new(Setup::roomy());
    scene.api.customer("Before");
    let aside = scene.desk.home().join("aside.db");
    std::fs::rename(scene.tenant.file(), &aside).unwrap();
    scene.is_down_alone();
    assert_eq!(scene.complaints().len(), 1, "said once, not for every request: {:#?}", scene.complaints());
    std::fs::rename(&aside, scene.tenant.file()).unwrap();
    scene.resumes();
    assert_eq!(scene.api.get("/customers.php?id=1").found()["name"], "Before");
    // The same trouble again is said again.
    std::fs::rename(scene.tenant.file(), &aside).unwrap();
    scene.is_down_alone();
    assert_eq!(scene.complaints().len(), 2, "{:#?}", scene.complaints());
    std::fs::rename(&aside, scene.tenant.file()).unwrap();
    scene.resumes();
}

/// Puts a file in a tenant's place, as one who restores it by hand would.
fn put_in_place(file: &Path, tenant: &Tenant) {
    for beside in &tenant.files()[1..] {
        let _ = std::fs::remove_file(beside);
    }
    std::fs::rename(file, tenant.file()).unwrap();
}

fn replaced_by(content: &[u8]) {
    let scene = Scene::new(Setup::roomy());
    scene.api.customer("Before");
    let good = scene.desk.home().join("good.db");
    database(&scene.tenant.file()).execute("VACUUM INTO ?1", [good.to_str().unwrap()]).unwrap();
    let bad = scene.desk.home().join("bad.db");
    std::fs::write(&bad, content).unwrap();
    put_in_place(&bad, &scene.tenant);
    scene.is_down_alone();
    assert_eq!(scene.complaints().len(), 1, "said once, not for every request: {:#?}", scene.complaints());
    scene.desk.cli(&["check"]).ends_with(1);
    put_in_place(&good, &scene.tenant);
    scene.resumes();
    assert_eq!(scene.api.get("/customers.php?id=1").found()["name"], "Before");
}

#[test]
fn a_file_that_is_replaced_by_garbage_and_restored() {
    replaced_by("This is no database. ".repeat(5_000).as_bytes());
}

#[test]
fn a_file_that_is_replaced_by_an_empty_one_and_restored() {
    replaced_by(b"");
}

#[test]
fn a_file_that_is_replaced_by_another_good_one_is_served_at_once() {
    let scene = Scene::new(Setup::roomy());
    scene.api.customer("In both");
    let copy = scene.desk.home().join("copy.db");
    database(&scene.tenant.file()).execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    scene.api.customer("Only in the old one");
    put_in_place(&copy, &scene.tenant);
    until("the new file is served", || (scene.api.total(RECORDS) == 1).then_some(()));
    scene.api.customer("Into the new one");
    let names: i64 = database(&scene.tenant.file())
        .query_row("SELECT count(*) FROM customers WHERE name = 'Into the new one'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(names, 1);
}

#[test]
fn a_file_that_is_read_only_can_be_read() {
    let mut scene = Scene::new(Setup::roomy().unprivileged());
    scene.api.customer("Before");
    let file = scene.tenant.file();
    let set_mode = |mode: u32| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o400);
    // What was open stays writable; a server that opens the file now finds it so.
    scene.desk.restart();
    for _ in 0..5 {
        scene.api.post(RECORDS, json!({"name": "Lost"})).fails_with(503, "tenant_unavailable");
        scene.api.put("/customers.php?id=1", json!({"name": "Lost"})).fails_with(503, "tenant_unavailable");
        assert_eq!(scene.api.get("/customers.php?id=1").found()["name"], "Before");
        scene.other.customer("Another");
    }
    assert_eq!(scene.complaints().len(), 1, "said once, not for every request: {:#?}", scene.complaints());
    set_mode(0o600);
    until("writes work again", || (scene.api.post(RECORDS, json!({"name": "After"})).status == 201).then_some(()));
}

/// Forty requests for the tenant in trouble, which would hold every worker if they could; meanwhile others are asked for.
#[track_caller]
fn others_are_not_kept_waiting(scene: &Scene, ask: impl Fn(&Api) -> crate::support::client::Pending) {
    let stuck: Vec<_> = (0..40).map(|_| ask(&scene.api)).collect();
    scene.other.get(RECORDS).is(200);
    scene.other.customer("Served");
    // A lock is waited for 5 s: whoever had to wait behind them would have seen them answered.
    assert!(stuck.iter().any(|request| !request.is_answered()), "others waited");
    for _ in 0..10 {
        scene.other.get(RECORDS).is(200);
        scene.other.customer("Served");
    }
    for request in stuck {
        request.reply().fails_with(503, "tenant_unavailable");
    }
}

#[test]
fn a_file_that_another_process_writes_to_for_long() {
    let scene = Scene::new(Setup::roomy());
    scene.api.customer("Before");
    let locked = database(&scene.tenant.file());
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    others_are_not_kept_waiting(&scene, |api| api.call("POST", RECORDS).json(&json!({"name": "Late"})).start());
    assert_eq!(scene.api.get("/customers.php?id=1").found()["name"], "Before", "reads go on");
    assert_eq!(scene.complaints().len(), 1, "said once, not for every request: {:#?}", scene.complaints());
    locked.execute_batch("ROLLBACK").unwrap();
    scene.api.customer("After");
    assert_eq!(scene.api.total(RECORDS), 2, "what was refused is not there");
}

#[test]
fn a_write_waits_for_a_lock_that_is_soon_gone() {
    let scene = Scene::new(Setup::roomy());
    let locked = database(&scene.tenant.file());
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let pending = scene.api.call("POST", RECORDS).json(&json!({"name": "Patient"})).start();
    scene.other.customer("Meanwhile");
    assert!(!pending.is_answered());
    locked.execute_batch("COMMIT").unwrap();
    pending.reply().is(201);
}

#[test]
fn a_file_that_another_process_keeps_for_itself() {
    let scene = Scene::new(Setup::roomy());
    let locked = database(&scene.tenant.file());
    locked.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT").unwrap();
    others_are_not_kept_waiting(&scene, |api| api.call("GET", RECORDS).start());
    drop(locked);
    scene.resumes();
}

#[test]
fn a_full_disk_refuses_writes_and_leaves_the_database_sound() {
    let mut scene = Scene::new(Setup::roomy().largest_file(3 << 20));
    let mut kept = Vec::new();
    let notes: String = (0..5_000).map(|n| char::from(b'a' + u8::try_from(n * 7 % 26).unwrap())).collect();
    let mut refusals = 0;
    // What is refused now may fit later: SQLite makes room when it moves its log into the file.
    until("the disk is full", || {
        let reply = scene.api.post(RECORDS, json!({"name": format!("Number {}", kept.len()), "notes": notes}));
        match reply.status {
            201 => kept.push(reply.json()),
            _ => {
                reply.fails_with(503, "tenant_unavailable");
                refusals += 1;
            }
        }
        (refusals == 20).then_some(())
    });
    assert_eq!(scene.api.all(RECORDS), kept, "reads go on and what was refused is not there");
    scene.other.customer("Has room");
    assert_eq!(scene.complaints().len(), 1, "said once, not for every request: {:#?}", scene.complaints());
    scene.desk.cli(&["check"]).done();
    scene.desk.stop();
    scene.desk.cli(&["check"]).done();
    let desk = Setup::roomy().start_at(std::sync::Arc::clone(&scene.desk));
    scene.api.customer("After");
    for record in &kept {
        assert_eq!(scene.api.get(&format!("{RECORDS}?id={}", record["id"])).found(), *record);
    }
    drop(desk);
}

/// Sets how large a file the server may write, as a full disk would.
fn limit_file_size(desk: &Desk, bytes: Option<u64>) {
    let pid = Pid::from_raw(desk.pid().try_into().unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

/// What lies in the data directory itself.
fn names_in_data_directory(desk: &Desk) -> Vec<String> {
    let entries = std::fs::read_dir(desk.data()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_service_on_a_full_disk_is_not_ready() {
    let desk = Desk::start();
    let ask = || desk.anonymous().get("/readyz");
    ask().is(200);
    let files = names_in_data_directory(&desk);
    limit_file_size(&desk, Some(0));
    let reply = until("the service is not ready", || Some(ask()).filter(|reply| reply.status != 200));
    let reply = reply.fails_with(503, "not_ready");
    assert!(reply.message().contains("data directory"), "{reply}");
    assert_eq!(reply.header("Retry-After"), Some("5"));
    desk.anonymous().get("/healthz").is(200);
    assert_eq!(names_in_data_directory(&desk), files, "the probe leaves no file behind");
    limit_file_size(&desk, None);
    until("the service is ready", || (ask().status == 200).then_some(()));
    assert_eq!(names_in_data_directory(&desk), files, "the probe leaves no file behind");
}

#[test]
fn readiness_is_probed_once_a_second() {
    let service = Inside::at("2026-11-20T19:30:00Z");
    let ask = || service.anonymous().get("/readyz");
    ask().is(200);
    let aside = service.home().join("aside");
    std::fs::rename(service.data(), &aside).unwrap();
    service.advance_millis(999);
    ask().is(200);
    service.advance_millis(1);
    ask().fails_with(503, "not_ready");
    std::fs::rename(&aside, service.data()).unwrap();
    ask().fails_with(503, "not_ready");
    service.advance(1);
    ask().is(200);
}
