//! The registry and the tenants' files in the copy may be of different times.

use std::fs;
use std::path::Path;
use std::process::Command;

use tenantdesk::clock::{Clock, Timestamp};

use crate::machines::{Copy, Machine, equipped, example, litestream, replace, take_over};
use crate::support::{ALL, DataDir, until};

fn copy_directory(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

#[test]
fn a_file_without_a_row_and_a_row_without_a_file_affect_no_other_tenant() {
    if !equipped() {
        return;
    }
    let copy = Copy::to_directory();
    let first = Machine::first(DataDir::new(false));
    let here = &first.data_dir;
    let (intact, fileless) = (here.tenant("intact"), here.tenant("fileless"));
    let (intact_key, fileless_key) = (intact.key(ALL).key, fileless.key(ALL).key);
    here.with_key(&intact_key).customer("Kept");
    let mut copying = copy.begin(here);
    copy.await_customers("intact", 1);

    // The copy of the registry ends here. A tenant that is created later has a file but no row, and
    // a later key is missing.
    let registry = copy.directory().join("registry.db");
    let old = copy.directory().join("registry.db.old");
    copy_directory(&registry, &old);
    let late_key = intact.key(ALL).key;
    let rowless = here.tenant("rowless");
    rowless.with_scopes(ALL).customer("Nobody's");
    copy.await_customers("rowless", 1);
    copying.kill();
    fs::remove_dir_all(&registry).unwrap();
    fs::rename(&old, &registry).unwrap();
    fs::remove_dir_all(copy.directory().join(format!("tenants/{}.db", fileless.id))).unwrap();

    let second = Machine::second(&copy);
    let there = &second.data_dir;
    assert_eq!(there.with_key(&intact_key).total("/customers.php"), 1);
    there.with_key(&late_key).get("/customers.php").fails_with(401, "invalid_api_key");
    there.with_key(&fileless_key).get("/customers.php").fails_with(503, "tenant_unavailable");
    there.anonymous().get("/readyz").is(200);

    let checked = there.cli(&["--json", "check"]).ends_with(1).json();
    let problem = |id: i64| {
        let file = format!("tenants/{id}.db");
        let finding =
            checked.as_array().unwrap().iter().find(|finding| finding["database"] == file.as_str());
        finding.unwrap()["problems"].to_string()
    };
    assert_eq!(problem(intact.id), "[]");
    assert!(problem(fileless.id).contains("does not exist"), "{checked}");
    assert!(problem(rowless.id).contains("no tenant in the registry has this file"), "{checked}");
    // The file is not changed, and the next tenant does not get its id.
    let file = there.data().join(format!("tenants/{}.db", rowless.id));
    let content = fs::read(&file).unwrap();
    let next = there.tenant("next");
    next.with_scopes(ALL).customer("Its own");
    assert_ne!(next.id, rowless.id);
    assert_eq!(fs::read(&file).unwrap(), content);
}

#[test]
fn existing_data_is_not_overwritten() {
    if !equipped() {
        return;
    }
    let copy = Copy::to_directory();
    let first = Machine::first(DataDir::new(false));
    first.data_dir.tenant("acme");
    let _copying = copy.begin(&first.data_dir);
    copy.await_customers("acme", 0);
    let output = take_over(&first.data_dir, &copy).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("already contains data"),
        "{output:?}"
    );
    // After an interruption the command starts again. All files are private.
    let second = DataDir::new(false);
    fs::create_dir_all(second.data().join(".take-over/tenants/half.db")).unwrap();
    let output = take_over(&second, &copy).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let open = Command::new("find")
        .arg(second.data())
        .args(["-perm", "/077", "-not", "-path", "*/data"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&open.stdout), "");
    assert!(!second.data().join(".take-over").exists());
}

/// The copy is named by its address for Litestream instead of a directory. The tenants of the
/// registry are fetched.
#[test]
fn the_copy_can_be_named_by_its_address() {
    if !equipped() {
        return;
    }
    let copy = Copy::to_directory();
    let first = Machine::first(DataDir::new(false));
    first.data_dir.tenant("acme").with_scopes(ALL).customer("First");
    first.data_dir.tenant("other");
    let _copying = copy.begin(&first.data_dir);
    copy.await_customers("acme", 1);
    let second = DataDir::new(false);
    let mut command = Command::new(example("take-over"));
    command.arg(format!("file://{}", copy.directory().display())).arg(second.data());
    command.env("TENANTDESK", env!("CARGO_BIN_EXE_tenantdesk")).env("LITESTREAM", litestream());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(second.cli_json(&["check"]).as_array().map(Vec::len), Some(3));
}

/// The lines of README.md for one tenant.
#[test]
fn one_tenant_is_brought_back_as_it_was_at_a_moment() {
    if !equipped() {
        return;
    }
    let copy = Copy::to_directory();
    let first = Machine::first(DataDir::new(false));
    let here = &first.data_dir;
    let (acme, other) =
        (here.tenant("acme").with_scopes(ALL), here.tenant("other").with_scopes(ALL));
    acme.customer("Kept");
    let _copying = copy.begin(here);
    copy.await_customers("acme", 1);
    // The time has a resolution of one second.
    let second = || Clock::system().now().unix_seconds();
    let before = second();
    let moment = until("a second is over", || (second() > before).then(second));
    acme.customer("By mistake");
    copy.await_customers("acme", 2);

    let readme = fs::read_to_string(example("README.md")).unwrap();
    let mut script =
        readme.split("```sh\n").nth(1).unwrap().split("```").next().unwrap().to_owned();
    for (old, new) in [
        ("file:///mnt/elsewhere/tenantdesk", format!("file://{}", copy.directory().display())),
        ("2026-11-21T10:00:00Z", Timestamp::from_unix(moment).to_string()),
        ("7.db", "1.db".to_owned()),
        ("/var/lib/tenantdesk", here.data().display().to_string()),
        ("tenantdesk --data", format!("{} --data", env!("CARGO_BIN_EXE_tenantdesk"))),
        ("litestream restore", format!("{} restore", litestream())),
    ] {
        script = replace(&script, old, &new);
    }
    other.customer("Meanwhile");
    let done = Command::new("sh").args(["-euc", &script]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(acme.get("/customers.php").found()["data"][0]["name"], "Kept");
    assert_eq!((acme.total("/customers.php"), other.total("/customers.php")), (1, 1));
    acme.customer("After");
    copy.await_customers("acme", 2);
}
