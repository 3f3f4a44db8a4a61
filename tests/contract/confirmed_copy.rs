//! `--copy-socket`: success is reported once the copy has the change (contract section 16). A stand-in for Litestream's control socket
//! fails as each test wants; `tests/standby` uses the real one.

use std::path::PathBuf;
use std::thread;

use serde_json::{Value, json};

use crate::support::client::{Pending, exchange};
use crate::support::copy_socket::UNKNOWN;
use crate::support::server::{Key, Output};
use crate::support::{ALL, Answer, Api, CopySocket, DataDir, Setup, Tenant, TestServer, until, uuid};

const RECORDS: &str = "/customers.php";

/// A server whose changes a stand-in confirms, and a tenant.
struct Fixture {
    socket: CopySocket,
    server: TestServer,
    tenant: Tenant,
    key: Key,
    api: Api,
}

impl Fixture {
    #[track_caller]
    fn new() -> Fixture {
        let socket = CopySocket::start();
        let setup = Setup::without_rate_limit().variable("TENANTDESK_COPY_SOCKET", &socket.argument());
        let server = setup.option("--metrics-listen").option("127.0.0.1:0").start();
        let tenant = server.tenant("acme");
        let key = tenant.key(ALL);
        let api = server.with_key(&key.key);
        Fixture { socket, server, tenant, key, api }
    }

    /// A command with the option.
    #[track_caller]
    fn cli(&self, arguments: &[&str]) -> Output {
        cli(&self.server, &self.socket, arguments)
    }

    /// How often the copy was asked for the tenant's file.
    fn asked(&self) -> usize {
        self.socket.asked(&self.tenant.file())
    }

    /// A metric of the server.
    #[track_caller]
    fn metric(&self, name: &str) -> f64 {
        let output = self.server.output();
        let address = output.lines().find_map(|line| line.strip_prefix("metrics on http://")?.strip_suffix("/metrics"));
        let request = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
        let response = exchange(address.unwrap().parse().unwrap(), request);
        let response = String::from_utf8(response).unwrap();
        let value = response.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name}: {response}")).parse().unwrap()
    }

    /// Posts a customer and waits until the copy is asked for it.
    fn post_held(&self, name: &str, idempotency_key: &str) -> Pending {
        let asked = self.asked();
        let pending = self.api.call("POST", RECORDS).json(&json!({"name": name})).key(idempotency_key).start();
        until("the copy is asked", || (self.asked() > asked).then_some(()));
        pending
    }

    /// Posts a customer while the copy is asked for an earlier one.
    fn post(&self, name: &str, idempotency_key: &str) -> Pending {
        self.api.call("POST", RECORDS).json(&json!({"name": name})).key(idempotency_key).start()
    }

    /// Waits until changes are accepted again.
    #[track_caller]
    fn resumes(&self) {
        until("changes are accepted again", || (self.metric("tenantdesk_copy_files_behind") == 0.0).then_some(()));
        self.api.customer("After");
    }
}

#[track_caller]
fn cli(data_dir: &DataDir, socket: &CopySocket, arguments: &[&str]) -> Output {
    data_dir.cli_with_copy(&socket.path(), arguments)
}

#[test]
fn a_write_and_its_replay_are_answered_once_the_copy_has_them() {
    let fixture = Fixture::new();
    fixture.socket.answer(Answer::Hold);
    let key = uuid();
    let first = fixture.post_held("First", &key);
    // It is committed, and reads go on.
    assert_eq!(fixture.api.total(RECORDS), 1);
    let replay = fixture.post("First", &key);
    assert!(!first.is_answered() && !replay.is_answered());
    fixture.socket.answer(Answer::Confirm);
    let first = first.reply();
    assert_eq!(first.created()["name"], "First");
    assert!(replay.reply().was_replayed());
    // Also one that comes later: it asks once more.
    let asked = fixture.asked();
    fixture.socket.answer(Answer::Hold);
    let later = fixture.post_held("First", &key);
    assert!(!later.is_answered() && fixture.asked() > asked);
    fixture.socket.answer(Answer::Confirm);
    assert!(later.reply().was_replayed());
    assert_eq!(fixture.api.total(RECORDS), 1);
}

#[test]
fn writes_that_arrive_while_the_copy_is_asked_share_the_next_request() {
    let fixture = Fixture::new();
    fixture.socket.answer(Answer::Hold);
    let first = fixture.post_held("First", &uuid());
    let others: Vec<_> = (0..20).map(|n| fixture.post(&format!("Customer {n}"), &uuid())).collect();
    // The writer has gone on with their commits.
    until("all are committed", || (fixture.api.total(RECORDS) == 21).then_some(()));
    assert_eq!(fixture.asked(), 1);
    fixture.socket.answer(Answer::Confirm);
    first.reply().is(201);
    for pending in others {
        pending.reply().is(201);
    }
    assert_eq!(fixture.asked(), 2, "one request for all of them");
}

