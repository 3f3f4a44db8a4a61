//! The writer, reads with a deadline, limits of size, and imports.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};

use rusqlite::Connection;
use uuid::Uuid;

use super::*;
use crate::api::list;
use crate::api::query::Query;
use crate::clock::{Clock, Timestamp};
use crate::config::Config;
use crate::model::{CUSTOMER, Field, KeyId, ListQuery, RecordId, Scopes, Value};
use crate::store::backup::check::change_log_problems;
use crate::store::data_dir::{DataDir, TENANT};
use crate::store::database::Role;
use crate::store::error::Rejection;
use crate::store::records::{Actor, Change, ChangeContext, ChangeKind, KeyLabel, Writing};

const ONE: TenantId = TenantId(1);

/// A data directory with the tenants 1 to `count`, without records.
fn data_dir(count: i64) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    DataDir::create(directory.path()).unwrap();
    let registry = Registry::open(directory.path()).unwrap();
    for id in 1..=count {
        let name = id.to_string();
        registry.create_tenant(&name, None, "$phc", None, Clock::system().now()).unwrap();
    }
    directory
}

fn tenants(directory: &tempfile::TempDir) -> Tenants {
    let registry = Registry::open(directory.path()).unwrap();
    Tenants::new(Arc::new(registry), Config::new("").tenants)
}

/// The file as a command opens it.
fn connect(directory: &tempfile::TempDir) -> Connection {
    tenant_database(directory.path(), ONE).open(Role::Bulk).unwrap()
}

fn context() -> ChangeContext {
    let key = KeyLabel { id: KeyId(1), name: "test".to_owned(), prefix: "tdk_test".to_owned() };
    let actor = Actor::Key { key, request_id: Uuid::nil() };
    ChangeContext { at: Clock::system().now().timestamp(), actor }
}

/// The value of a text field of customers.
fn set(field: &str, text: &str) -> (&'static Field, Value) {
    (CUSTOMER.field(field).unwrap(), Value::of(text))
}

fn create(name: &str, notes: &str) -> Change {
    Change::new(&CUSTOMER, ChangeKind::Create, vec![set("name", name), set("notes", notes)])
}

/// A customer of 100 KB in the table and in an index.
fn large() -> Change {
    let text = "x".repeat(50_000);
    let values = vec![set("name", "Large"), set("customer_since", &text)];
    Change::new(&CUSTOMER, ChangeKind::Create, values)
}

fn delete(id: i64) -> Change {
    Change::new(&CUSTOMER, ChangeKind::Delete(RecordId(id)), Vec::new())
}

const RESPONSE: StoredResponse =
    StoredResponse { status: 204, location: None, etag: None, body: Vec::new() };

const DONE: Outcome = Outcome::Changed(RESPONSE);

fn failed(code: StoreCode) -> Outcome {
    Outcome::Failed(StoreError::new(code, ""))
}

/// Sends its outcome, an error without its words.
fn mutation(outcome: &Sender<Outcome>, changes: Vec<Change>) -> Mutation {
    let outcome = outcome.clone();
    Mutation {
        changes,
        idempotency_key: None,
        context: context(),
        since: Instant::now(),
        make_response: Box::new(|_| RESPONSE),
        send: Box::new(move |sent| {
            let sent = match sent {
                Outcome::Failed(error) => failed(error.code),
                other => other,
            };
            outcome.send(sent).unwrap();
        }),
    }
}

/// Runs a mutation in a commit of its own.
fn run(tenant: &Tenant, changes: Vec<Change>) -> Outcome {
    let (report, outcome) = mpsc::channel();
    tenant.mutate(mutation(&report, changes));
    outcome.recv().unwrap()
}

#[track_caller]
fn add_customer(tenant: &Tenant, notes: &str) {
    assert_eq!(run(tenant, vec![create("Customer", notes)]), DONE);
}

