//! Backups and restores in this process, some of them under load.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::clock::Clock;
use crate::config::TenantLimits;
use crate::model::{ALL, CUSTOMER, EMPLOYEE, Scopes, Value};
use crate::secret;
use crate::store::backup::{self, BackupError, Manifest, manifest};
use crate::store::import::{NewIds, NewRecord};
use crate::store::registry::{Actor, Expiry, KeyState, NewKey, TenantRow};
use crate::store::schema;
use crate::store::tenant_file::TenantFile;
use crate::store::{
    DatabaseError, KeyLabel, MutationError, Origin, Record, Tenant, Tenants, Writing, check, upgrade_tests,
};

struct Fixture {
    folder: tempfile::TempDir,
    clock: Clock,
}

impl Fixture {
    fn new() -> Fixture {
        let clock = Clock::manual("2026-11-20T19:30:00Z".parse().unwrap());
        Fixture { folder: tempfile::tempdir().unwrap(), clock }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("backups")
    }

    fn registry(&self) -> Registry {
        Registry::create(&self.data()).unwrap()
    }

    fn tenant(&self, name: &str) -> TenantRow {
        self.registry().create_tenant(name, None, "$phc", self.clock.now()).unwrap()
    }

    fn backup(&self, tenant: Option<&str>) -> backup::Backup {
        self.clock.advance(Duration::from_secs(1));
        let registry = self.registry();
        let tenant = tenant.map(|name| registry.find_tenant(name).unwrap().unwrap());
        backup::create(&registry, &self.dir(), tenant.as_ref(), None, self.clock.now()).unwrap()
    }

    fn restore(&self, tenant: Option<&str>, force: bool) -> Result<Restored, RestoreError> {
        restore(&Restore { data_dir: &self.data(), source: &self.dir(), tenant, new_name: None, force })
    }

    fn rows(&self, id: i64) -> Vec<(&'static str, Record)> {
        rows(&self.data(), id)
    }

    fn add(&self, id: i64, names: &[&str]) {
        let file = TenantFile::open(&self.data(), id).unwrap();
        let lock = file.lock_imports(|| ()).unwrap();
        let ids = NewIds::Next(names.len() as u64);
        let mut import = file.begin_import(&lock, &CUSTOMER, ids, "2026-11-20T19:30:00Z").unwrap();
        for name in names {
            import.add(NewRecord { id: None, values: customer(name) }).unwrap();
        }
        import.finish().unwrap();
    }

    fn problems(&self) -> Vec<String> {
        check::check(&self.data()).unwrap().into_iter().flat_map(|finding| finding.problems).collect()
    }

    /// Asserts that no temporary folder is left.
    fn assert_tidy(&self) {
        let mut names: Vec<String> = Vec::new();
        for folder in [self.data(), self.dir()].iter().filter(|folder| folder.exists()) {
            let entries = fs::read_dir(folder).unwrap();
            names.extend(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
        }
        assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
    }
}

fn rows(data: &Path, id: i64) -> Vec<(&'static str, Record)> {
    let mut all = Vec::new();
    let file = TenantFile::open(data, id).unwrap();
    let read: Result<(), DatabaseError> = file.read(|reading| {
        for resource in ALL {
            reading.each(resource, |record| {
                all.push((resource.plural, record.clone()));
                Ok::<(), DatabaseError>(())
            })?;
        }
        Ok(())
    });
    read.unwrap();
    all
}

fn customer(name: &str) -> Vec<Value> {
    let fields = CUSTOMER.fields.iter();
    fields
        .map(|field| if field.name == "name" { Value::Text(name.to_owned()) } else { field.default_value() })
        .collect()
}

fn employee(email: &str) -> Vec<Value> {
    let value = |field: &crate::model::Field| match field.name {
        "customer_id" => Value::Integer(1),
        "email" => Value::Text(email.to_owned()),
        _ => field.default_value(),
    };
    EMPLOYEE.fields.iter().map(value).collect()
}

#[test]
fn a_backup_is_private_and_complete_and_matches_its_manifest() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.tenant("two");
    fixture.add(1, &["Eins", "Zwei"]);
    let registry = fixture.registry();
    let tenant = registry.tenant(1).unwrap().unwrap();
    registry.create_session(&tenant, &[7; 32], fixture.clock.now()).unwrap();
    let made = fixture.backup(None);
    assert_eq!(made.folder.file_name().unwrap(), "2026-11-20T19-30-01Z");
    assert_eq!(Manifest::read(&made.folder).unwrap(), made.manifest);
    assert_eq!(made.manifest.tenants[0].records["customers"], 2);
    let paths: Vec<&str> = made.manifest.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["registry.db", "tenants/1.db", "tenants/2.db"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&made.folder), 0o700);
    for file in &made.manifest.files {
        let path = made.folder.join(&file.path);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::metadata(&path).unwrap().len(), file.bytes);
        assert!(!path.with_extension("db-wal").exists());
    }
    let copy = connection::open_raw(&made.folder.join("registry.db")).unwrap();
    assert_eq!(copy.query_row("SELECT count(*) FROM sessions", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    fixture.assert_tidy();
}

#[test]
fn a_backup_of_one_tenant_holds_nothing_of_the_others() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.tenant("two");
    let (_, key) = fixture
        .registry()
        .create_key(1, NewKey::new("secret of one", Scopes::every()), Actor::Panel, fixture.clock.now())
        .unwrap();
    let made = fixture.backup(Some("two"));
    assert_eq!(made.manifest.kind, BackupKind::Tenant);
    assert_eq!(made.manifest.tenants.len(), 1);
    let bytes = fs::read(made.folder.join("registry.db")).unwrap();
    let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(!has(b"secret of one") && !has(&secret::hash(&key)));
}

