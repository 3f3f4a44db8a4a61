use std::fs::{self};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::model::{Scopes, TenantId};
use crate::secret;
use crate::store::{DataDir, tenants_dir};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

const PANEL: Admin = Admin::Panel(CLIENT);

struct Fixture {
    directory: tempfile::TempDir,
    registry: Registry,
    clock: Clock,
}

impl Fixture {
    fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        DataDir::create(&data).unwrap();
        let registry = Registry::open(&data).unwrap();
        Fixture {
            directory,
            registry,
            clock: Clock::manual("2026-11-20T19:30:42Z".parse().unwrap()),
        }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn tenant(&self, name: &str) -> TenantRow {
        self.registry.create_tenant(name, None, "$phc", None, self.clock.now()).unwrap().0
    }

    fn key(&self, tenant: &TenantRow) -> (KeyRow, String) {
        self.registry
            .administer(tenant.id, Admin::CommandLine, self.clock.now())
            .create_key(&NewKey::new("a key", Scopes::every()))
            .unwrap()
    }

    fn principal(&self, key: &str) -> Option<Principal> {
        self.registry.find_principal(&secret::hash(key), self.clock.now()).unwrap()
    }

    fn sign_in(&self, tenant: &TenantRow, hash: u8) -> bool {
        let now = self.clock.now();
        self.registry.create_session(tenant, &[hash; 32], CLIENT, now).unwrap()
    }
}

#[test]
fn a_file_without_a_tenant_is_not_used_for_a_new_tenant() {
    let fixture = Fixture::new();
    let left = fixture.data().join("tenants/1.db");
    fs::write(&left, "somebody's").unwrap();
    let acme = fixture.tenant("acme");
    assert_eq!(acme.id, TenantId(2));
    assert_eq!(fs::read_to_string(left).unwrap(), "somebody's");
}

#[test]
fn deleting_a_tenant_deletes_its_files_keys_sessions_and_events() {
    let fixture = Fixture::new();
    let acme = fixture.tenant("acme");
    // A replicator has copied the file.
    fs::create_dir(fixture.data().join("tenants/.1.db-litestream")).unwrap();
    let (_, key) = fixture.key(&acme);
    assert!(fixture.sign_in(&acme, 7));
    fixture.registry.delete_tenant("acme").unwrap();
    assert_eq!(fixture.principal(&key), None);
    assert_eq!(fixture.registry.find_session(&[7; 32], fixture.clock.now()).unwrap(), None);
    let rest = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        fixture
            .registry
            .read(|connection| connection.query_row(&sql, [], |row| row.get::<_, i64>(0)))
            .unwrap()
    };
    assert_eq!([rest("keys"), rest("sessions"), rest("key_events")], [0, 0, 0]);
    assert_eq!(fs::read_dir(tenants_dir(&fixture.data())).unwrap().count(), 0);
}

#[test]
fn a_session_lasts_eight_hours_and_ends_with_a_new_password() {
    let fixture = Fixture::new();
    let acme = fixture.tenant("acme");
    let find = |hash: u8| fixture.registry.find_session(&[hash; 32], fixture.clock.now()).unwrap();
    assert!(fixture.sign_in(&acme, 1));
    assert_eq!(find(1).unwrap(), acme);
    fixture.clock.advance(Duration::from_secs(8 * 3600 - 1));
    assert!(find(1).is_some());
    fixture.clock.advance(Duration::from_secs(1));
    assert!(find(1).is_none());
    assert!(fixture.sign_in(&acme, 2));
    assert!(fixture.sign_in(&acme, 3));
    fixture.registry.end_session(&[2; 32]).unwrap();
    assert!(find(2).is_none() && find(3).is_some());
    fixture
        .registry
        .administer(acme.id, Admin::CommandLine, fixture.clock.now())
        .set_password("$new")
        .unwrap();
    assert!(find(3).is_none());
    assert_eq!(fixture.registry.find_tenant("acme").unwrap().unwrap().password_hash, "$new");
    // `acme` was read before the change: this is a sign-in with the old password that was under
    // way.
    assert!(!fixture.sign_in(&acme, 4));
    assert!(find(4).is_none());
}

#[test]
fn a_failed_sign_in_of_a_deleted_tenant_is_in_nobodys_way() {
    let fixture = Fixture::new();
    let (acme, other) = (fixture.tenant("acme"), fixture.tenant("other"));
    let now = fixture.clock.now();
    fixture.registry.record_failed_sign_in(acme.id, CLIENT, now);
    assert!(fixture.registry.sign_ins(other.id, 20).unwrap().is_empty());
    fixture.registry.record_failed_sign_in(other.id, CLIENT, now);
    fixture.registry.delete_tenant("acme").unwrap();
    fixture.registry.flush().unwrap();
    let again = Registry::open(&fixture.data()).unwrap();
    assert_eq!(again.sign_ins(other.id, 20).unwrap().len(), 1);
    assert!(again.sign_ins(acme.id, 20).unwrap().is_empty());
}

