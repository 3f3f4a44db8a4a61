//! Backups, restores and checks in this process.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params};

use super::check::check;
use super::restore::{Restore, Restored};
use super::{restore, *};
use crate::clock::Clock;
use crate::model::{Scopes, TenantId};
use crate::secret;
use crate::store::data_dir::{DataDir, tenant_database, tenants_dir};
use crate::store::database::{Role, open_plain};
use crate::store::registry::{Admin, Inactive, KeyRow, KeyState, NewKey, Registry, TenantRow};
use crate::store::tests::unpack;

/// A data directory and a directory of backups.
pub(super) struct Fixture {
    home: tempfile::TempDir,
    pub(super) clock: Clock,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        let clock = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap());
        Fixture { home: tempfile::tempdir().unwrap(), clock }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.path("backups")
    }

    pub(super) fn registry(&self) -> Registry {
        DataDir::create(&self.data()).unwrap();
        Registry::open(&self.data()).unwrap()
    }

    pub(super) fn tenant(&self, name: &str) -> TenantRow {
        // Hashing takes most of the time of a test, so all tenants have the same hash.
        static HASH: LazyLock<String> =
            LazyLock::new(|| secret::hash_password("correct horse battery").unwrap());
        self.registry().create_tenant(name, None, &HASH, None, self.clock.now()).unwrap().0
    }

    pub(super) fn key(&self, tenant: i64) -> (KeyRow, String) {
        let key = NewKey::new("a key", Scopes::every());
        let (tenant, now) = (TenantId(tenant), self.clock.now());
        self.registry().administer(tenant, Admin::CommandLine, now).create_key(&key).unwrap()
    }

    pub(super) fn backup(&self, tenant: Option<&str>) -> Backup {
        self.clock.advance(Duration::from_secs(1));
        let registry = self.registry();
        let tenant = tenant.map(|name| registry.find_tenant(name).unwrap().unwrap());
        create(&registry, &self.dir(), tenant.as_ref(), None, self.clock.now()).unwrap()
    }

    pub(super) fn restore_into(
        &self,
        data_dir: &Path,
        tenant: Option<&str>,
        new_name: Option<&str>,
        force: bool,
    ) -> Result<Restored> {
        let source = self.dir();
        let now = self.clock.now();
        restore::restore(&Restore { data_dir, source: &source, tenant, new_name, force, now })
    }

    fn restore(&self, tenant: Option<&str>, force: bool) -> Result<Restored> {
        self.restore_into(&self.data(), tenant, None, force)
    }

    pub(super) fn live(&self, id: i64) -> Connection {
        tenant_database(&self.data(), TenantId(id)).open(Role::Bulk).unwrap()
    }

    pub(super) fn add(&self, id: i64, names: &[&str]) {
        let mut live = self.live(id);
        for name in names {
            add_customer(&mut live, name);
        }
    }

    pub(super) fn names(&self, id: i64) -> Vec<(i64, String)> {
        names(&self.live(id))
    }

    pub(super) fn problems(&self) -> Vec<(String, String)> {
        let findings = check(&self.data()).unwrap().into_iter();
        findings
            .flat_map(|finding| {
                finding.problems.into_iter().map(move |text| (finding.database.clone(), text))
            })
            .collect()
    }

    /// Asserts that no temporary file is left.
    pub(super) fn assert_tidy(&self) {
        let directories = [self.data(), self.dir()];
        let entries = directories.iter().filter_map(|path| fs::read_dir(path).ok()).flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let hidden: Vec<String> = names.filter(|name| name.starts_with('.')).collect();
        assert_eq!(hidden, Vec::<String>::new());
    }
}

/// Adds a customer as the program does: with its entry, its version and its search text.
fn add_customer(live: &mut Connection, name: &str) -> i64 {
    let transaction = live.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let insert = "INSERT INTO customers (name, status, created_at, updated_at, search, version)
        SELECT ?1, 'active', ?2, ?2, lower(?1), last_seq + 1 FROM changes_state";
    transaction.execute(insert, params![name, "2026-11-20T19:30:00Z"]).unwrap();
    let id = transaction.last_insert_rowid();
    transaction
        .execute_batch(&format!(
            "UPDATE changes_state SET last_seq = last_seq + 1;
             INSERT INTO changes (seq, at, resource, record_id, action, fields, by_name)
             SELECT last_seq, '2026-11-20T19:30:00Z', 'customers', {id}, 'created', '[\"name\"]',
               'import' FROM changes_state"
        ))
        .unwrap();
    transaction.commit().unwrap();
    id
}