/// Waits until `condition` holds, for at most half a minute.
#[track_caller]
fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "the condition does not become true");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn soon() -> Deadline {
    Deadline::new(&Arc::default())
}

fn exists(tenant: &Tenant, id: i64) -> bool {
    tenant.read(soon(), |reading| reading.exists(&CUSTOMER, RecordId(id))).unwrap()
}

#[test]
fn the_least_recently_used_is_closed_for_the_next() {
    let directory = data_dir(5);
    let tenants = tenants(&directory);
    tenants.slots.lock().resize(NonZeroUsize::new(3).unwrap());
    for id in (1..=5).chain(1..=5) {
        let tenant = tenants.open(TenantId(id)).unwrap();
        add_customer(&tenant, "");
        assert!(tenants.slots().len() <= 3);
    }
    tenants.close(LOCK_WAIT);
    for id in 1..=5 {
        assert!(exists(&tenants.open(TenantId(id)).unwrap(), 2), "tenant {id}");
    }
}

/// Whether this process has a file of the tenant open.
fn is_open(directory: &tempfile::TempDir, id: TenantId) -> bool {
    let path = tenant_database(directory.path(), id).path().to_string_lossy().into_owned();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let mut targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| target.to_string_lossy().starts_with(&path))
}

#[test]
fn a_file_that_is_deleted_or_idle_is_closed() {
    let directory = data_dir(3);
    let tenants = tenants(&directory);
    let ids = [ONE, TenantId(2), TenantId(3)];
    for id in ids {
        add_customer(&tenants.open(id).unwrap(), "");
    }
    fs::remove_file(tenant_database(directory.path(), ONE).path()).unwrap();
    if let State::Open(_, used) = &mut *tenants.slot(TenantId(2)).state.lock() {
        *used -= MAX_IDLE;
    }
    tenants.close_unused();
    wait_until(|| ids.map(|id| is_open(&directory, id)) == [false, false, true]);
    assert!(exists(&tenants.open(TenantId(2)).unwrap(), 1));
}

#[test]
fn a_write_notices_at_once_that_the_file_is_another_one_or_gone_and_a_read_soon() {
    let directory = data_dir(2);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    add_customer(&tenant, "");
    add_customer(&tenant, "");
    let file = tenant_database(directory.path(), ONE);
    file.remove().unwrap();
    fs::rename(tenant_database(directory.path(), TenantId(2)).path(), file.path()).unwrap();
    add_customer(&tenant, "");
    let sql = "SELECT max(id) FROM customers";
    let count: i64 = connect(&directory).query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1, "the other file has the third customer alone");
    file.remove().unwrap();
    assert_eq!(run(&tenant, vec![create("lost", "")]), failed(StoreCode::Unavailable));
    wait_until(|| tenants.open(ONE).is_err());
}

#[test]
fn only_a_tenant_that_is_written_has_a_writer() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    assert!(!exists(&tenant, 1) && tenant.writer.lock().is_none(), "a read needs none");
    add_customer(&tenant, "");
    assert!(tenant.writer.lock().is_some());
}

#[test]
fn the_wal_starts_again_although_commits_never_pause() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    let database = tenant_database(directory.path(), ONE);
    let length = |suffix| fs::metadata(database.companion(suffix)).unwrap().len();
    let mut longest = 0;
    for _ in 0..250 {
        assert_eq!(run(&tenant, vec![large(); 4]), DONE);
        longest = longest.max(length("-wal"));
    }
    assert!(longest < 40 << 20, "{longest} bytes for 100 MB");
    assert!(length("") > 50 << 20);
}