#[test]
fn older_backups_of_the_same_kind_are_removed() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.tenant("two");
    let old = [fixture.backup(None), fixture.backup(Some("one")), fixture.backup(None), fixture.backup(Some("two"))];
    let registry = fixture.registry();
    let made = backup::create(&registry, &fixture.dir(), None, Some(2), fixture.clock.now()).unwrap();
    assert_eq!(made.removed, [old[0].folder.clone()]);
    assert!(old[1..].iter().all(|made| made.folder.exists()));
    // A backup of the same second, and one after the clock was set back.
    let made = backup::create(&registry, &fixture.dir(), None, Some(1), fixture.clock.now()).unwrap();
    assert_eq!(made.removed.len(), 2);
    let past = Clock::manual("2020-01-01T00:00:00Z".parse().unwrap());
    let made = backup::create(&registry, &fixture.dir(), None, Some(1), past.now()).unwrap();
    assert!(made.folder.exists());
    fixture.assert_tidy();
    // A backup that fails or lacks a tenant removes nothing.
    fs::write(fixture.data().join("tenants/1.db"), "not a database, but long enough for a header of SQLite").unwrap();
    let one = registry.find_tenant("one").unwrap();
    let failed = backup::create(&registry, &fixture.dir(), one.as_ref(), Some(1), fixture.clock.now());
    assert!(matches!(failed, Err(BackupError::Tenant { .. })), "{failed:?}");
    let partial = backup::create(&registry, &fixture.dir(), None, Some(1), fixture.clock.now()).unwrap();
    assert_eq!((partial.manifest.left_out.len(), partial.removed.len()), (1, 0));
    assert!(made.folder.exists());
    fixture.assert_tidy();
}

#[test]
fn everything_is_restored_into_an_empty_folder() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.tenant("gone");
    fixture.tenant("two");
    fixture.registry().delete_tenant("gone").unwrap();
    fixture.registry().suspend("two").unwrap();
    let (_, key) = fixture
        .registry()
        .create_key(3, NewKey::new("a key", Scopes::every()), Actor::Panel, fixture.clock.now())
        .unwrap();
    fixture.add(1, &["Eins", "Zwei"]);
    fixture.add(3, &["Drei"]);
    let before = (fixture.rows(1), fixture.rows(3));
    fixture.backup(None);
    fs::remove_dir_all(fixture.data()).unwrap();
    let restored = fixture.restore(None, false).unwrap();
    assert_eq!(restored.tenants.iter().map(|t| (t.id, t.existed)).collect::<Vec<_>>(), [(1, false), (3, false)]);
    assert_eq!((fixture.rows(1), fixture.rows(3)), before);
    let registry = fixture.registry();
    let principal = registry.find_principal(&secret::hash(&key)).unwrap().unwrap();
    assert_eq!((principal.tenant_id, principal.suspended), (3, true));
    assert_eq!(fixture.tenant("four").id, 4);
    assert_eq!(fixture.problems(), Vec::<String>::new());
    fixture.assert_tidy();
}