/// A command that failed may have left a new data directory, and nothing in it.
#[track_caller]
pub(super) fn assert_has_no_tenant(data_dir: &Path) {
    if !data_dir.exists() {
        return;
    }
    if data_dir.join("registry.db").exists() {
        assert_eq!(Registry::open(data_dir).unwrap().list_tenants().unwrap(), []);
    }
    assert_eq!(fs::read_dir(tenants_dir(data_dir)).unwrap().count(), 0);
    assert!(!data_dir.join(".restore").exists());
}

fn names(connection: &Connection) -> Vec<(i64, String)> {
    let mut statement = connection.prepare("SELECT id, name FROM customers ORDER BY id").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Corrects the lengths and checksums of a manifest, as whoever made the files can.
pub(super) fn sign(directory: &Path) {
    let path = directory.join(MANIFEST);
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for file in text["files"].as_array_mut().unwrap() {
        let name = file["path"].as_str().unwrap();
        if directory.join(name).is_file() {
            let found = fs::File::open(directory.join(name)).unwrap();
            let (bytes, sha256) = digest(found, io::sink()).unwrap();
            (file["bytes"], file["sha256"]) = (bytes.into(), sha256.into());
        }
    }
    fs::write(&path, serde_json::to_vec(&text).unwrap()).unwrap();
}

#[test]
fn a_backup_of_one_tenant_holds_nothing_of_the_others_and_none_has_a_session() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    let two = fixture.tenant("two");
    let new = NewKey::new("secret of one", Scopes::every());
    let (registry, now) = (fixture.registry(), fixture.clock.now());
    let (_, key) =
        registry.administer(TenantId(1), Admin::CommandLine, now).create_key(&new).unwrap();
    registry.create_session(&two, &[7; 32], "192.0.2.1".parse().unwrap(), now).unwrap();
    for (tenant, kind, count) in [(Some("two"), BackupKind::Tenant, 1), (None, BackupKind::All, 2)]
    {
        let made = fixture.backup(tenant);
        assert_eq!((made.manifest.kind, made.manifest.tenants.len()), (kind, count));
        let bytes = fs::read(made.directory.join("registry.db")).unwrap();
        let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
        let of_one = [has(b"secret of one"), has(&secret::hash(&key))];
        assert_eq!((of_one, has(&[7; 32])), ([count == 2; 2], false));
        assert!(!made.directory.join("registry.db-wal").exists());
    }
}

#[test]
fn older_backups_of_the_same_kind_are_removed() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.tenant("two");
    let old = [None, Some("one"), None, Some("two")].map(|tenant| fixture.backup(tenant));
    let registry = fixture.registry();
    let now = fixture.clock.now();
    let keep = |keep, now| create(&registry, &fixture.dir(), None, Some(keep), now);
    let made = keep(2, now).unwrap();
    assert_eq!(made.removed, [old[0].directory.clone()]);
    assert!(old[1..].iter().all(|made| made.directory.exists()));
    // A backup of the same second, and one after the clock was set back.
    let second = keep(1, now).unwrap();
    assert!(second.directory.to_str().unwrap().ends_with("Z-3"), "{:?}", second.directory);
    assert_eq!(second.removed.len(), 2);
    let past = Clock::manual("2020-01-01T00:00:00Z".parse().unwrap());
    let made = keep(1, past.now()).unwrap();
    assert!(made.directory.exists());
    fixture.assert_tidy();
}