#[test]
fn a_rejected_write_does_not_wait_for_the_copy() {
    let fixture = Fixture::new();
    fixture.socket.answer(Answer::Hold);
    fixture.api.post(RECORDS, json!({"name": ""})).fails_with(422, "validation_failed");
    fixture.api.delete("/customers.php?id=7").fails_with(404, "not_found");
    fixture.api.get(RECORDS).is(200);
    fixture.socket.answer(Answer::Confirm);
}

#[test]
fn while_the_copy_does_not_answer_one_write_waits_and_others_are_refused_at_once() {
    let fixture = Fixture::new();
    let other = fixture.server.tenant("other").with_scopes(ALL);
    fixture.socket.answer(Answer::Hold);
    let key = uuid();
    let first = fixture.post_held("Unconfirmed", &key);
    let first = first.reply().fails_with(503, "tenant_unavailable").saying("may have been made all the same");
    assert_eq!(first.header("Retry-After"), Some("5"));
    assert_eq!(fixture.metric("tenantdesk_copy_files_behind"), 1.0);
    for method in ["POST", "PUT", "DELETE"] {
        let refused = fixture.api.call(method, "/customers.php?id=1").json(&json!({"name": "Refused"})).send();
        if method == "POST" {
            refused.fails_with(400, "bad_request");
        } else {
            refused.fails_with(503, "tenant_unavailable").saying("This request changed nothing");
        }
    }
    let repeat = || fixture.api.call("POST", RECORDS).json(&json!({"name": "Unconfirmed"})).key(&key).send();
    repeat().fails_with(503, "tenant_unavailable").saying("This request changed nothing");
    assert_eq!(fixture.api.get("/customers.php?id=1").found()["name"], "Unconfirmed");
    // Another tenant finds out by itself.
    other.post(RECORDS, json!({"name": "Lost"})).fails_with(503, "tenant_unavailable").saying("may have been made");
    other
        .post(RECORDS, json!({"name": "Refused"}))
        .fails_with(503, "tenant_unavailable")
        .saying("This request changed nothing");
    let log = fixture.server.log();
    assert_eq!(log.matches("the copy does not confirm changes").count(), 1, "{log}");
    assert!(fixture.metric("tenantdesk_copy_failures_total") >= 2.0);

    fixture.socket.answer(Answer::Confirm);
    fixture.resumes();
    assert!(fixture.server.log().contains("the copy confirms changes again"));
    let told = repeat();
    assert!(told.was_replayed());
    assert_eq!(told.created()["id"], 1);
    other.customer("After");
    assert_eq!((fixture.api.total(RECORDS), other.total(RECORDS)), (2, 2));
}

/// Their first writes wait at the same time, and reads need no thread of theirs.
#[test]
fn reads_go_on_while_more_tenants_wait_for_the_copy_than_there_are_workers() {
    let socket = CopySocket::start();
    let names: Vec<String> = (0..40).map(|n| format!("shop-{n}")).collect();
    let setup = Setup::without_rate_limit().option("--copy-socket").option(&socket.argument());
    let server = setup.option("--create-tenant").option(&names.join(",")).start();
    let output = server.output();
    let keys = output.lines().filter_map(|line| line.strip_prefix("API key:")).map(str::trim);
    let apis: Vec<Api> = keys.map(|key| server.with_key(key)).collect();
    assert_eq!(apis.len(), names.len());
    socket.answer(Answer::Hold);
    let pending: Vec<_> =
        apis.iter().map(|api| api.call("POST", RECORDS).json(&json!({"name": "Held"})).start()).collect();
    until("all are committed", || apis.iter().all(|api| api.total(RECORDS) == 1).then_some(()));
    // None of them had a timeout that made room for the reads.
    assert!(pending.iter().all(|pending| !pending.is_answered()));
    socket.answer(Answer::Confirm);
    for pending in pending {
        pending.reply().is(201);
    }
}

#[test]
fn what_the_copy_answers_but_does_not_confirm_is_no_success() {
    let check = |answer: Answer| {
        let fixture = Fixture::new();
        fixture.socket.answer(answer.clone());
        let refused = fixture.api.post(RECORDS, json!({"name": "Lost"})).fails_with(503, "tenant_unavailable");
        assert!(refused.message().contains("may have been made"), "{answer:?}");
        assert!(!refused.text().contains("disk full"), "the cause is for the operator");
        fixture.socket.answer(Answer::Confirm);
        fixture.resumes();
    };
    // Each waits 5 s.
    thread::scope(|scope| {
        for answer in [Answer::Error(500, "sync database: disk full"), Answer::Garbage, Answer::Lacking, UNKNOWN] {
            scope.spawn(move || check(answer));
        }
    });
}