/// One of two reads is always under way, so no commit finds the WAL without a reader.
#[test]
#[ignore = "takes 25 s; `make proof` runs it"]
fn proof_reads_that_overlap_do_not_let_the_wal_grow() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    let database = tenant_database(directory.path(), ONE);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let moment = Duration::from_millis(50);
                while !is_over.load(Ordering::Relaxed) {
                    let read = |reading: &Reading<'_>| {
                        std::thread::sleep(moment);
                        reading.exists(&CUSTOMER, RecordId(1)).map(|_| std::thread::sleep(moment))
                    };
                    tenant.read(soon(), read).unwrap();
                }
            });
        }
        let many = vec![large(); 40];
        let mut longest = 0;
        for _ in 0..40 {
            assert_eq!(run(&tenant, many.clone()), DONE);
            longest = longest.max(database.wal_length());
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(longest < 128 << 20, "{longest} bytes");
    });
}

/// Another process reads, as a `check`, or a shell that somebody has left open.
#[test]
fn a_reader_of_another_process_refuses_no_change() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    add_customer(&tenant, "");
    let shell = connect(&directory);
    shell.execute_batch("BEGIN; SELECT count(*) FROM customers").unwrap();
    let database = tenant_database(directory.path(), ONE);
    while database.wal_length() < 80 << 20 {
        assert_eq!(run(&tenant, vec![large(); 20]), DONE);
    }
    shell.execute_batch("ROLLBACK").unwrap();
    wait_until(|| {
        add_customer(&tenant, "");
        database.wal_length() < 40 << 20
    });
}

#[test]
fn a_locked_file_is_told_from_a_damaged_one() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    add_customer(&tenant, "");
    let (report, outcomes) = mpsc::channel();
    // It has waited for 5 s already.
    let mut waiting = mutation(&report, vec![delete(1)]);
    waiting.since -= LOCK_WAIT;
    let import = connect(&directory);
    import.execute_batch("BEGIN IMMEDIATE").unwrap();
    tenant.mutate(waiting);
    assert_eq!(outcomes.recv(), Ok(failed(StoreCode::Busy)));
    import.execute_batch("ROLLBACK").unwrap();
    import.execute_batch("ALTER TABLE changes_state RENAME TO gone").unwrap();
    assert_eq!(run(&tenant, vec![delete(1)]), failed(StoreCode::Unavailable));
}

/// Makes a new customer take hours.
fn make_slow(directory: &tempfile::TempDir) {
    connect(directory)
        .execute_batch(
            "CREATE TABLE numbers AS
               WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 10000)
               SELECT n FROM n;
             CREATE TRIGGER slow AFTER INSERT ON customers BEGIN
               SELECT sum(a.n + b.n + c.n) FROM numbers AS a, numbers AS b, numbers AS c; END",
        )
        .unwrap();
}

#[test]
#[ignore = "takes 5 s; `make proof` runs it"]
fn proof_a_mutation_that_takes_too_long_is_rolled_back() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    add_customer(&tenant, "");
    make_slow(&directory);
    let outcomes = outcomes_of(&tenant, vec![vec![delete(1)], vec![create("Slow", "")]]);
    // They share a commit or not.
    let slow = failed(StoreCode::Interrupted);
    assert!(outcomes[0] == DONE || outcomes[0] == slow, "{outcomes:?}");
    assert_eq!(outcomes[1], slow);
    assert_eq!(run(&tenant, vec![delete(1)]) == DONE, outcomes[0] == slow);
    assert!(!exists(&tenant, 2));
}

/// The outcomes of mutations that are submitted one after the other.
fn outcomes_of(tenant: &Tenant, mutations: Vec<Vec<Change>>) -> Vec<Outcome> {
    let (report, outcomes) = mpsc::channel();
    let count = mutations.len();
    mutations.into_iter().for_each(|changes| tenant.mutate(mutation(&report, changes)));
    outcomes.iter().take(count).collect()
}

#[test]
fn a_writer_that_has_panicked_is_replaced() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    add_customer(&tenant, "");
    // The end of its queue ends the thread, as a panic does.
    let Writer { queue, thread } = tenant.writer.lock().take().unwrap();
    drop(queue);
    wait_until(|| thread.is_finished());
    let dead = Writer { queue: mpsc::sync_channel(1).0, thread };
    *tenant.writer.lock() = Some(dead);
    add_customer(&tenant, "");
}