#[test]
fn an_existing_tenant_is_replaced_only_by_force_and_keeps_its_keys_and_counters() {
    let fixture = Fixture::new();
    let one = fixture.tenant("one");
    fixture.add(1, &["Eins", "Zwei"]);
    let before = fixture.rows(1);
    let registry = fixture.registry();
    let (revoked, _) = registry
        .create_key(1, NewKey::new("revoked later", Scopes::every()), Actor::Panel, fixture.clock.now())
        .unwrap();
    fixture.backup(Some("one"));
    registry.revoke_key(one.id, revoked.id, Actor::Panel, fixture.clock.now()).unwrap();
    registry.set_password(one.id, "$new", Actor::Panel, fixture.clock.now()).unwrap();
    fixture.add(1, &["Drei", "Vier"]);
    let changed = fixture.rows(1);
    let refused = fixture.restore(Some("one"), false).unwrap_err();
    assert_eq!(refused.to_string(), "the tenant one would be overwritten; say --force if that is meant");
    assert_eq!(fixture.rows(1), changed);
    fixture.restore(Some("one"), true).unwrap();
    assert_eq!(fixture.rows(1), before);
    assert_eq!(registry.list_keys(1).unwrap()[0].state(fixture.clock.now()), KeyState::Revoked);
    assert_eq!(registry.tenant(1).unwrap().unwrap().password_hash, "$new");
    fixture.add(1, &["Fünf"]);
    assert_eq!(fixture.rows(1).last().unwrap().1.id, 5);
    assert_eq!(fixture.problems(), Vec::<String>::new());
    fixture.assert_tidy();
}

#[test]
fn a_deleted_tenant_is_restored_with_its_keys_next_to_the_others() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.tenant("two");
    fixture.add(2, &["Zwei"]);
    let registry = fixture.registry();
    let (_, key) =
        registry.create_key(2, NewKey::new("a key", Scopes::read_only()), Actor::Panel, fixture.clock.now()).unwrap();
    let before = fixture.rows(2);
    fixture.backup(None);
    registry.delete_tenant("two").unwrap();
    let restored = fixture.restore(Some("two"), false).unwrap();
    assert_eq!((restored.tenants.len(), restored.tenants[0].id), (1, 3), "its id is not used again");
    assert_eq!(fixture.rows(3), before);
    assert_eq!(registry.find_principal(&secret::hash(&key)).unwrap().unwrap().tenant_id, 3);
    assert_eq!(
        (registry.list_keys(3).unwrap()[0].id, registry.key_events(3, 10).unwrap()[0].key.as_ref().unwrap().id),
        (2, 2)
    );
    // Files exist for the next id and for the previous one. Neither is touched.
    registry.delete_tenant("two").unwrap();
    for id in [2, 4] {
        fs::write(fixture.data().join(format!("tenants/{id}.db")), "a file of another").unwrap();
    }
    let restored = fixture.restore(Some("two"), false).unwrap();
    assert_eq!(restored.tenants[0].id, 5);
    assert_eq!(fixture.rows(5), before);
    assert_eq!(registry.find_principal(&secret::hash(&key)).unwrap().unwrap().tenant_id, 5);
    assert_eq!(fs::read(fixture.data().join("tenants/2.db")).unwrap(), b"a file of another");
}

/// The ids of a tenant's keys, and of the keys in its events.
fn key_ids(registry: &Registry, tenant: i64) -> (Vec<i64>, Vec<i64>) {
    let mut keys: Vec<i64> = registry.list_keys(tenant).unwrap().iter().map(|key| key.id).collect();
    let mut events: Vec<i64> =
        registry.key_events(tenant, 10).unwrap().iter().filter_map(|event| Some(event.key.as_ref()?.id)).collect();
    keys.sort_unstable();
    events.sort_unstable();
    (keys, events)
}

