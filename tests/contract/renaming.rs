//! Contract section 14: a tenant is renamed, and restored from a backup from before.

use serde_json::json;

use crate::support::{ALL, TestServer, until};

const RECORDS: &str = "/customers.php";

#[test]
fn a_running_server_has_the_new_name_from_the_next_request_on() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
    server.tenant("other");
    let api = tenant.with_scopes(ALL);
    api.customer("Kept");
    assert_eq!(api.get("/whoami.php").found()["tenant"], "acme");
    let done = server.cli_json(&["tenant", "rename", "acme", "acme-berlin"]);
    assert_eq!(
        done,
        json!({"id": 1, "name": "acme-berlin", "state": "active", "trial_until": null,
            "created_at": done["created_at"], "done": "renamed"})
    );
    assert_eq!(api.get("/whoami.php").found()["tenant"], "acme-berlin");
    assert_eq!(api.ids(RECORDS), [1]);
    until("the log has the new name", || {
        server.log().contains("tenant=\"acme-berlin\"").then_some(())
    });
    server.cli(&["key", "list", "acme"]).fails_saying("no tenant acme");
    assert_eq!(server.cli_json(&["key", "list", "acme-berlin"]).as_array().unwrap().len(), 1);
    server.cli(&["tenant", "rename", "acme-berlin", "other"]).fails_saying("other exists already");
    server.cli(&["tenant", "rename", "acme-berlin", "acme-berlin"]).fails_saying("exists already");
    server.cli(&["tenant", "rename", "nobody", "new"]).fails_saying("no tenant nobody");
    for wrong in ["New", "a_b", "", "-a"] {
        server.cli(&["tenant", "rename", "acme-berlin", "--", wrong]).ends_with(2);
    }
    // The old name is free.
    server.tenant("acme");
    assert_eq!(api.ids(RECORDS), [1]);
}

#[test]
fn a_backup_from_before_is_restored_under_the_new_name_while_the_server_runs() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
    let key = tenant.key(ALL);
    let api = server.with_key(&key.key);
    api.customer("Eins");
    server.cli(&["backup", "backups", "acme"]).done();
    tenant.ask("rename", &["new"]);
    api.customer("Zwei");
    server
        .cli(&["restore", "backups", "acme", "--as", "new"])
        .fails_saying("the tenant new would be overwritten");
    let restored = server.cli_json(&["restore", "backups", "acme", "--as", "new", "--force"]);
    let records = json!({"customers": 1, "employees": 0, "hardware": 0});
    assert_eq!(
        restored["tenants"],
        json!([{"id": 1, "name": "new", "existed": true, "keys": 0, "records": records}])
    );
    assert_eq!(api.ids(RECORDS), [1]);
    assert_eq!(api.customer("Drei"), 3, "ids go on from the higher count");
    assert_eq!(api.get("/whoami.php").found()["tenant"], "new");

    server.cli(&["tenant", "delete", "new", "--yes"]).done();
    let restored = server.cli_json(&["restore", "backups", "acme", "--as", "newer"]);
    assert_eq!(
        restored["tenants"],
        json!([{"id": 2, "name": "newer", "existed": false, "keys": 1, "records": records}])
    );
    assert_eq!(api.get("/whoami.php").found()["tenant"], "newer", "it comes with its keys");
    let copied = server.cli(&["restore", "backups", "acme", "--as", "copy"]).done();
    assert!(copied.stdout.contains("0 keys came with it"), "newer has them: {}", copied.stdout);
    assert_eq!(api.ids(RECORDS), [1]);
    server.cli(&["restore", "backups", "--as", "new"]).ends_with(2);
    server.cli(&["restore", "backups", "acme", "--as", "New"]).ends_with(2);
    server.cli(&["restore", "backups", "new", "--as", "x"]).fails_saying("of the tenant new");
}
