//! Contract section 11: a sync of the disk that fails. The kernel may drop what it could not write, and reports that once.

use std::time::Duration;

use serde_json::json;

use crate::support::client::Pending;
use crate::support::server::run;
use crate::support::syncs::Syncs;
use crate::support::{ALL, Api, Reply, Setup, Tenant, TestServer, database, until, uuid};

const RECORDS: &str = "/customers.php";

/// A server whose syncs can fail, with one tenant.
struct Fixture {
    syncs: Syncs,
    server: TestServer,
    tenant: Tenant,
    api: Api,
}

impl Fixture {
    fn new() -> Fixture {
        let syncs = Syncs::new();
        let server = syncs.observe_server(Setup::without_rate_limit()).start();
        let tenant = server.tenant("acme");
        let api = tenant.with_scopes(ALL);
        api.customer("Before");
        Fixture { syncs, server, tenant, api }
    }

    fn post(&self, name: &str, key: &str) -> Reply {
        self.api.call("POST", RECORDS).header("Idempotency-Key", key).json(&json!({"name": name})).send()
    }

    /// The process ends without a chance to tidy up, and the next one reads what it left.
    fn crash(&mut self) {
        self.server.kill();
        self.server.restart();
    }

    /// The frames in the tenant's write-ahead log, and those that count as copied into the file.
    fn log_state(&self) -> (u32, u32) {
        let state = "PRAGMA wal_checkpoint(NOOP)";
        database(&self.tenant.file()).query_row(state, [], |row| Ok((row.get(1)?, row.get(2)?))).unwrap()
    }
}

/// They would keep the connections to the workers, which all tenants share.
#[test]
fn few_changes_wait_for_a_sync_that_takes_long() {
    const WAITING: usize = 64;
    let fixture = Fixture::new();
    let other = fixture.server.tenant("other").with_scopes(ALL);
    fixture.syncs.hold("/1.db-wal");
    let post = || fixture.api.call("POST", RECORDS).json(&json!({"name": "Waits"})).start();
    let mut waiting: Vec<Pending> = (0..=WAITING).map(|_| post()).collect();
    let refused = until("a change is refused", || {
        let next = post();
        // Longer than a refusal takes, and seldom enough that few wait when it begins.
        std::thread::sleep(Duration::from_millis(400));
        if next.is_answered() {
            return Some(next);
        }
        waiting.push(next);
        None
    });
    refused.reply().fails_with(503, "tenant_unavailable");
    other.customer("Made meanwhile");
    assert!(waiting.iter().all(|pending| !pending.is_answered()));
    fixture.syncs.release();
    waiting.into_iter().for_each(|pending| _ = pending.reply().created());
}

#[test]
fn a_change_that_could_not_be_synced_is_not_there_after_a_crash() {
    let mut fixture = Fixture::new();
    let key = uuid();
    fixture.syncs.fail("/1.db-wal");
    for _ in 0..3 {
        fixture.post("Lost", &key).fails_with(503, "tenant_unavailable");
        assert_eq!(fixture.api.total(RECORDS), 1, "reads go on");
    }
    fixture.crash();
    assert_eq!(fixture.api.total(RECORDS), 1);
    fixture.syncs.succeed();
    assert_eq!(fixture.post("Lost", &key).created()["id"], 2);
    assert_eq!(fixture.post("Lost", &key).created()["id"], 2);
    fixture.crash();
    assert_eq!(fixture.api.total(RECORDS), 2);
    fixture.server.cli(&["check"]).done();
}

#[test]
fn service_resumes_after_a_failed_sync_and_the_log_says_it_once() {
    let fixture = Fixture::new();
    let other = fixture.server.tenant("other").with_scopes(ALL);
    fixture.syncs.fail("/1.db-wal");
    for _ in 0..5 {
        fixture.post("Lost", &uuid()).fails_with(503, "tenant_unavailable");
        other.customer("Served");
    }
    fixture.syncs.succeed();
    assert_eq!(fixture.post("After", &uuid()).created()["id"], 2);
    let log = fixture.server.log();
    assert_eq!(log.matches("ERROR").count(), 1, "{log}");
}

/// Posts records with long texts until `is_done`.
fn fill_log(fixture: &Fixture, is_done: impl Fn() -> bool) -> usize {
    let notes: String = (0..5_000).map(|n| char::from(b'a' + u8::try_from(n * 7 % 26).unwrap())).collect();
    let mut made = 0;
    until("the write-ahead log is long", || {
        let reply = fixture.api.post(RECORDS, json!({"name": "Long", "notes": notes}));
        made += usize::from(reply.status == 201);
        is_done().then_some(made)
    })
}

/// A checkpoint beside readers copies pages without a sync of the file. If a later sync fails, these pages may be lost, although
/// they count as copied. So the whole log has to be copied again.
#[test]
fn after_a_failed_checkpoint_the_whole_log_is_copied_again() {
    let mut fixture = Fixture::new();
    let mut made = fill_log(&fixture, || fixture.log_state().0 > 100);
    let reader = database(&fixture.tenant.file());
    reader.execute_batch("BEGIN; SELECT count(*) FROM customers").unwrap();
    made += fill_log(&fixture, || fixture.log_state().1 > 0);
    fixture.syncs.fail("/1.db");
    drop(reader);
    made += fill_log(&fixture, || fixture.server.log().contains("cannot be copied"));
    fixture.syncs.succeed();
    until("the tenant is served again", || (fixture.api.get("/customers.php?id=1").status == 200).then_some(()));
    let (frames, copied) = fixture.log_state();
    assert!(frames > 0 && copied == 0, "{copied} of {frames} frames count as copied");
    fixture.crash();
    assert_eq!(fixture.api.total(RECORDS), i64::try_from(made).unwrap() + 1);
    fixture.api.customer("After");
    fixture.server.cli(&["check"]).done();
}

#[test]
fn a_key_that_could_not_be_synced_is_not_there_after_a_crash() {
    let mut fixture = Fixture::new();
    let keys =
        |server: &TestServer| server.cli(&["--json", "key", "list", "acme"]).done().json().as_array().unwrap().len();
    let before = keys(&fixture.server);
    let mut command = fixture.server.command();
    fixture.syncs.observe(&mut command);
    fixture.syncs.fail("/registry.db-wal");
    command.arg("--data-dir").arg(fixture.server.data());
    command.args(["key", "create", "acme", "--name", "lost", "--scope", "all"]);
    run(command, "").ends_with(1);
    fixture.syncs.succeed();
    fixture.crash();
    assert_eq!(keys(&fixture.server), before);
    fixture.tenant.with_scopes(ALL).customer("After");
}

#[test]
fn nothing_is_written_to_a_log_whose_name_cannot_be_synced() {
    let mut fixture = Fixture::new();
    fixture.server.stop();
    // Another process that closes the file last removes the log.
    drop(database(&fixture.tenant.file()).execute_batch("SELECT count(*) FROM customers"));
    fixture.syncs.fail("/tenants");
    fixture.server.restart();
    fixture.api.post(RECORDS, json!({"name": "Lost"})).fails_with(503, "tenant_unavailable");
    fixture.syncs.succeed();
    until("the tenant is served again", || (fixture.api.get(RECORDS).status == 200).then_some(()));
    assert_eq!(fixture.api.customer("After"), 2);
}