#[test]
fn a_backup_from_elsewhere_does_not_use_deleted_ids_again() {
    let key = |fixture: &Fixture, tenant: i64| {
        fixture
            .registry()
            .create_key(tenant, NewKey::new("a key", Scopes::every()), Actor::Panel, fixture.clock.now())
            .unwrap()
            .0
            .id
    };
    for tenant in [None, Some("other")] {
        let elsewhere = Fixture::new();
        for (name, id) in [("first", 1), ("other", 2)] {
            elsewhere.tenant(name);
            elsewhere.add(id, &[name]);
        }
        let keys: Vec<i64> = (0..4).map(|_| key(&elsewhere, 2)).collect();
        elsewhere.backup(None);
        let here = Fixture::new();
        let registry = here.registry();
        for name in ["one", "two", "three"] {
            here.tenant(name);
        }
        let deleted: Vec<i64> = (0..2).map(|_| key(&here, 2)).collect();
        assert_eq!((keys, deleted), (vec![1, 2, 3, 4], vec![1, 2]));
        for name in ["one", "two", "three"] {
            registry.delete_tenant(name).unwrap();
        }
        let wanted = Restore { data_dir: &here.data(), source: &elsewhere.dir(), tenant, new_name: None, force: true };
        let restored = restore(&wanted).unwrap();
        let ids: Vec<(&str, i64)> = restored.tenants.iter().map(|tenant| (tenant.name.as_str(), tenant.id)).collect();
        let other = if tenant.is_none() { 5 } else { 4 };
        assert_eq!(ids.last(), Some(&("other", other)));
        assert!(ids.iter().all(|(_, id)| *id > 3), "{ids:?}");
        assert_eq!(key_ids(&registry, other), (vec![3, 4, 5, 6], vec![3, 4, 5, 6]));
        assert_eq!(here.rows(other), elsewhere.rows(2));
        assert_eq!((here.tenant("next").id, key(&here, other)), (other + 1, 7));
        assert_eq!(here.problems(), Vec::<String>::new());
        here.assert_tidy();
    }
}

#[test]
fn a_renamed_tenant_is_restored_by_its_id_or_under_its_new_name() {
    let fixture = Fixture::new();
    fixture.tenant("old");
    fixture.tenant("two");
    fixture.add(1, &["Eins"]);
    let before = fixture.rows(1);
    fixture.backup(None);
    fixture.registry().rename_tenant("old", "new").unwrap();
    fixture.clock.advance(Duration::from_secs(1));
    // Another tenant has the old name by now.
    fixture.tenant("old");
    fixture.add(1, &["Zwei"]);
    let refused = fixture.restore(None, false).unwrap_err().to_string();
    assert!(refused.starts_with("the tenant new, the tenant two would be overwritten"), "{refused}");
    let restored = fixture.restore(None, true).unwrap();
    let found: Vec<_> = restored.tenants.iter().map(|tenant| (tenant.id, tenant.name.as_str())).collect();
    assert_eq!(found, [(1, "new"), (2, "two")]);
    assert_eq!((fixture.rows(1), fixture.rows(3)), (before.clone(), Vec::new()));

    let as_new = |name, force| {
        let (data_dir, source) = (fixture.data(), fixture.dir());
        restore(&Restore { data_dir: &data_dir, source: &source, tenant: Some("old"), new_name: Some(name), force })
    };
    fixture.add(1, &["Drei"]);
    let refused = as_new("new", false).unwrap_err().to_string();
    assert_eq!(refused, "the tenant new would be overwritten; say --force if that is meant");
    assert_eq!(as_new("new", true).unwrap().tenants[0].id, 1);
    assert_eq!(fixture.rows(1), before);
    let copy = as_new("copy", false).unwrap();
    assert_eq!((copy.tenants[0].id, copy.tenants[0].name.as_str(), copy.tenants[0].existed), (4, "copy", false));
    assert_eq!(fixture.rows(4), before);
    assert_eq!(fixture.problems(), Vec::<String>::new());
    fixture.assert_tidy();
}

#[test]
fn two_saved_tenants_that_would_become_one_are_refused() {
    let fixture = Fixture::new();
    for name in ["one", "two"] {
        fixture.tenant(name);
    }
    fixture.backup(None);
    fixture.registry().delete_tenant("two").unwrap();
    fixture.registry().rename_tenant("one", "two").unwrap();
    let refused = fixture.restore(None, true).unwrap_err().to_string();
    assert!(refused.contains("one and two would both become the tenant two"), "{refused}");
}

#[test]
fn a_backup_from_elsewhere_goes_by_names() {
    let (here, elsewhere) = (Fixture::new(), Fixture::new());
    elsewhere.tenant("other");
    elsewhere.add(1, &["Other"]);
    elsewhere.backup(None);
    here.clock.advance(Duration::from_secs(1));
    here.tenant("acme");
    here.add(1, &["Acme"]);
    let before = here.rows(1);
    let wanted =
        Restore { data_dir: &here.data(), source: &elsewhere.dir(), tenant: None, new_name: None, force: true };
    let restored = restore(&wanted).unwrap();
    assert_eq!((restored.tenants[0].id, restored.tenants[0].existed), (2, false));
    assert_eq!(here.rows(1), before);
}