#[test]
fn a_copy_that_fails_for_a_moment_is_asked_again() {
    let fixture = Fixture::new();
    let moment = [UNKNOWN, UNKNOWN, Answer::Error(409, "database not open"), Answer::Garbage];
    fixture.socket.answer_next(moment);
    fixture.api.customer("First");
    // Litestream is started again.
    fixture.socket.stop();
    let pending = fixture.api.call("POST", RECORDS).json(&json!({"name": "Second"})).start();
    until("it is committed", || (fixture.api.total(RECORDS) == 2).then_some(()));
    assert!(!pending.is_answered());
    fixture.socket.restart();
    pending.reply().is(201);
    assert_eq!(fixture.metric("tenantdesk_copy_failures_total"), 0.0);
}

#[test]
fn without_litestream_changes_are_refused_until_it_is_back() {
    let fixture = Fixture::new();
    fixture.socket.stop();
    fixture
        .api
        .post(RECORDS, json!({"name": "Lost"}))
        .fails_with(503, "tenant_unavailable")
        .saying("may have been made");
    fixture
        .api
        .post(RECORDS, json!({"name": "Refused"}))
        .fails_with(503, "tenant_unavailable")
        .saying("This request changed nothing");
    fixture.socket.restart();
    fixture.resumes();
    assert_eq!(fixture.api.total(RECORDS), 2);
}

#[test]
fn commands_end_once_the_copy_has_what_they_changed() {
    let fixture = Fixture::new();
    let registry = fixture.server.registry_file();
    let asked = || fixture.socket.asked(&registry);
    let id = fixture.key.id.to_string();
    let rows = fixture.server.home().join("rows.csv");
    std::fs::write(&rows, "name\nOne\nTwo\n").unwrap();
    let backups = fixture.server.home().join("backups");
    let (rows, backups) = (rows.to_str().unwrap(), backups.to_str().unwrap());
    fixture.cli(&["backup", backups]).done();
    let changes: [&[&str]; 10] = [
        &["tenant", "create", "new"],
        &["tenant", "suspend", "new"],
        &["tenant", "activate", "new"],
        &["tenant", "trial", "new", "2027-01-31"],
        &["tenant", "password", "new", "--generate"],
        &["tenant", "rename", "new", "renamed"],
        &["key", "create", "renamed", "--name", "x", "--scope", "all"],
        &["key", "limit", "acme", &id, "100000"],
        &["import", "acme", "customers", rows],
        &["restore", backups, "acme", "--force"],
    ];
    for change in changes {
        let before = asked();
        fixture.cli(change).done();
        assert!(asked() > before, "{change:?}");
        if matches!(change[0], "import" | "restore") {
            assert!(fixture.asked() > 0, "{change:?}");
        }
    }
    assert!(fixture.socket.asked(&fixture.server.data().join("tenants/2.db")) > 0, "a new tenant's file");

    // The check before a change succeeds, and the confirmation after it fails.
    for change in [&["key", "revoke", "acme", &id][..], &["tenant", "delete", "renamed", "--yes"]] {
        fixture.socket.answer_next([Answer::Confirm]);
        fixture.socket.answer(Answer::Error(500, "receiver lost"));
        let failed = fixture.cli(change).fails_saying("the change was made, but the copy has not confirmed it");
        assert!(failed.stderr.contains("receiver lost"), "{failed:?}");
        fixture.socket.answer(Answer::Confirm);
    }
    fixture.api.get(RECORDS).fails_with(401, "revoked_api_key");
    assert!(!fixture.server.data().join("tenants/2.db").exists());
}

#[test]
fn a_command_changes_nothing_while_the_copy_does_not_confirm() {
    let fixture = Fixture::new();
    let id = fixture.key.id.to_string();
    let backups = fixture.server.home().join("backups");
    let backups = backups.to_str().unwrap();
    fixture.cli(&["backup", backups]).done();
    fixture.api.customer("Since the backup");
    fixture.socket.answer(Answer::Error(500, "receiver lost"));
    for change in
        [&["key", "revoke", "acme", &id][..], &["tenant", "create", "new"], &["restore", backups, "acme", "--force"]]
    {
        let failed = fixture.cli(change).fails_saying("nothing was changed");
        assert!(failed.stderr.contains("receiver lost"), "{failed:?}");
    }
    fixture.socket.answer(Answer::Confirm);
    assert_eq!(fixture.api.total(RECORDS), 1);
    assert_eq!(fixture.cli(&["--json", "tenant", "list"]).done().json().as_array().map(Vec::len), Some(1));
}