#[test]
fn an_existing_tenant_is_replaced_only_by_force_and_keeps_its_keys_and_counters() {
    let fixture = Fixture::new();
    let one = fixture.tenant("one");
    fixture.add(1, &["Eins", "Zwei"]);
    let before = fixture.names(1);
    let registry = fixture.registry();
    let (key, _) = fixture.key(1);
    fixture.backup(Some("one"));
    registry
        .administer(one.id, Admin::CommandLine, fixture.clock.now())
        .revoke_key(key.id)
        .unwrap();
    let new = secret::hash_password("another password").unwrap();
    registry
        .administer(one.id, Admin::CommandLine, fixture.clock.now())
        .set_password(&new)
        .unwrap();
    fixture.add(1, &["Drei", "Vier"]);
    let changed = fixture.names(1);
    let refused = fixture.restore(Some("one"), false).unwrap_err().to_string();
    assert_eq!(refused, "the tenant one would be overwritten; say --force if that is meant");
    assert_eq!(fixture.names(1), changed);
    let restored = fixture.restore(Some("one"), true).unwrap();
    assert!(restored.tenants[0].existed);
    assert_eq!(fixture.names(1), before);
    let keys = registry.list_keys(one.id).unwrap();
    assert_eq!(keys[0].state(fixture.clock.now()), KeyState::Revoked);
    assert_eq!(registry.tenant(one.id).unwrap().unwrap().password_hash, new);
    fixture.add(1, &["Fünf"]);
    assert_eq!(fixture.names(1).last().unwrap().0, 5);
    assert_eq!(fixture.problems(), []);
    fixture.assert_tidy();
}

#[test]
fn a_deleted_tenant_is_restored_with_its_keys_next_to_the_others() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.tenant("two");
    fixture.add(2, &["Zwei"]);
    let registry = fixture.registry();
    let new = NewKey {
        expires_at: "2027-01-31T23:59:59Z".parse().ok(),
        rate_limit: std::num::NonZeroU32::new(7),
        ..NewKey::new("a key", Scopes::every())
    };
    let operator = registry.administer(TenantId(2), Admin::CommandLine, fixture.clock.now());
    let (made, key) = operator.create_key(&new).unwrap();
    registry.suspend("two", Inactive::Suspended).unwrap();
    registry.set_trial("two", "2027-01-31").unwrap();
    let (before, row) = (fixture.names(2), registry.find_tenant("two").unwrap().unwrap());
    fixture.backup(None);
    registry.delete_tenant("two").unwrap();
    let restored = fixture.restore(Some("two"), false).unwrap();
    let tenant = &restored.tenants[0];
    assert_eq!((tenant.id, tenant.keys), (TenantId(3), 1), "its id is not used again");
    assert_eq!(fixture.names(3), before);
    let found = registry.find_tenant("two").unwrap().unwrap();
    assert_eq!(found, TenantRow { id: TenantId(3), ..row });
    let principal =
        registry.find_principal(&secret::hash(&key), fixture.clock.now()).unwrap().unwrap();
    assert_eq!(principal.key.tenant_id, TenantId(3));
    let keys = registry.list_keys(TenantId(3)).unwrap();
    assert_eq!(keys.iter().map(|key| key.id.0).collect::<Vec<_>>(), [2]);
    assert_eq!((keys[0].expires_at, keys[0].rate_limit), (made.expires_at, made.rate_limit));
    // Files exist for the next id and for the previous one. Neither is touched.
    registry.delete_tenant("two").unwrap();
    for id in [2, 4] {
        fs::write(fixture.data().join(format!("tenants/{id}.db")), "a file of another").unwrap();
    }
    assert_eq!(fixture.restore(Some("two"), false).unwrap().tenants[0].id, TenantId(5));
    assert_eq!(fixture.names(5), before);
    assert_eq!(fs::read(fixture.data().join("tenants/2.db")).unwrap(), b"a file of another");
}