#[test]
fn a_restored_key_keeps_its_end_and_its_limit() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    let new = NewKey {
        expires_at: Expiry::at_end_of("2027-01-31"),
        rate_limit: std::num::NonZeroU32::new(7),
        ..NewKey::new("a key", Scopes::every())
    };
    let registry = fixture.registry();
    let (row, key) = registry.create_key(1, new, Actor::Panel, fixture.clock.now()).unwrap();
    fixture.backup(Some("one"));
    registry.delete_tenant("one").unwrap();
    let id = fixture.restore(Some("one"), false).unwrap().tenants[0].id;
    let restored = registry.list_keys(id).unwrap().remove(0);
    assert_eq!((restored.expires_at, restored.rate_limit), (row.expires_at, row.rate_limit));
    let principal = registry.find_principal(&secret::hash(&key)).unwrap().unwrap();
    assert_eq!((principal.expires_at, principal.rate_limit), (row.expires_at, row.rate_limit));
}

#[test]
fn id_counters_of_a_replaced_registry_are_taken_over() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.backup(None);
    for name in ["two", "three"] {
        fixture.tenant(name);
        fixture.registry().delete_tenant(name).unwrap();
    }
    for _ in 0..5 {
        fixture
            .registry()
            .create_key(1, NewKey::new("a key", Scopes::every()), Actor::Panel, fixture.clock.now())
            .unwrap();
    }
    // Without a schema version it counts as damaged. Its tables can be read.
    let registry = connection::open_raw(&fixture.data().join("registry.db")).unwrap();
    registry.pragma_update(None, "user_version", 0).unwrap();
    drop(registry);
    assert_eq!(fixture.restore(None, true).unwrap().tenants[0].id, 1);
    let (next, registry) = (fixture.tenant("next"), fixture.registry());
    let (key, _) =
        registry.create_key(1, NewKey::new("a key", Scopes::every()), Actor::Panel, fixture.clock.now()).unwrap();
    assert_eq!((next.id, key.id), (4, 6));
    fixture.assert_tidy();
}

#[test]
fn a_registry_with_damage_that_opening_does_not_find_is_replaced() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.backup(None);
    let registry = fs::OpenOptions::new().write(true).open(fixture.data().join("registry.db")).unwrap();
    registry.write_all_at(&[0xaa; 16], 2 * 4096).unwrap();
    assert!(!fixture.problems().is_empty());
    fixture.restore(None, true).unwrap();
    assert_eq!(fixture.problems(), Vec::<String>::new());
    fixture.assert_tidy();
}

#[test]
fn missing_and_damaged_files_are_replaced() {
    let fixture = Fixture::new();
    for name in ["one", "two", "three"] {
        fixture.tenant(name);
    }
    let before: Vec<_> = (1..=3).map(|id| fixture.rows(id)).collect();
    fixture.add(3, &["Eins"]);
    let made = fixture.backup(None);
    let file = |id: i64| tenants::file(&tenants::folder(&fixture.data()), id);
    fs::remove_file(file(1)).unwrap();
    fs::write(file(1).with_extension("db-wal"), "an old log").unwrap();
    fs::write(file(2), "not a database, but long enough to have a header of SQLite's, were it one").unwrap();
    let three = fs::OpenOptions::new().write(true).open(file(3)).unwrap();
    three.write_all_at(&[0xaa; 4096], 3 * 4096).unwrap();
    assert_eq!(fixture.restore(None, true).unwrap().tenants.len(), 3);
    assert_eq!((fixture.rows(1), fixture.rows(2)), (before[0].clone(), before[1].clone()));
    assert_eq!(fixture.rows(3).len(), 1);
    assert_eq!(fixture.problems(), Vec::<String>::new());

    // The registry is damaged, too.
    fs::write(fixture.data().join("registry.db"), "not a database either, and long enough for a header, surely")
        .unwrap();
    assert!(fixture.restore(None, false).is_err());
    assert!(fixture.restore(Some("one"), true).is_err());
    let refused = restore(&Restore {
        data_dir: &fixture.data(),
        source: &made.folder,
        tenant: None,
        new_name: None,
        force: true,
    });
    assert_eq!(refused.unwrap().tenants.len(), 3);
    assert_eq!(fixture.problems(), Vec::<String>::new());
    fixture.assert_tidy();
}

