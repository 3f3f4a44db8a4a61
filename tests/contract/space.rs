//! Contract section 6: a tenant at its size, and a disk that is nearly full, take deletions alone.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::browser::Browser;
use crate::support::{ALL, Api, Setup, TestServer, database, until, uuid};

const RECORDS: &str = "/customers.php";
const RESERVE: u64 = 256 << 20;

fn post(api: &Api) -> u16 {
    api.post(RECORDS, json!({"name": "Long", "notes": "x".repeat(5_000)})).status
}

#[test]
fn a_tenant_at_its_size_is_read_and_takes_deletions() {
    let (server, tenant) =
        Setup::without_rate_limit().option("--max-tenant-size").option("1MiB").start_with_tenant();
    let api = tenant.with_scopes(ALL);
    let other = server.tenant("other").with_scopes(ALL);
    let key = uuid();
    let first = || {
        let body = json!({"name": "First", "notes": "x".repeat(5_000)});
        api.call("POST", RECORDS).key(&key).json(&body).send()
    };
    let answer = first().created();
    until("the tenant is at its size", || (post(&api) == 503).then_some(()));
    assert_eq!(first().created(), answer, "a repeat needs no space");
    let refused = api.post(RECORDS, json!({"name": "More"})).fails_with(503, "tenant_unavailable");
    assert!(refused.message().contains("size"), "{refused}");
    api.put(&format!("{RECORDS}?id=1"), json!({"name": "Other"}))
        .fails_with(503, "tenant_unavailable");
    let total = api.total(RECORDS);
    for id in 1..=total / 2 {
        api.delete(&format!("{RECORDS}?id={id}")).is(204);
    }
    until("there is room again", || (post(&api) == 201).then_some(()));
    other.customer("Undisturbed");
    server.cli(&["check"]).done();
}

/// In mounts of its own, with a small file system for everything.
#[test]
#[ignore = "needs root; `make proof` runs it"]
fn proof_a_disk_that_is_nearly_full_leaves_room_for_what_an_operator_must_do() {
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=448m none \"$TMPDIR\"; exec \"$0\" --exact --ignored --nocapture \
                  space::on_a_small_disk";
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", script]).arg(&this).env("TMPDIR", directory.path());
    let child = command.output().unwrap();
    assert!(
        child.status.success(),
        "{}{}",
        String::from_utf8_lossy(&child.stdout),
        String::from_utf8_lossy(&child.stderr)
    );
}

fn available(path: &Path) -> u64 {
    let disk = rustix::fs::statvfs(path).unwrap();
    disk.f_bavail * disk.f_frsize
}

/// Fills the disk of `directory` until `left` bytes are free.
fn fill(directory: &Path, left: u64) {
    let size = available(directory) - left;
    let ballast = File::create(directory.join("ballast")).unwrap();
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, size).unwrap();
}

#[test]
#[ignore = "runs in mounts of its own"]
fn on_a_small_disk() {
    let (mut server, acme) = TestServer::with_unlimited_tenant();
    let (key, api) = (acme.key(ALL), acme.with_scopes(ALL));
    let other = server.tenant("other");
    let others = other.with_scopes(ALL);
    let customer = api.customer("Before");
    let directory = std::env::temp_dir();
    assert_ne!(directory.metadata().unwrap().dev(), Path::new("/").metadata().unwrap().dev());
    a_log_that_another_program_keeps_is_bounded(&acme.file(), &api);
    fill(&directory, RESERVE - (1 << 20));
    for api in [&api, &others] {
        let refused =
            api.post(RECORDS, json!({"name": "More"})).fails_with(503, "tenant_unavailable");
        assert!(refused.message().contains("disk"), "{refused}");
        api.get(RECORDS).is(200);
    }
    let warning = until("the probe has found it", || {
        server.anonymous().get("/readyz").found()["warning"].as_str().map(str::to_owned)
    });
    assert!(warning.contains("MiB free"), "{warning}");
    let health = server.cli(&["health", &server.address().to_string()]).done();
    assert!(health.stdout.contains(&warning), "{health:?}");
    api.delete(&format!("{RECORDS}?id={customer}")).is(204);
    Browser::at(&server, "192.0.2.1").sign_in("acme", &acme.password).is(303);
    acme.key_command("revoke", &key);
    server.with_key(&key.key).get(RECORDS).fails_with(401, "revoked_api_key");
    other.ask("suspend", &[]);
    others.get(RECORDS).fails_with(403, "tenant_inactive");
    other.ask("delete", &["--yes"]);
    others.get(RECORDS).fails_with(401, "invalid_api_key");
    server.stop();
    server.restart();
    until("the log has the warning at the start", || {
        server.log().contains("MiB free").then_some(())
    });
    fs::remove_file(directory.join("ballast")).unwrap();
    until("there is room again", || (post(&api) == 201).then_some(()));
    server.cli(&["check"]).done();
    a_full_disk_ends_no_server(&server, &directory);
    let leaked = acme.key(ALL);
    fill(&directory, 0);
    acme.key_command("revoke", &leaked);
    server.with_key(&leaked.key).get(RECORDS).fails_with(401, "revoked_api_key");
    let mut panel = Browser::at(&server, "192.0.2.2");
    // Until the space that the registry keeps is used up.
    let refused = until("the registry is full", || {
        let reply = panel.sign_in("acme", &acme.password);
        (reply.status != 303).then_some(reply)
    });
    let refused = refused.is(503);
    assert!(refused.text().contains("disk is full"), "{refused}");
    fs::remove_file(directory.join("ballast")).unwrap();
    panel.sign_in("acme", &acme.password).is(303);
}

/// Another program reads the tenant's file without an end.
fn a_log_that_another_program_keeps_is_bounded(file: &Path, api: &Api) {
    let program = database(file);
    program.execute_batch("BEGIN; SELECT count(*) FROM customers").unwrap();
    let other = database(file);
    other.execute_batch("CREATE TABLE filler (bytes BLOB)").unwrap();
    let lengthen = |mebibytes: i64| {
        let sql = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT ?)
                   INSERT INTO filler SELECT zeroblob(1048576) FROM n";
        other.execute(sql, [mebibytes]).unwrap();
    };
    // A quarter of what is free then is 96 MiB, and later 86 MiB.
    lengthen(55);
    api.customer("Not refused");
    lengthen(45);
    api.post(RECORDS, json!({"name": "More"}))
        .fails_with(503, "tenant_unavailable")
        .saying("another program");
    api.delete(&format!("{RECORDS}?id=2")).is(204);
    program.execute_batch("ROLLBACK").unwrap();
    other.execute_batch("DROP TABLE filler").unwrap();
    until("the log is emptied", || (post(api) == 201).then_some(()));
}

/// Another program has filled the disk.
fn a_full_disk_ends_no_server(server: &TestServer, directory: &Path) {
    let (open, idle) = (server.tenant("open"), server.tenant("idle"));
    let (open, idle) = (open.with_scopes(ALL), idle.with_scopes(ALL));
    open.get(RECORDS).is(200);
    fill(directory, 64 << 10);
    open.get(RECORDS).is(200);
    server.cli(&["export", "open", "customers"]).done();
    idle.get(RECORDS).fails_with(503, "tenant_unavailable");
    server.cli(&["export", "idle", "customers"]).fails_saying("the disk is full");
    fs::remove_file(directory.join("ballast")).unwrap();
    until("there is room again", || (idle.get(RECORDS).status == 200).then_some(()));
}