/// Adds a first customer, and runs the mutations that `submit` submits as one group with it.
/// Returns the outcomes of all.
fn outcomes_of_group(tenant: &Tenant, submit: impl FnOnce(&Sender<Outcome>)) -> Vec<Outcome> {
    let (running, is_running) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let (report, outcomes) = mpsc::channel();
    // It holds the writer until all others wait.
    let make_response = Box::new(move |_: &[_]| {
        running.send(()).unwrap();
        let _ = may_go.recv();
        RESPONSE
    });
    tenant.mutate(Mutation { make_response, ..mutation(&report, vec![create("the first", "")]) });
    is_running.recv().unwrap();
    submit(&report);
    drop(go);
    drop(report);
    outcomes.iter().collect()
}

#[test]
fn a_rejection_beside_a_change_that_cannot_be_committed_is_not_reported() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    // The commit of a deletion finds a reference to a record that is missing.
    let sql = "CREATE TABLE t (id INTEGER REFERENCES customers (id) DEFERRABLE INITIALLY DEFERRED);
               CREATE TRIGGER d AFTER DELETE ON customers BEGIN INSERT INTO t VALUES (9); END";
    connect(&directory).execute_batch(sql).unwrap();
    let outcomes = outcomes_of_group(&tenant, |report| {
        tenant.mutate(mutation(report, vec![delete(1)]));
        tenant.mutate(mutation(report, vec![delete(1)]));
    });
    assert_eq!(outcomes, [(); 3].map(|()| failed(StoreCode::Unavailable)));
    assert!(!exists(&tenant, 1));
}

/// A mutation of one change has no savepoint, so its panic takes the group with it, once.
#[test]
fn a_group_in_which_a_single_change_panics_runs_again() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    let answers = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&answers);
    let outcomes = outcomes_of_group(&tenant, |report| {
        let make_response = Box::new(move |_: &[_]| {
            counted.fetch_add(1, Ordering::Relaxed);
            RESPONSE
        });
        let kept = mutation(report, vec![create("kept", "")]);
        tenant.mutate(Mutation { make_response, ..kept });
        let make_response = Box::new(|_: &[_]| panic!("on purpose"));
        let panics = mutation(report, vec![create("panics", "")]);
        tenant.mutate(Mutation { make_response, ..panics });
        tenant.mutate(mutation(report, vec![create("after it", "")]));
    });
    assert_eq!(outcomes, [DONE, DONE, failed(StoreCode::Other), DONE]);
    assert_eq!(answers.load(Ordering::Relaxed), 2, "the group has run twice");
    let file = connect(&directory);
    let sql = "SELECT group_concat(name) FROM (SELECT name FROM customers ORDER BY id)";
    let names: String = file.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(names, "the first,kept,after it");
    assert_eq!(change_log_problems(&file, &TENANT).unwrap(), [""; 0]);
}

#[test]
fn what_a_failed_mutation_wrote_is_gone_from_the_change_log_too() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    let outcomes = outcomes_of_group(&tenant, |report| {
        tenant.mutate(mutation(report, vec![create("second kept", "")]));
        tenant.mutate(mutation(report, vec![create("third refused", ""), delete(9)]));
        let make_response = Box::new(|_: &[_]| panic!("on purpose"));
        let panics = mutation(report, vec![create("fourth panics", "")]);
        tenant.mutate(Mutation { make_response, ..panics });
        let new_name = vec![set("name", "fifth renamed")];
        let rename = Change::new(&CUSTOMER, ChangeKind::Update(RecordId(3)), new_name);
        let changes = vec![create("fifth kept", ""), rename, create("sixth kept", "")];
        tenant.mutate(mutation(report, changes));
        tenant.mutate(mutation(report, vec![delete(2)]));
    });
    let missing = Rejection::NotFound(&CUSTOMER, RecordId(9));
    let (rejected, failed) = (Outcome::Rejected(1, missing), failed(StoreCode::Other));
    assert_eq!(outcomes, [DONE, DONE, rejected, failed, DONE, DONE]);
    let file = connect(&directory);
    let sql = "SELECT group_concat(substr(action, 1, 1) || record_id, ' ') FROM changes";
    let entries: String = file.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(entries, "c1 c2 c3 u3 c4 d2");
    assert_eq!(change_log_problems(&file, &TENANT).unwrap(), [""; 0]);
}