#[test]
fn a_backup_is_verified_before_anything_changes() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.add(1, &["Eins"]);
    let made = fixture.backup(None);
    fixture.add(1, &["Zwei"]);
    let before = fixture.rows(1);
    let saved = made.folder.join("tenants/1.db");
    let intact = fs::read(&saved).unwrap();
    let expect = |what: &str| {
        let error = fixture.restore(None, true).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert_eq!(fixture.rows(1), before);
        fixture.assert_tidy();
    };
    let mut damaged = intact.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&saved, &damaged).unwrap();
    expect("SHA-256");
    fs::write(&saved, &intact[..4096]).unwrap();
    expect("4096 bytes");
    fs::remove_file(&saved).unwrap();
    expect("cannot be read");
    fs::write(&saved, &intact).unwrap();
    let manifest = fs::read_to_string(made.folder.join("manifest.json")).unwrap();
    let present = format!("\"schema\": {}", registry::SCHEMA.version);
    fs::write(made.folder.join("manifest.json"), manifest.replace(&present, "\"schema\": 9")).unwrap();
    expect("newer version");
    fs::write(made.folder.join("manifest.json"), manifest.replace("\"format\": 1", "\"format\": 2")).unwrap();
    expect("newer version");
    fs::write(made.folder.join("manifest.json"), "{").unwrap();
    expect("manifest.json");
    fs::write(made.folder.join("manifest.json"), manifest).unwrap();
    assert!(fixture.restore(Some("two"), true).unwrap_err().to_string().contains("no backup of the tenant two"));
    fixture.restore(None, true).unwrap();
    assert_eq!(fixture.rows(1).len(), 1);
}

/// Adds an employee of a missing customer to the backup of tenant 1, and updates the manifest.
fn break_a_reference(folder: &Path) {
    let saved = folder.join("tenants/1.db");
    let connection = connection::open_raw(&saved).unwrap();
    connection
        .execute_batch(
            "PRAGMA foreign_keys = OFF;
             INSERT INTO employees (customer_id, email, is_active, created_at, updated_at, search)
             VALUES (7, 'a@b.example', 1, '', '', '')",
        )
        .unwrap();
    drop(connection);
    let mut manifest = Manifest::read(folder).unwrap();
    let file = manifest.files.iter_mut().find(|file| file.path == "tenants/1.db").unwrap();
    *file = manifest::describe(folder, &file.path, file.schema).unwrap();
    fs::write(folder.join(manifest::NAME), serde_json::to_vec(&manifest).unwrap()).unwrap();
}

#[test]
fn a_backup_with_a_broken_reference_changes_nothing() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.add(1, &["Eins"]);
    let made = fixture.backup(None);
    break_a_reference(&made.folder);
    fixture.add(1, &["Zwei"]);
    let before = fixture.rows(1);
    for tenant in [None, Some("one")] {
        let error = fixture.restore(tenant, true).unwrap_err().to_string();
        assert!(error.ends_with("employees 1 refers to a row of customers that does not exist"), "{error}");
        assert_eq!(fixture.rows(1), before);
    }
    fixture.registry().delete_tenant("one").unwrap();
    assert!(matches!(fixture.restore(Some("one"), false), Err(RestoreError::Damaged { .. })));
    assert_eq!(fixture.registry().find_tenant("one").unwrap(), None);
    fixture.assert_tidy();
}

#[test]
fn litestreams_tables_are_kept() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.add(1, &["Eins"]);
    let live = || connection::open_raw(&fixture.data().join("tenants/1.db")).unwrap();
    live()
        .execute_batch(
            "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER);
             INSERT INTO _litestream_seq VALUES (1, 7);
             CREATE TABLE _litestream_gone (id INTEGER)",
        )
        .unwrap();
    let before = fixture.rows(1);
    fixture.backup(None);
    live()
        .execute_batch(
            "UPDATE _litestream_seq SET seq = 8; DROP TABLE _litestream_gone; CREATE TABLE _litestream_lock (id INTEGER)",
        )
        .unwrap();
    fixture.add(1, &["Zwei"]);
    fixture.restore(Some("one"), true).unwrap();
    assert_eq!(fixture.rows(1), before);
    assert_eq!(live().query_row("SELECT seq FROM _litestream_seq", [], |row| row.get::<_, i64>(0)).unwrap(), 8);
    assert!(live().table_exists(None, "_litestream_lock").unwrap());
    assert!(!live().table_exists(None, "_litestream_gone").unwrap());
    assert_eq!(fixture.problems(), Vec::<String>::new());
}