#[test]
fn a_backup_from_elsewhere_does_not_use_deleted_ids_again() {
    let elsewhere = Fixture::new();
    elsewhere.tenant("other");
    elsewhere.add(1, &["Other"]);
    let keys: Vec<i64> = (0..4).map(|_| elsewhere.key(1).0.id.0).collect();
    let (registry, now) = (elsewhere.registry(), elsewhere.clock.now());
    let first = crate::model::KeyId(keys[0]);
    registry.administer(TenantId(1), Admin::CommandLine, now).delete_key(first).unwrap();
    elsewhere.backup(None);
    let here = Fixture::new();
    for name in ["one", "two", "three"] {
        here.tenant(name);
    }
    for _ in 0..2 {
        here.key(2);
    }
    for name in ["one", "two", "three"] {
        here.registry().delete_tenant(name).unwrap();
    }
    let restored = elsewhere.restore_into(&here.data(), Some("other"), None, false).unwrap();
    assert_eq!((restored.tenants[0].id, restored.tenants[0].keys), (TenantId(4), 3));
    let keys = here.registry().list_keys(TenantId(4)).unwrap();
    assert_eq!(keys.iter().map(|key| key.id.0).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(here.names(4), elsewhere.names(1));
    assert_eq!((here.tenant("next").id, here.key(4).0.id.0), (TenantId(5), 6));
    assert_eq!(here.problems(), []);
    here.assert_tidy();
}

#[test]
fn a_restore_over_a_damaged_registry_changes_nothing() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.backup(None);
    let garbage = "not a database either, and long enough for a header of SQLite, surely";
    fs::write(fixture.data().join("registry.db"), garbage).unwrap();
    let damaged = fixture.restore(Some("one"), true).unwrap_err();
    assert_eq!(damaged.code, StoreCode::Damaged, "{damaged}");
    assert_eq!(fs::read(fixture.data().join("registry.db")).unwrap(), garbage.as_bytes());
    fixture.assert_tidy();
}

#[test]
fn the_counters_of_a_file_that_cannot_be_opened_go_on() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.backup(None);
    fixture.add(1, &["Eins", "Zwei", "Drei"]);
    let state = |connection: &Connection| -> (Vec<u8>, i64) {
        let sql = "SELECT lineage, last_seq FROM changes_state";
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    let live = fixture.live(1);
    let before = state(&live);
    live.pragma_update(None, "user_version", 99).unwrap();
    drop(live);
    fixture.restore(Some("one"), true).unwrap();
    let after = state(&fixture.live(1));
    assert!(after.1 > before.1 && after.0 != before.0);
    fixture.add(1, &["Vier"]);
    assert_eq!(fixture.names(1), [(4, "Vier".to_owned())]);
}

#[test]
fn the_ids_of_a_file_of_1_0_0_go_on() {
    let fixture = Fixture::new();
    let directory = backup_of_1_0_0(&fixture);
    let restored = fixture.restore(None, false).unwrap().tenants.remove(0);
    let live = tenant_database(&fixture.data(), restored.id);
    live.remove().unwrap();
    fs::copy(directory.join(format!("tenants/{}.db", restored.id)), live.path()).unwrap();
    let old = open_plain(live.path()).unwrap();
    old.execute_batch("UPDATE sqlite_sequence SET seq = 1000 WHERE name = 'customers'").unwrap();
    drop(old);
    fixture.restore(Some(&restored.name), true).unwrap();
    fixture.add(restored.id.0, &["Next"]);
    assert_eq!(fixture.names(restored.id.0).last().unwrap().0, 1001);
}

#[test]
fn a_backup_is_verified_before_anything_changes() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.add(1, &["Eins"]);
    let made = fixture.backup(None);
    fixture.add(1, &["Zwei"]);
    let saved = made.directory.join("tenants/1.db");
    let intact = fs::read(&saved).unwrap();
    let expect = |what: &str| {
        let error = fixture.restore(Some("one"), true).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        let other = fixture.path("other");
        let error = fixture.restore_into(&other, None, None, false).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert_has_no_tenant(&other);
        assert_eq!(fixture.names(1).len(), 2);
        fixture.assert_tidy();
    };
    let mut damaged = intact.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&saved, &damaged).unwrap();
    expect("SHA-256");
    fs::write(&saved, &intact[..4096]).unwrap();
    expect("SHA-256");
    fs::write(&saved, [intact.as_slice(), b"appended"].concat()).unwrap();
    expect("its length or SHA-256 is not that of the manifest");
    fs::remove_file(&saved).unwrap();
    expect("cannot be read");
    fs::write(&saved, &intact).unwrap();
    let path = made.directory.join("manifest.json");
    let manifest = fs::read_to_string(&path).unwrap();
    open_plain(&saved).unwrap().pragma_update(None, "user_version", 99).unwrap();
    sign(&made.directory);
    expect("newer version");
    fs::write(&saved, &intact).unwrap();
    fs::write(&path, manifest.replace("\"format\": 1", "\"format\": 2")).unwrap();
    expect("newer version");
    fs::write(&path, "{").unwrap();
    expect("manifest.json: it is damaged");
    fs::write(&path, manifest).unwrap();
    let none = fixture.restore(Some("two"), true).unwrap_err().to_string();
    assert!(none.contains("no backup of the tenant two"), "{none}");
    fixture.restore(Some("one"), true).unwrap();
    assert_eq!(fixture.names(1).len(), 1);
}

