//! `examples/sync`: the command of the unit makes a tenant agree with the export.

use std::fs::read_to_string;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::server::Output;
use crate::support::{ALL, Api, TestServer, example};

/// Runs the unit's command for the tenant shop, with this export.
fn sync(server: &TestServer, export: &str) -> Output {
    let unit = read_to_string(example("sync/tenantdesk-sync@.service")).unwrap();
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let file = server.home().join("shop.csv");
    std::fs::write(&file, export).unwrap();
    let command = command
        .replace("/var/lib/tenantdesk-sync/%i.csv", file.to_str().unwrap())
        .replace("%i", "shop");
    let mut words = command.split(' ');
    assert_eq!(Path::new(words.next().unwrap()).file_name().unwrap(), "tenantdesk");
    server.cli(&["--json"].into_iter().chain(words).collect::<Vec<_>>())
}

fn counts(output: &Output) -> [Value; 3] {
    ["created", "changed", "unchanged"].map(|name| output.json()[name].clone())
}

fn employee(api: &Api, email: &str) -> Value {
    api.all(&format!("/employees.php?email={email}")).remove(0)
}

#[test]
fn the_sync_creates_changes_and_deactivates_and_leaves_the_rest_alone() {
    let server = TestServer::start();
    let api = server.with_key(&server.tenant("shop").key(ALL).key);
    let customer =
        api.create("/customers.php", json!({"name": "Müller", "customer_number": "C-1001"}));
    let known = |number: &str, email: &str| {
        let body = json!({"customer_id": customer, "employee_number": number, "email": email,
            "notes": "by hand"});
        api.create("/employees.php", body)
    };
    known("E-0001", "eva.meier@mueller.example");
    known("E-0099", "nobody.knows@mueller.example");
    let export = read_to_string(example("sync/employees.csv")).unwrap();

    assert_eq!(counts(&sync(&server, &export).done()), [3, 1, 0]);
    let eva = employee(&api, "eva.brandt@mueller.example");
    assert_eq!((&eva["first_name"], &eva["notes"]), (&json!("Eva"), &json!("by hand")));
    assert_eq!(employee(&api, "tom.becker@mueller.example")["is_active"], false);
    assert_eq!(employee(&api, "nobody.knows@mueller.example")["is_active"], true);

    let left = export.replace("Technician,true", "Technician,false");
    assert_eq!(counts(&sync(&server, &left).done()), [0, 1, 3]);
    assert_eq!(employee(&api, "jan.kowalski@mueller.example")["is_active"], false);
    let cut_off: String = left.lines().take(2).map(|line| format!("{line}\n")).collect();
    assert_eq!(counts(&sync(&server, &cut_off).done()), [0, 0, 1]);
    assert_eq!(api.total("/employees.php"), 5, "nobody is deleted");
}

#[test]
fn an_export_that_names_somebody_twice_changes_nothing() {
    let server = TestServer::start();
    let api = server.with_key(&server.tenant("shop").key(ALL).key);
    api.create("/customers.php", json!({"name": "Müller", "customer_number": "C-1001"}));
    let export = read_to_string(example("sync/employees.csv")).unwrap();
    let twice = export.clone() + export.lines().last().unwrap() + "\n";
    let refused = sync(&server, &twice).ends_with(1);
    assert!(refused.stderr.contains("line 6: employee_number: ambiguous_record"), "{refused:?}");
    assert_eq!(api.total("/employees.php"), 0);
}