/// Moves a column to the end of its table. `ALTER TABLE … ADD COLUMN` appends it there when a file is upgraded.
fn move_column_to_the_end(file: &Path) {
    connection::open_raw(file)
        .unwrap()
        .execute_batch("ALTER TABLE customers DROP COLUMN notes; ALTER TABLE customers ADD COLUMN notes TEXT")
        .unwrap();
}

#[test]
fn upgraded_and_new_files_replace_each_other() {
    for is_backup_upgraded in [true, false] {
        let fixture = Fixture::new();
        fixture.tenant("one");
        let file = live_file(&fixture.data(), 1);
        if is_backup_upgraded {
            move_column_to_the_end(&file);
        }
        fixture.add(1, &["Eins"]);
        let before = fixture.rows(1);
        fixture.backup(None);
        connection::remove_database(&file);
        drop(schema::create(&file, &tenants::SCHEMA).unwrap());
        if !is_backup_upgraded {
            move_column_to_the_end(&file);
        }
        fixture.add(1, &["Zwei", "Drei"]);
        fixture.restore(Some("one"), true).unwrap();
        assert_eq!(fixture.rows(1), before);
        fixture.add(1, &["Vier"]);
        assert_eq!(fixture.rows(1).last().unwrap().1.id, 3);
        assert_eq!(fixture.problems(), Vec::<String>::new());
    }
}

#[test]
fn files_of_an_older_schema_are_migrated_in_the_staging_directory() {
    let next = upgrade_tests::after(&["ALTER TABLE customers ADD COLUMN fax TEXT"], String::new());
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.add(1, &["Eins"]);
    let backup = fixture.backup(None);
    let staging = StagingDir::create(&fixture.data()).unwrap();
    let file = backup.manifest.file("tenants/1.db").unwrap().clone();
    staging.fill(&backup.folder, &[(file, next)]).unwrap();
    let staged = connection::open_raw(&staging.tenant(1)).unwrap();
    assert_eq!(schema::version(&staged).unwrap(), next.version);
    assert!(staged.column_exists(None, "customers", "fax").unwrap());
    drop((staged, staging));
    fixture.assert_tidy();
}

#[test]
fn one_tenant_but_not_all_can_be_restored_while_a_server_runs() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.backup(None);
    let lock = DataDirLock::acquire(&fixture.data()).unwrap();
    assert!(matches!(fixture.restore(None, true), Err(RestoreError::InUse(_))));
    assert!(fixture.restore(Some("one"), true).is_ok());
    drop(lock);
    assert!(fixture.restore(None, true).is_ok());
}

#[test]
fn a_failure_in_the_middle_is_undone() {
    let fixture = Fixture::new();
    for name in ["one", "two", "three"] {
        fixture.tenant(name);
    }
    fixture.backup(None);
    fixture.add(1, &["Eins"]);
    fs::write(fixture.data().join("tenants/2.db"), "not a database, but long enough to have a header of SQLite's")
        .unwrap();
    let rows = fixture.rows(1);
    // The last file is a folder that is not empty. It can neither be opened nor replaced.
    fs::remove_file(fixture.data().join("tenants/3.db")).unwrap();
    fs::create_dir_all(fixture.data().join("tenants/3.db/x")).unwrap();
    let error = fixture.restore(None, true).unwrap_err();
    assert!(matches!(error, RestoreError::Undone { .. }), "{error}");
    assert_eq!(fixture.rows(1), rows);
    assert!(fs::read(fixture.data().join("tenants/2.db")).unwrap().starts_with(b"not a database"));
    fixture.assert_tidy();
}

fn origin() -> Origin {
    let key = KeyLabel { id: 1, name: "test".to_owned(), prefix: "tdk_test".to_owned() };
    Origin::new(Clock::system().now(), key, Uuid::nil())
}

/// Adds one record and returns its id.
fn add(tenant: &Tenant, is_employee: bool, name: &str) -> i64 {
    let (resource, values) = if is_employee { (&EMPLOYEE, employee(name)) } else { (&CUSTOMER, customer(name)) };
    let insert = move |writing: &Writing<'_>| -> Result<i64, MutationError<()>> {
        Ok(writing.insert(resource, values, &origin())?.id)
    };
    let (done, outcome) = mpsc::channel();
    tenant.mutate(insert, move |id| done.send(id).unwrap());
    outcome.recv().unwrap().unwrap().unwrap()
}