/// A list of all customers with these words, with its total.
fn list(words: Vec<String>) -> ListQuery {
    let all = list::parse(&CUSTOMER, &Query::default(), Scopes::default(), Timestamp::from_unix(0));
    ListQuery { words, limit: 1, total: true, ..all.unwrap() }
}

#[test]
fn a_read_that_takes_too_long_is_ended_and_its_connection_works_afterwards() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    add_customer(&tenant, "");
    connect(&directory)
        .execute_batch(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 300000)
             INSERT INTO customers (name, status, created_at, updated_at, search, version)
             SELECT 'Name', 'active', '', '', 'ab', 1 FROM n",
        )
        .unwrap();
    let slow = list((0..20).map(|n| format!("{n}")).collect());
    // More often than there are connections.
    for _ in 0..6 {
        let begun = Instant::now();
        let deadline = Deadline::after(Duration::from_millis(1));
        let outcome = tenant.read(deadline, |reading| {
            for _ in 0..1_000 {
                reading.page(&slow)?;
            }
            Ok(())
        });
        assert_eq!(outcome.map_err(|error| error.code), Err(StoreCode::TimedOut));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert!(exists(&tenant, 1));
    }
    let is_abandoned = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let outcome = tenant.read(Deadline::new(&is_abandoned), |reading| reading.page(&slow));
    assert_eq!(
        outcome.map_err(|error| error.code),
        Err(StoreCode::TimedOut),
        "the client has gone"
    );
    assert!(exists(&tenant, 1));
}

#[test]
fn a_read_that_panics_gives_its_connection_back() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    add_customer(&tenant, "");
    // More often than there are connections.
    for _ in 0..6 {
        let read = |_: &Reading<'_>| -> Result<()> { panic!("on purpose") };
        let deadline = Deadline::new(&Arc::default());
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| tenant.read(deadline, read)));
        assert!(outcome.is_err() && exists(&tenant, 1));
    }
}

#[test]
fn a_deletion_that_the_file_refuses_is_not_told_as_a_reference() {
    let directory = data_dir(1);
    let file = connect(&directory);
    let context = context();
    let writing = Writing::new(&file, &context);
    writing.apply(&create("Kept", ""), &[]).unwrap();
    file.pragma_update(None, "query_only", true).unwrap();
    let refused = writing.apply(&delete(1), &[]).unwrap_err();
    assert_eq!(refused.code, StoreCode::DiskFailed);
}

#[test]
fn stored_answers_are_removed_when_their_day_is_over() {
    let directory = data_dir(1);
    let tenants = tenants(&directory);
    let tenant = tenants.open(ONE).unwrap();
    let (report, outcomes) = mpsc::channel();
    for (key, age) in [(1, Duration::from_hours(25)), (2, Duration::from_hours(23))] {
        let context = ChangeContext { at: context().at.before(age), ..context() };
        let idempotency_key = Some(IdempotencyKey { key: [key; 16], request: [0; 32] });
        let kept = mutation(&report, vec![create("Customer", "")]);
        tenant.mutate(Mutation { context, idempotency_key, ..kept });
        assert_eq!(outcomes.recv(), Ok(DONE));
    }
    let file = connect(&directory);
    let kept =
        || file.query_row("SELECT group_concat(hex(key)) FROM idempotency", [], |row| row.get(0));
    wait_until(|| kept() == Ok("02".repeat(16)));
}