#[test]
fn a_file_with_litestreams_tables_is_backed_up_and_restored() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.add(1, &["Eins"]);
    let create = "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER);
                  INSERT INTO _litestream_seq VALUES (1, 7)";
    fixture.live(1).execute_batch(create).unwrap();
    let before = fixture.names(1);
    fixture.backup(None);
    fixture.live(1).execute_batch("CREATE TABLE _litestream_lock (id INTEGER)").unwrap();
    fixture.add(1, &["Zwei"]);
    fixture.restore(Some("one"), true).unwrap();
    assert_eq!(fixture.names(1), before);
    assert_eq!(fixture.problems(), []);
}

/// A backup that 1.0.0 has made.
pub(super) fn backup_of_1_0_0(fixture: &Fixture) -> PathBuf {
    let directory = fixture.dir().join("2026-01-01T00-00-00Z");
    fs::create_dir_all(tenants_dir(&directory)).unwrap();
    unpack("registry.db", &directory.join("registry.db"));
    let registry = open_plain(&directory.join("registry.db")).unwrap();
    let (id, name): (i64, String) = registry
        .query_row("SELECT id, name FROM tenants", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    drop(registry);
    let file = format!("tenants/{id}.db");
    unpack("tenant.db", &directory.join(&file));
    let text = serde_json::json!({
        "format": 1, "tenantdesk": "1.0.0", "created_at": "2026-01-01T00:00:00Z", "kind": "all",
        "tenants": [{"id": id, "name": name, "records": {}}],
        "files": [
            {"path": "registry.db", "schema": 5, "bytes": 0, "sha256": ""},
            {"path": file, "schema": 6, "bytes": 0, "sha256": ""},
        ],
    });
    fs::write(directory.join(MANIFEST), text.to_string()).unwrap();
    sign(&directory);
    directory
}

#[test]
fn a_backup_of_1_0_0_is_restored_and_an_older_one_is_refused() {
    let fixture = Fixture::new();
    let directory = backup_of_1_0_0(&fixture);
    let before = fs::read(directory.join("registry.db")).unwrap();
    let restored = fixture.restore(None, false).unwrap();
    let tenant = &restored.tenants[0];
    assert!(tenant.records["customers"] > 0, "{tenant:?}");
    let name = tenant.name.clone();
    fixture.restore(Some(&name), true).unwrap();
    fixture.restore_into(&fixture.data(), Some(&name), Some("copy"), false).unwrap();
    assert_eq!(fixture.problems(), []);
    assert_eq!(fs::read(directory.join("registry.db")).unwrap(), before);
    let file = open_plain(&directory.join("tenants/1.db")).unwrap();
    file.pragma_update(None, "user_version", 5).unwrap();
    drop(file);
    sign(&directory);
    let refused = fixture.restore(Some(&name), true).unwrap_err().to_string();
    assert!(refused.contains("restore the backup with 1.0.0"), "{refused}");
    assert_eq!(fixture.problems(), []);
}

#[test]
fn one_tenant_but_not_everything_can_be_restored_while_a_server_runs() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.backup(None);
    let _serving = DataDir::lock_to_serve(&fixture.data()).unwrap();
    assert!(fixture.restore(None, false).is_err());
    fixture.restore(Some("one"), true).unwrap();
    let empty = fixture.path("empty");
    fs::create_dir_all(tenants_dir(&empty)).unwrap();
    let _starting = DataDir::lock_to_serve(&empty).unwrap();
    assert!(fixture.restore_into(&empty, None, None, false).is_err());
    assert!(!empty.join("registry.db").exists());
}

