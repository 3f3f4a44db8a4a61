//! Contract section 11: a sync of the disk that fails or takes long. After a failed sync, the
//! content of the disk is unknown. So the process ends, and the next start makes the files
//! consistent.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use crate::support::client::Pending;
use crate::support::syncs::Syncs;
use crate::support::{ALL, Api, DataDir, Reply, Setup, Tenant, TestServer, until, uuid};

const RECORDS: &str = "/customers.php";

/// A server whose syncs can fail, with one tenant.
struct Fixture {
    syncs: Syncs,
    server: TestServer,
    api: Api,
}

impl Fixture {
    fn new() -> Fixture {
        let syncs = Syncs::new();
        let server = syncs.observe_server(Setup::without_rate_limit()).start();
        let api = server.tenant("acme").with_scopes(ALL);
        api.customer("Before");
        Fixture { syncs, server, api }
    }

    fn post(&self, name: &str, key: &str) -> Reply {
        self.api
            .call("POST", RECORDS)
            .header("Idempotency-Key", key)
            .json(&json!({"name": name}))
            .send()
    }

    /// Waits for the server's end, and starts it again without failures.
    #[track_caller]
    fn ends_and_is_started_again(&mut self) {
        let status: ExitStatus = self.server.ended_whatever_it_said();
        assert_eq!(status.code(), Some(1), "{}", self.server.log());
        let log = self.server.log();
        assert_eq!(log.matches("refused to sync").count(), 1, "{log}");
        self.syncs.succeed();
        self.server.restart();
    }
}

#[test]
fn others_do_not_wait_for_a_sync_that_takes_long() {
    let fixture = Fixture::new();
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
    let fixture = Fixture::new();
    let idle: Vec<Tenant> = (0..36).map(|n| fixture.server.tenant(&format!("idle-{n}"))).collect();
    let idle: Vec<Api> = idle.iter().map(|tenant| tenant.with_scopes(ALL)).collect();
    fixture.syncs.hold("");
    for api in idle.iter().chain([&fixture.api]) {
        api.get(RECORDS).is(200);
    }
    fixture.syncs.release();
}

/// Also with more connections than there are workers.
#[test]
#[ignore = "takes 8 s; .ci/run runs it"]
fn long_readiness_and_reads_do_not_wait_for_a_disk_that_hangs() {
    let fixture = Fixture::new();
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

#[test]
fn a_failed_sync_of_a_commit_ends_the_process_and_a_repeat_tells_whether_it_took_effect() {
    let mut fixture = Fixture::new();
    let key = uuid();
    fixture.syncs.fail("/1.db-wal");
    let lost = fixture.api.call("POST", RECORDS).header("Idempotency-Key", &key);
    assert!(lost.json(&json!({"name": "Unknown"})).try_send().is_err(), "there is no answer");
    fixture.ends_and_is_started_again();
    assert_eq!(fixture.post("Unknown", &key).created()["id"], 2);
    assert_eq!(fixture.post("Unknown", &key).created()["id"], 2);
    assert_eq!(fixture.api.total(RECORDS), 2);
    fixture.server.cli(&["check"]).done();
}

/// Nothing was asked of the disk.
#[test]
fn a_directory_that_cannot_be_opened_is_no_failed_sync() {
    let data_dir = DataDir::new(true);
    let tenant = data_dir.tenant("acme");
    let _ = std::fs::remove_file(&tenant.files()[1]);
    let tenants = data_dir.data().join("tenants");
    // Its files can be opened, and the directory cannot be read.
    std::fs::set_permissions(&tenants, Permissions::from_mode(0o300)).unwrap();
    std::fs::write(data_dir.home().join("rows.csv"), "name\nAda\n").unwrap();
    let import = ["import", "acme", "customers", "rows.csv"];
    let output = data_dir.cli(&import).fails_saying("Permission denied");
    assert!(!output.stderr.contains("refused to sync"), "{output:?}");
}