#[test]
fn a_last_use_is_rounded_to_the_minute_and_shown_before_it_is_written() {
    let fixture = Fixture::new();
    let acme = fixture.tenant("acme");
    let (row, _) = fixture.key(&acme);
    let last_use = |registry: &Registry| registry.list_keys(acme.id).unwrap()[0].last_used_at;
    fixture.registry.record_use(&row, fixture.clock.now());
    assert_eq!(last_use(&fixture.registry), Some(row.created_at), "no use before the creation");
    fixture.clock.advance(Duration::from_secs(60));
    fixture.registry.record_use(&row, fixture.clock.now());
    let expected = Some("2026-11-20T19:31:00Z".parse().unwrap());
    assert_eq!(last_use(&fixture.registry), expected);
    let other = Registry::open(&fixture.data()).unwrap();
    assert_eq!(last_use(&other), None);
    let client = "192.0.2.1".parse().unwrap();
    assert!(fixture.registry.create_session(&acme, &[0; 32], client, fixture.clock.now()).unwrap());
    assert_eq!(last_use(&other), None, "a sign-in does not wait for last uses");
    // A key that is deleted does not keep the others from being written.
    let (deleted, _) = fixture.key(&acme);
    fixture.registry.record_use(&deleted, fixture.clock.now());
    let admin = fixture.registry.administer(acme.id, PANEL, fixture.clock.now());
    admin.delete_key(deleted.id).unwrap();
    fixture.registry.flush().unwrap();
    assert_eq!(last_use(&other), expected);
    assert!(fixture.registry.unwritten.lock().uses.is_empty(), "what is written is forgotten");
}

#[test]
fn last_uses_that_cannot_be_written_are_written_later() {
    let fixture = Fixture::new();
    let acme = fixture.tenant("acme");
    let (row, _) = fixture.key(&acme);
    fixture.registry.record_use(&row, fixture.clock.now());
    let only_reads = |is: bool| {
        fixture.registry.writer.lock().pragma_update(None, "query_only", is).unwrap();
    };
    only_reads(true);
    assert!(fixture.registry.flush().is_err());
    only_reads(false);
    fixture.registry.flush().unwrap();
    let other = Registry::open(&fixture.data()).unwrap();
    assert!(other.list_keys(acme.id).unwrap()[0].last_used_at.is_some());
}

#[test]
fn a_thousand_sign_ins_and_a_thousand_changes_are_kept() {
    let fixture = Fixture::new();
    let acme = fixture.tenant("acme");
    let (row, _) = fixture.key(&acme);
    let at = fixture.clock.now().timestamp();
    let insert = |action: EventKind, count: usize| {
        let event = Event::new(action, None, PANEL, at);
        let write = |transaction: &Transaction<'_>| {
            (0..count).try_for_each(|_| Ok(event.insert(transaction, acme.id)?))
        };
        fixture.registry.change(write).unwrap();
    };
    insert(EventKind::KeyRevoked, 10);
    insert(EventKind::FailedSignIn, 1_200);
    insert(EventKind::SignedIn, 300);
    let changes = fixture.registry.admin_changes(acme.id, 5_000).unwrap();
    assert_eq!(changes.len(), 11, "sign-ins displace no change");
    assert_eq!(changes.last().unwrap().key.as_ref().unwrap().id, row.id);
    let sign_ins = fixture.registry.sign_ins(acme.id, 5_000).unwrap();
    let failed = sign_ins.iter().filter(|event| event.action == "failed sign-in").count();
    assert_eq!((sign_ins.len(), failed), (1_000, 700));
    insert(EventKind::KeyDeleted, 1_000);
    let changes = fixture.registry.admin_changes(acme.id, 5_000).unwrap();
    assert!(changes.len() == 1_000 && changes.iter().all(|event| event.action == "key deleted"));
    assert_eq!(fixture.registry.sign_ins(acme.id, 5_000).unwrap(), sign_ins);
}

#[test]
fn a_renamed_tenant_keeps_its_sessions() {
    let fixture = Fixture::new();
    let acme = fixture.tenant("acme");
    assert!(fixture.sign_in(&acme, 7));
    let renamed = fixture.registry.rename_tenant("acme", "new").unwrap();
    assert_eq!(renamed, TenantRow { name: "new".to_owned(), ..acme });
    let found = fixture.registry.find_session(&[7; 32], fixture.clock.now()).unwrap();
    assert_eq!(found, Some(renamed));
}

#[test]
fn of_two_tenants_that_get_one_name_at_once_one_is_told_that_it_exists() {
    let fixture = Fixture::new();
    fixture.tenant("a");
    fixture.tenant("b");
    for round in 0..20 {
        let name = format!("new-{round}");
        let outcomes = std::thread::scope(|scope| {
            let (registry, name) = (&fixture.registry, &name);
            ["a", "b"]
                .map(|old| scope.spawn(move || registry.rename_tenant(old, name)))
                .map(|thread| thread.join().unwrap())
        });
        let exists = |outcome: &&Result<_>| {
            outcome.as_ref().is_err_and(|error| error.message.ends_with("exists already"))
        };
        assert_eq!(outcomes.iter().filter(exists).count(), 1, "{outcomes:?}");
        let old = if outcomes[0].is_ok() { "a" } else { "b" };
        fixture.registry.rename_tenant(&name, old).unwrap();
    }
}

#[test]
fn a_replaced_key_ends_after_the_overlap_or_at_its_own_end() {
    let fixture = Fixture::new();
    let acme = fixture.tenant("acme");
    let expires_at = "2026-11-20T23:59:59Z".parse().ok();
    let new = NewKey { expires_at, ..NewKey::new("a key", Scopes::read_only()) };
    for (overlap, end) in [("1h", "2026-11-20T20:30:42Z"), ("24h", "2026-11-20T23:59:59Z")] {
        let (row, _) = fixture
            .registry
            .administer(acme.id, PANEL, fixture.clock.now())
            .create_key(&new)
            .unwrap();
        let overlap = overlap.parse().unwrap();
        let replaced = fixture
            .registry
            .administer(acme.id, PANEL, fixture.clock.now())
            .replace_key(row.id, overlap)
            .unwrap();
        assert_eq!(replaced.old.expires_at.unwrap().to_string(), end);
        assert!(fixture.registry.list_keys(acme.id).unwrap().contains(&replaced.old));
    }
}