#[test]
fn one_restore_at_a_time_and_the_next_one_removes_what_a_killed_one_left() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    let made = fixture.backup(None);
    let source = restore::Source {
        directory: made.directory,
        manifest: made.manifest,
        newer: BTreeSet::new(),
        older: None,
        ahead: None,
    };
    let running = Staging::create(fixture.data().join(".restore")).unwrap();
    source.copy_registry(&running.path).unwrap();
    let refused = fixture.restore(Some("one"), true).unwrap_err();
    assert!(refused.message.contains("another tenantdesk"), "{refused}");
    assert!(fixture.data().join(".restore/registry.db").exists());
    drop(running);
    fixture.assert_tidy();
    fs::create_dir_all(fixture.data().join(".restore/tenants")).unwrap();
    fs::write(fixture.data().join(".restore/tenants/1.db"), "half").unwrap();
    fixture.restore(Some("one"), true).unwrap();
    fixture.assert_tidy();
}

#[test]
fn one_backup_at_a_time_and_the_next_one_removes_what_a_killed_one_left() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.backup(None);
    let (registry, dir, now) = (fixture.registry(), fixture.dir(), fixture.clock.now());
    let running = Staging::create(dir.join(".partial")).unwrap();
    let refused = create(&registry, &dir, None, None, now).unwrap_err();
    assert!(refused.message.contains("another tenantdesk"), "{refused}");
    drop(running);
    fs::create_dir(dir.join(".partial")).unwrap();
    fs::write(dir.join(".partial/manifest.json"), "half").unwrap();
    // A backup of which the manifest was removed is no backup.
    fs::create_dir(dir.join("2026-11-21T19-30-00Z")).unwrap();
    assert_eq!(list(&dir).unwrap().len(), 1);
    fixture.backup(None);
    assert_eq!(list(&dir).unwrap().len(), 2);
    fixture.assert_tidy();
}

#[test]
fn a_tenant_without_a_file_and_a_file_without_a_tenant_are_found() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.tenant("two");
    let tenants = tenants_dir(&fixture.data());
    fs::copy(tenants.join("2.db"), tenants.join("9.db")).unwrap();
    fs::remove_file(tenants.join("1.db")).unwrap();
    fs::rename(tenants.join("2.db"), tenants.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", tenants.join("2.db")).unwrap();
    let found = fixture.problems();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].0 == "tenants/1.db" && found[0].1.ends_with("does not exist"), "{found:?}");
    assert!(found[1].0 == "tenants/2.db" && found[1].1.contains("no regular file"), "{found:?}");
    let orphans = check(&fixture.data()).unwrap().into_iter().filter(|finding| finding.is_orphan);
    assert_eq!(orphans.map(|finding| finding.database).collect::<Vec<_>>(), ["tenants/9.db"]);
    fs::remove_dir_all(tenants).unwrap();
    let missing: Vec<String> = fixture.problems().into_iter().map(|(file, _)| file).collect();
    assert_eq!(missing, ["tenants/1.db", "tenants/2.db"]);
}

/// Otherwise the WAL would grow as long as an examination runs, and writes would be refused.
#[test]
fn a_copy_holds_no_snapshot() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.add(1, &["Ada"]);
    let live = tenant_database(&fixture.data(), TenantId(1));
    let copied = copy_database(&live, &Database::new(fixture.path("copy"), live.schema)).unwrap();
    fixture.add(1, &["Eva"]);
    let connection = live.open(Role::Writer).unwrap();
    assert_eq!(live.checkpoint(&connection, true).unwrap(), 0);
    assert_eq!(names(&copied).len(), 1);
}

#[test]
fn an_index_that_lacks_a_row_is_found() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.add(1, &["Ada"]);
    // The row is added while the schema hides the index.
    let raw = open_plain(&tenants_dir(&fixture.data()).join("1.db")).unwrap();
    raw.execute_batch(
        "CREATE TEMP TABLE hidden AS SELECT * FROM sqlite_schema WHERE name = 'customers_by_city';
         PRAGMA writable_schema = ON;
         DELETE FROM sqlite_schema WHERE name = 'customers_by_city';
         PRAGMA writable_schema = RESET;
         UPDATE customers SET city = 'Kiel';
         PRAGMA writable_schema = ON;
         INSERT INTO sqlite_schema SELECT * FROM hidden;
         PRAGMA writable_schema = RESET;",
    )
    .unwrap();
    drop(raw);
    let found = fixture.problems();
    let expected = "row 1 missing from index customers_by_city";
    assert_eq!(found, [("tenants/1.db".to_owned(), expected.to_owned())]);
}