#[test]
fn a_suspended_copy_is_done_without_until_it_is_resumed() {
    let mut fixture = Fixture::new();
    fixture.socket.answer(Answer::Error(500, "receiver lost"));
    fixture.api.post(RECORDS, json!({"name": "Lost"})).fails_with(503, "tenant_unavailable");
    fixture.server.cli(&["copy", "suspend"]).done();
    // The running server notices, and commands do.
    fixture.api.customer("Without the copy");
    fixture.cli(&["tenant", "create", "new"]).done();
    assert_eq!(fixture.metric("tenantdesk_copy_suspended"), 1.0);
    let again = fixture.server.cli(&["copy", "suspend"]).done();
    assert!(again.stdout.contains("already"), "{again:?}");
    // It outlives the server.
    fixture.server.restart();
    fixture.api.customer("After a restart");

    fixture.socket.stop();
    fixture.cli(&["copy", "resume"]).fails_saying("the copy remains suspended");
    fixture.api.customer("Still without");
    fixture.socket.restart();
    fixture.socket.answer(Answer::Confirm);
    let before = fixture.asked();
    fixture.cli(&["copy", "resume"]).done();
    assert!(fixture.asked() > before, "everything is in the copy");
    fixture.socket.answer(Answer::Hold);
    let required = fixture.post_held("With the copy", &uuid());
    assert!(!required.is_answered());
    fixture.socket.answer(Answer::Confirm);
    required.reply().is(201);
    assert_eq!(fixture.metric("tenantdesk_copy_suspended"), 0.0);
}

/// The state and the message of the check of the copy.
#[track_caller]
fn doctor(fixture: &Fixture) -> (String, String) {
    let document = fixture.cli(&["--json", "doctor"]).json();
    let check = document["checks"].as_array().unwrap().iter().find(|check| check["check"] == "copy").unwrap().clone();
    (check["state"].as_str().unwrap().to_owned(), check["message"].as_str().unwrap().to_owned())
}

#[test]
fn status_and_doctor_show_the_state_of_the_copy() {
    let fixture = Fixture::new();
    let all = || -> Vec<PathBuf> { vec![fixture.server.registry_file(), fixture.tenant.file()] };
    fixture.socket.set_known(all());
    std::fs::set_permissions(fixture.socket.path(), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let status = fixture.cli(&["--json", "copy", "status"]).done().json();
    assert_eq!((&status["state"], &status["litestream"]), (&json!("required"), &json!("0.5.17")));
    assert_eq!(status["databases"][1]["database"], "tenants/1.db");
    assert!(status["seconds_behind"].as_f64().unwrap() < 30.0, "{status}");
    let (state, message) = doctor(&fixture);
    assert_eq!(state, "ok", "{message}");
    assert!(message.contains("Litestream 0.5.17, 2 databases"), "{message}");

    fixture.socket.set_version("0.5.16");
    let (state, message) = doctor(&fixture);
    assert!(state == "fault" && message.contains("install 0.5.17 or later"), "{message}");
    fixture.socket.set_version("0.5.18");
    fixture.socket.set_known([fixture.server.registry_file()]);
    let (state, message) = doctor(&fixture);
    assert!(state == "fault" && message.contains("lacks tenants/1.db"), "{message}");
    fixture.cli(&["copy", "status"]).fails_saying("the copy lacks tenants/1.db");
    fixture.socket.set_known(all());
    std::fs::set_permissions(fixture.socket.path(), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let (state, message) = doctor(&fixture);
    assert!(state == "warning" && message.contains("is open to others"), "{message}");
    fixture.server.cli(&["copy", "suspend"]).done();
    let (state, message) = doctor(&fixture);
    assert!(state == "warning" && message.contains("suspended since"), "{message}");
    assert!(fixture.cli(&["copy", "status"]).done().stdout.contains("the copy is suspended since"));
    fixture.socket.stop();
    assert_eq!(doctor(&fixture).0, "fault");
    fixture.cli(&["copy", "status"]).fails_saying("the copy cannot be asked");
    fixture.server.cli(&["copy", "status"]).ends_with(2);
    fixture.socket.restart();
    let without = fixture.server.cli(&["--json", "doctor"]).json();
    assert!(!without.to_string().contains("\"copy\""), "{without}");
}

#[test]
fn a_registry_that_was_replaced_is_opened_anew() {
    let socket = CopySocket::start();
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let backups = data_dir.home().join("backups");
    data_dir.cli(&["backup", backups.to_str().unwrap()]).done();
    std::fs::write(data_dir.registry_file(), "This is no database. ".repeat(1000)).unwrap();
    let document: Value =
        cli(&data_dir, &socket, &["--json", "restore", backups.to_str().unwrap(), "--force"]).done().json();
    assert_eq!(document["done"], "restored");
    assert!(socket.reopened().contains(&data_dir.registry_file()), "{:?}", socket.reopened());
    assert!(socket.asked(&data_dir.registry_file()) > 0);
}