/// Writers and readers run during the restore. Readers see only consistent states, no id is used twice, and in the end the file
/// holds exactly the records of the backup and those that were added after the restore.
#[test]
fn a_tenant_is_restored_under_load() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.tenant("two");
    fixture.add(1, &["First"]);
    let tenants = Tenants::new(&fixture.data(), TenantLimits::default(), crate::metrics::Metrics::new(|_| "").into());
    let tenant = tenants.open(1).unwrap();
    for n in 0..300 {
        add(&tenant, n % 3 == 0, &format!("before-{n}@shop.example"));
    }
    let stop = AtomicBool::new(false);
    let (saved, given) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (tenants, stop) = (&tenants, &stop);
                scope.spawn(move || {
                    let mut given = Vec::new();
                    for n in 0.. {
                        let name = format!("w{writer}-{n}@shop.example");
                        let id = add(&tenants.open(1).unwrap(), writer % 2 == 0, &name);
                        given.push((writer % 2 == 0, id, name));
                        if stop.load(Ordering::SeqCst) {
                            break;
                        }
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    given
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let found = tenants.open(1).unwrap().read(|reading| {
                    assert!(reading.record(&CUSTOMER, 1)?.is_some());
                    Ok(())
                });
                found.unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        let made = fixture.backup(None);
        std::thread::sleep(Duration::from_millis(200));
        for _ in 0..3 {
            fixture.restore(Some("one"), true).unwrap();
            std::thread::sleep(Duration::from_millis(150));
        }
        stop.store(true, Ordering::SeqCst);
        reader.join().unwrap();
        let given: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        (made.folder, given)
    });
    // No id was used twice before, between and after the restores.
    let mut ids: Vec<(bool, i64)> = given.iter().map(|(employee, id, _)| (*employee, *id)).collect();
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count);

    let live: BTreeMap<(&str, i64), Record> =
        fixture.rows(1).into_iter().map(|(table, r)| ((table, r.id), r)).collect();
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("tenants")).unwrap();
    fs::copy(saved.join("tenants/1.db"), copy.path().join("tenants/1.db")).unwrap();
    let in_backup = rows(copy.path(), 1);
    assert!(in_backup.len() > 301, "the backup was made under load");
    for (table, record) in &in_backup {
        assert_eq!(live.get(&(*table, record.id)), Some(record));
    }
    let acknowledged: BTreeMap<(&str, i64), &str> = given
        .iter()
        .map(|(employee, id, name)| ((if *employee { "employees" } else { "customers" }, *id), name.as_str()))
        .collect();
    let saved: std::collections::BTreeSet<_> = in_backup.iter().map(|(table, record)| (*table, record.id)).collect();
    let since: Vec<_> = live.iter().filter(|(key, _)| !saved.contains(*key)).collect();
    assert!(!since.is_empty() && since.len() < given.len(), "{} of {}", since.len(), given.len());
    for (key, record) in since {
        let name = acknowledged.get(key).unwrap();
        assert!(record.values.contains(&Value::Text((*name).to_owned())), "{record:?}");
    }
    drop((tenant, tenants));
    assert_eq!(fixture.problems(), Vec::<String>::new());
    fixture.assert_tidy();
}

#[test]
fn the_journal_goes_on_from_the_higher_number_and_under_a_new_lineage() {
    let fixture = Fixture::new();
    fixture.tenant("one");
    fixture.add(1, &["Eins"]);
    fixture.backup(None);
    let journal = || -> (Vec<u8>, i64, i64) {
        let file = connection::open_raw(&fixture.data().join("tenants/1.db")).unwrap();
        let sql = "SELECT lineage, base, last_seq FROM journal";
        file.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
    };
    let far = journal().2 + (1 << 50);
    let live = connection::open_raw(&fixture.data().join("tenants/1.db")).unwrap();
    live.execute("UPDATE journal SET last_seq = ?", [far]).unwrap();
    drop(live);
    let mut lineages = vec![journal().0];
    for _ in 0..3 {
        let before = journal().2;
        fixture.restore(Some("one"), true).unwrap();
        let (lineage, base, last) = journal();
        assert!(base > before && last == base, "{before} {base} {last}");
        assert!(!lineages.contains(&lineage));
        lineages.push(lineage);
        fixture.add(1, &["Zwei"]);
        assert!(fixture.rows(1).last().unwrap().1.version > base);
    }
    assert_eq!(fixture.problems(), Vec::<String>::new());
}
