//! Contract section 10: `serve`, `tenant`, `key` and `check`.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::contract::{is_timestamp, scopes};
use crate::support::server::run;
use crate::support::{ALL, DataDir, Setup, TestServer, database, tree, until};

/// A place with a data directory and no server.
fn place_with(tenants: &[&str]) -> Arc<DataDir> {
    let data_dir = DataDir::new(false);
    for tenant in tenants {
        data_dir.tenant(tenant);
    }
    data_dir
}

#[track_caller]
fn members(object: &Value, expected: &[&str]) {
    let names: Vec<&str> = object
        .as_object()
        .unwrap_or_else(|| panic!("no object: {object}"))
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(names, expected, "{object}");
}

const TENANT: [&str; 6] = ["id", "name", "state", "trial_until", "created_at", "password"];

#[test]
fn stored_text_is_printed_without_characters_that_a_terminal_obeys() {
    let server = TestServer::start();
    server.tenant("acme");
    let name = "web\u{202e}site";
    let create = ["--json", "key", "create", "acme", "--name", name, "--scope", "all"];
    let key = server.cli(&create).done().json();
    server.keep_secret(key["key"].as_str().unwrap());
    server.with_key(key["key"].as_str().unwrap()).customer("Eins");
    let id = key["id"].to_string();
    for command in [
        &["key", "list", "acme"][..],
        &["changes", "acme"],
        &["key", "limit", "acme", &id, "9"],
        &["key", "revoke", "acme", &id],
    ] {
        let output = server.cli(command).done();
        assert!(output.stdout.contains("web\\u{202e}site"), "{output:?}");
    }
    let keys = server.cli(&["key", "list", "acme", "--json"]).done().json();
    assert!(keys.as_array().unwrap().iter().any(|key| key["name"] == name), "{keys}");
}

#[test]
fn health_asks_whether_the_server_is_ready() {
    let mut server = TestServer::start();
    let address = server.address().to_string();
    for url in [address.clone(), format!("http://{address}/")] {
        assert!(server.cli(&["health", &url]).done().stdout.contains("is ready"));
    }
    let mut command = server.command();
    command.arg("health").env("TENANTDESK_LISTEN", format!("0.0.0.0:{}", server.address().port()));
    run(command, "").done();
    let report = server.cli(&["health", &address, "--json"]).done().json();
    let url = format!("http://{address}/readyz");
    assert_eq!(report, json!({"url": url, "ready": true, "reason": null}));
    server.stop();
    let output = server.cli(&["health", &address, "--json"]).fails_saying("Connection refused");
    assert_eq!(output.json()["ready"], false);
    server.cli(&["health", "https://127.0.0.1:80"]).ends_with(2);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    server.cli(&["health", &address]).fails_saying("no answer within 5 s; the server hangs");
}

#[test]
#[ignore = "needs openssl; `make proof` runs it"]
fn proof_health_says_why_a_server_is_not_ready() {
    let server = Setup::plain().over_tls().start();
    let address = server.address().to_string();
    server.cli(&["health", &address]).fails_saying("HTTPS");
}

#[test]
fn tenant_create_makes_a_tenant_and_prints_its_password() {
    let data_dir = DataDir::new(false);
    let made = data_dir.cli_json(&["tenant", "create", "acme"]);
    members(&made, &TENANT);
    assert_eq!([&made["name"], &made["state"]], ["acme", "active"]);
    assert_eq!(made["trial_until"], Value::Null);
    assert!(made["id"] == 1 && is_timestamp(made["created_at"].as_str().unwrap()));
    let password = made["password"].as_str().unwrap();
    assert!((12..=128).contains(&password.chars().count()), "{password}");
    let made = data_dir.cli_json(&["tenant", "create", "other", "--trial-until", "2999-12-31"]);
    assert_eq!((&made["id"], &made["trial_until"]), (&json!(2), &json!("2999-12-31")));
    assert_ne!(made["password"], password);
    let plain = data_dir.cli(&["tenant", "create", "third"]).done();
    assert!(plain.stdout.to_lowercase().contains("password"), "{plain:?}");
    data_dir.cli(&["tenant", "create", "acme"]).fails_saying("acme");
    assert_eq!(data_dir.cli_json(&["tenant", "list"]).as_array().unwrap().len(), 3);
}

#[test]
fn a_tenants_name_is_lower_case_letters_digits_and_hyphens() {
    let data_dir = DataDir::new(false);
    let longest = "a".repeat(63);
    for good in ["a", "0", "acme-2", &longest] {
        data_dir.cli(&["tenant", "create", good]).done();
    }
    let too_long = "a".repeat(64);
    for bad in ["", "A", "../x", "a\n", &too_long] {
        let output = data_dir.cli(&["tenant", "create", bad]);
        assert!([Some(1), Some(2)].contains(&output.code), "{bad:?}: {output:?}");
    }
    // With a hyphen in front it looks like an option.
    assert_ne!(data_dir.cli(&["tenant", "create", "--", "-a"]).code, Some(0));
    assert_eq!(data_dir.cli_json(&["tenant", "list"]).as_array().unwrap().len(), 4);
}

#[test]
fn tenant_list_shows_states_and_how_many_keys() {
    let data_dir = place_with(&["active", "suspended", "over", "both"]);
    for name in ["suspended", "both"] {
        data_dir.cli(&["tenant", "suspend", name]).done();
    }
    for name in ["over", "both"] {
        data_dir.cli(&["tenant", "trial", name, "2020-02-29"]).done();
    }
    for _ in 0..2 {
        data_dir.cli(&["key", "create", "active", "--name", "x", "--scope", "all"]).done();
    }
    data_dir.cli(&["key", "revoke", "active", "1"]).done();
    let list = data_dir.cli_json(&["tenant", "list"]);
    let mut rows = Vec::new();
    for row in list.as_array().unwrap() {
        members(row, &["id", "name", "state", "trial_until", "created_at", "keys"]);
        rows.push(["name", "state", "trial_until", "keys"].map(|name| row[name].clone()));
    }
    rows.sort_by_key(|row| row[0].to_string());
    let expected = json!([
        ["active", "active", null, 2],
        ["both", "suspended", "2020-02-29", 0],
        ["over", "trial_over", "2020-02-29", 0],
        ["suspended", "suspended", null, 0],
    ]);
    assert_eq!(json!(rows), expected);
    let plain = data_dir.cli(&["tenant", "list"]).done().stdout;
    assert!(rows.iter().all(|row| plain.contains(row[0].as_str().unwrap())), "{plain}");
}

#[test]
fn activate_lifts_a_suspension_and_ends_a_trial_for_good() {
    let data_dir = DataDir::acme();
    let state = || {
        let list = data_dir.cli_json(&["tenant", "list"]);
        (list[0]["state"].as_str().unwrap().to_owned(), list[0]["trial_until"].clone())
    };
    data_dir.cli(&["tenant", "suspend", "acme"]).done();
    data_dir.cli(&["tenant", "trial", "acme", "2020-01-01"]).done();
    assert_eq!(state(), ("suspended".to_owned(), json!("2020-01-01")));
    data_dir.cli(&["tenant", "trial", "acme", "2999-01-01"]).done();
    assert_eq!(state(), ("suspended".to_owned(), json!("2999-01-01")), "a trial lifts nothing");
    let activated = data_dir.cli(&["tenant", "activate", "acme"]).done();
    assert!(activated.stderr.contains("its trial until 2999-01-01 is removed"), "{activated:?}");
    assert_eq!(state(), ("active".to_owned(), Value::Null));
    data_dir.cli(&["tenant", "trial", "acme", "2020-01-01"]).done();
    assert_eq!(state(), ("trial_over".to_owned(), json!("2020-01-01")));
    for bad in ["2023-02-29", "soon", "", "2024-1-1"] {
        assert_ne!(data_dir.cli(&["tenant", "trial", "acme", bad]).code, Some(0), "{bad}");
    }
    assert_eq!(state(), ("trial_over".to_owned(), json!("2020-01-01")));
}

#[test]
fn commands_say_as_one_object_what_they_did() {
    let data_dir = DataDir::acme();
    data_dir.cli(&["key", "create", "acme", "--name", "x", "--scope", "all"]).done();
    let commands: [&[&str]; 6] = [
        &["tenant", "suspend", "acme"],
        &["tenant", "activate", "acme"],
        &["tenant", "trial", "acme", "2999-01-01"],
        &["key", "revoke", "acme", "1"],
        &["key", "delete", "acme", "1"],
        &["tenant", "delete", "acme", "--yes"],
    ];
    for command in commands {
        let output = data_dir.cli(&[&["--json"], command].concat()).done();
        assert!(output.json().is_object(), "{output:?}");
    }
}

#[test]
fn tenant_delete_wants_to_be_meant() {
    let data_dir = DataDir::acme();
    let refused = data_dir.cli(&["tenant", "delete", "acme"]).ends_with(2).stderr;
    let held = "tenant acme has customers 0, employees 0, hardware 0, keys 0. Once it is deleted, \
                only a backup brings it back. Add --yes to delete it";
    assert!(refused.contains(held), "{refused}");
    assert_eq!(data_dir.cli_json(&["tenant", "list"]).as_array().unwrap().len(), 1);
    data_dir.cli(&["key", "create", "acme", "--name", "x", "--scope", "all"]).done();
    data_dir.cli(&["tenant", "delete", "acme", "--yes"]).done();
    assert_eq!(data_dir.cli_json(&["tenant", "list"]), json!([]));
    assert!(tree(&data_dir.data().join("tenants")).is_empty());
    let again = data_dir.tenant("acme");
    assert_eq!(again.id, 2, "ids are never used again");
    assert_eq!(again.key(ALL).id, 2, "nor are keys'");
}

#[test]
fn tenant_password_takes_a_line_or_makes_one() {
    let data_dir = DataDir::acme();
    let made = data_dir.cli_json(&["tenant", "password", "acme", "--generate"]);
    members(&made, &["name", "password"]);
    assert!(made["password"].as_str().unwrap().chars().count() >= 12);
    let printed = data_dir.cli(&["tenant", "password", "acme", "--generate"]).done();
    assert!(!printed.stdout.trim().is_empty());
    let set = |line: &str| {
        data_dir.cli_with_input(&["--json", "tenant", "password", "acme", "--stdin"], line)
    };
    for good in ["twelve chars\n".to_owned(), "ä".repeat(12), format!("{}\r\n", "x".repeat(128))] {
        let output = set(&good).done();
        assert!(!output.stdout.contains(good.trim()), "one that was given is not printed");
    }
    for bad in ["", "\n", &"ä".repeat(11), &format!("{}\n", "x".repeat(129))] {
        set(bad).fails_saying("password");
    }
}

#[test]
fn key_create_prints_the_key_alone() {
    let data_dir = DataDir::acme();
    let create = ["key", "create", "acme", "--name", "Till", "--scope", "customers:read"];
    let output = data_dir.cli(&create).done();
    let key = output.stdout.strip_suffix('\n').unwrap();
    assert_eq!(keys_in(&output.stdout), [key], "{output:?}");
    let create = |scopes: &[&str]| {
        let mut command = vec!["key", "create", "acme", "--name", "Till"];
        command.extend(scopes.iter().flat_map(|scope| ["--scope", scope]));
        data_dir.cli_json(&command)
    };
    let made = create(&["hardware:write", "customers:read", "hardware:write"]);
    let listed = data_dir.cli_json(&["key", "list", "acme"]);
    let listed = listed[0].as_object().unwrap().keys().map(String::as_str);
    members(&made, &listed.chain(["key"]).collect::<Vec<_>>());
    assert_eq!(made["scopes"], json!(["customers:read", "hardware:write"]));
    assert_eq!((&made["id"], &made["name"]), (&json!(2), &json!("Till")));
    assert!(made["key"].as_str().unwrap().starts_with(made["prefix"].as_str().unwrap()));
    assert_eq!(create(&["all"])["scopes"], json!(scopes()));
    let mixed = ["customers:read", "customers:write", "employees:read", "hardware:read"];
    assert_eq!(create(&["read", "customers:write"])["scopes"], json!(mixed));
}

#[test]
fn a_keys_name_has_up_to_100_characters_and_needs_not_be_unique() {
    let data_dir = DataDir::acme();
    let create = |name: &str| {
        data_dir.cli(&["--json", "key", "create", "acme", "--name", name, "--scope", "read"])
    };
    let longest = "ü".repeat(100);
    for (given, kept) in
        [("x", "x"), ("x", "x"), ("  trimmed\t", "trimmed"), (&longest, &longest), ("<b>", "<b>")]
    {
        assert_eq!(create(given).done().json()["name"], kept);
    }
    let too_long = "x".repeat(101);
    for bad in ["", "  ", "a\nb", "a\u{7f}b", "a\u{85}b", &too_long] {
        let output = create(bad);
        assert!([Some(1), Some(2)].contains(&output.code), "{bad:?}: {output:?}");
    }
    for bad in [
        &["--name", "x"][..],
        &["--scope", "all"],
        &["--name", "x", "--scope", "bogus:read"],
        &["--name", "x", "--scope", ""],
    ] {
        let output = data_dir.cli(&[&["key", "create", "acme"], bad].concat());
        assert!([Some(1), Some(2)].contains(&output.code), "{output:?}");
    }
    assert_eq!(data_dir.cli_json(&["key", "list", "acme"]).as_array().unwrap().len(), 5);
}

#[test]
fn key_list_shows_a_tenants_own_keys_and_their_state() {
    let data_dir = place_with(&["acme", "other"]);
    let tenants = ["acme", "acme", "other"];
    let keys = tenants.map(|name| {
        data_dir.cli(&["key", "create", name, "--name", "x", "--scope", "read"]).done().stdout
    });
    data_dir.cli(&["key", "revoke", "acme", "2"]).done();
    data_dir.cli(&["key", "revoke", "acme", "2"]).done();
    let list = data_dir.cli_json(&["key", "list", "acme"]);
    let rows = list.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let columns: Vec<&str> =
        "id name prefix scopes created_at last_used_at state expires_at rate_limit"
            .split(' ')
            .collect();
    for row in rows {
        members(row, &columns);
        assert_eq!(row["last_used_at"], Value::Null);
        let id = usize::try_from(row["id"].as_i64().unwrap()).unwrap();
        assert_eq!(row["prefix"], keys[id - 1][..8]);
        assert_eq!(row["state"], if id == 2 { "revoked" } else { "active" });
    }
    let plain = data_dir.cli(&["key", "list", "acme"]).done().stdout;
    assert!(plain.contains(&keys[0][..8]) && !plain.contains(&keys[0][..12]), "{plain}");
    // Another tenant's key is not there, and neither is one that never was.
    for command in ["revoke", "delete"] {
        for id in ["3", "99"] {
            data_dir.cli(&["key", command, "acme", id]).fails_saying(id);
        }
    }
    assert_eq!(data_dir.cli_json(&["key", "list", "other"])[0]["state"], "active");
    data_dir.cli(&["key", "delete", "acme", "2"]).done();
    data_dir.cli(&["key", "delete", "acme", "2"]).fails_saying("2");
    let create = ["key", "create", "acme", "--name", "x", "--scope", "read"];
    assert_eq!(data_dir.cli_json(&create)["id"], 4);
}

#[test]
fn check_finds_what_is_wrong() {
    let data_dir = place_with(&["good", "garbage", "missing", "dangling"]);
    let file = |id: u8| data_dir.data().join(format!("tenants/{id}.db"));
    std::fs::write(file(2), "no database ".repeat(1_000)).unwrap();
    std::fs::remove_file(file(3)).unwrap();
    let dangling = database(&file(4));
    dangling.pragma_update(None, "foreign_keys", false).unwrap();
    let insert = "INSERT INTO employees (customer_id, email, is_active, created_at, updated_at, search, version)
                  VALUES (9, 'a@shop.example', 1, '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z', 'a@shop.example', 1)";
    dangling.execute_batch(insert).unwrap();
    drop(dangling);
    let report = data_dir.cli(&["--json", "check"]).ends_with(1).json();
    let bad: Vec<&Value> =
        report.as_array().unwrap().iter().filter(|row| row["ok"] == false).collect();
    assert_eq!((report.as_array().unwrap().len(), bad.len()), (5, 3), "{report}");
    for row in bad {
        members(row, &["database", "ok", "problems"]);
        assert!(!row["problems"].as_array().unwrap().is_empty(), "{row}");
        assert_ne!(row["database"], "tenants/1.db");
    }
    data_dir.cli(&["check"]).fails_saying("3 of 5 databases have faults");
    data_dir.cli(&["doctor"]).fails_saying("checks with a fault: 3");
}

#[test]
fn only_serve_and_tenant_create_make_a_data_directory() {
    let data_dir = DataDir::new(false);
    std::fs::write(data_dir.home().join("a.csv"), "name\nGood\n").unwrap();
    let commands: [&[&str]; 6] = [
        &["import", "acme", "customers", "a.csv"],
        &["export", "acme", "customers"],
        &["backup", "b"],
        &["tenant", "password", "acme", "--generate"],
        &["key", "create", "acme", "--name", "x", "--scope", "all"],
        &["doctor"],
    ];
    for command in commands {
        let output = data_dir.cli(command).fails_saying("no data directory");
        assert!(output.stderr.contains("TENANTDESK_DATA_DIR names another"), "{output:?}");
        assert!(!data_dir.data().exists(), "{command:?} makes none");
    }
    data_dir.cli(&["tenant", "create", "acme"]).done();
    assert!(data_dir.data().is_dir());
}

#[test]
fn a_second_server_on_the_same_data_directory_refuses() {
    let (mut server, api) = TestServer::with_api();
    let second = server.cli(&["serve", "--listen", "127.0.0.1:0"]).fails_saying("data");
    assert!(!second.stdout.contains("listening"), "{second:?}");
    api.get("/customers.php").is(200);
    // The other commands go on beside it.
    server.cli(&["check"]).done();
    server.kill();
    server.restart();
    api.get("/customers.php").is(200);
}

#[test]
fn a_port_that_is_taken_ends_serve_and_nothing_stays_made() {
    let server = TestServer::start();
    let address = server.address().to_string();
    for (data_dir, tenants) in [(DataDir::new(false), 0), (DataDir::acme(), 1)] {
        let serve = ["serve", "--listen", &address, "--create-tenant", "demo"];
        data_dir.cli(&serve).fails_saying(&server.address().port().to_string());
        let list = data_dir.cli_json(&["tenant", "list"]);
        assert_eq!(list.as_array().unwrap().len(), tenants);
    }
}

/// The keys in the output of a server.
pub(crate) fn keys_in(output: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let words = output
        .split(|c: char| !is_part(c))
        .filter(|word| word.starts_with("tdk_") && word.len() == 47);
    let mut keys: Vec<String> = words.map(str::to_owned).collect();
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn serve_can_make_tenants_and_says_their_secrets_once() {
    let mut server =
        Setup::plain().option("--create-tenant=demo").option("--create-tenant=two").start();
    let output = server.output();
    assert!(output.to_lowercase().contains("password"), "{output}");
    let keys = keys_in(&output);
    assert_eq!(keys.len(), 2, "one key of each: {output}");
    for key in &keys {
        server.keep_secret(key);
        let api = server.with_key(key);
        for path in ["/customers.php", "/employees.php", "/hardware.php"] {
            api.get(path).is(200);
            api.post(path, json!({})).is(422);
        }
    }
    let rows = server.cli_json(&["tenant", "list"]);
    assert!(rows.as_array().unwrap().iter().all(|row| row["keys"] == 1), "{rows}");
    server.restart();
    let output = server.output();
    assert!(!output.contains("tdk_") && !output.to_lowercase().contains("password"), "{output}");
    assert_eq!(server.cli_json(&["tenant", "list"]), rows);
}

#[test]
#[ignore = "needs curl; `make proof` runs it"]
fn proof_the_curl_line_that_serve_prints_works_when_pasted() {
    let server = Setup::plain().option("--create-tenant").option("demo").start();
    let output = server.output();
    let start = output.find("curl ").unwrap_or_else(|| panic!("no curl line: {output}"));
    let mut line = String::new();
    for part in output[start..].lines() {
        line.push_str(part);
        line.push('\n');
        if !part.ends_with('\\') {
            break;
        }
    }
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(&line);
    let pasted = run(shell, "").done();
    let answer: Value =
        serde_json::from_str(pasted.stdout.trim()).unwrap_or_else(|_| panic!("{pasted:?}"));
    assert!(answer.get("error").is_none(), "{answer}");
}

#[test]
fn options_can_be_environment_variables() {
    let data_dir = DataDir::acme();
    let with = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = data_dir.command();
        command.envs(variables.iter().copied()).args(arguments);
        run(command, "")
    };
    let data = data_dir.data();
    let data = ("TENANTDESK_DATA_DIR", data.to_str().unwrap());
    assert!(with(&[data], &["tenant", "list"]).done().stdout.contains("acme"));
    let list = with(&[data, ("TENANTDESK_JSON", "true")], &["tenant", "list"]).done().json();
    assert_eq!(list[0]["name"], "acme");
    let plain = with(&[data, ("TENANTDESK_JSON", "false")], &["tenant", "list"]).done();
    assert!(serde_json::from_str::<Value>(&plain.stdout).is_err(), "{plain:?}");
    for (name, value, command) in [
        ("TENANTDESK_RATE_LIMIT", "0", "serve"),
        ("TENANTDESK_LOG_FORMAT", "xml", "serve"),
        ("TENANTDESK_TRUSTED_PROXY", "10.0.0.5,proxy", "serve"),
        ("TENANTDESK_LISTEN", "nowhere", "health"),
        ("TENANTDESK_JSON", "perhaps", "check"),
    ] {
        with(&[data, (name, value)], &[command]).ends_with(2);
    }
    // An empty variable is unset.
    let names =
        ["DATA_DIR", "JSON", "LISTEN", "RATE_LIMIT", "TRUSTED_PROXY", "TLS_CERT", "TLS_KEY"];
    let names = names.map(|name| format!("TENANTDESK_{name}"));
    let empty: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(with(&empty, &["tenant", "list"]).done().stdout, plain.stdout);
    with(&empty, &["serve", "--listen", "192.0.2.1:80"]).fails_saying("192.0.2.1:80");
    with(&[("TENANTDESK_DATA_DIR", "elsewhere")], &["tenant", "list"]).ends_with(1);
}

#[test]
fn a_misspelt_variable_is_a_warning_of_serve_and_doctor() {
    let mut server = Setup::plain()
        .variable("TENANTDESK_TRUSTED_PROXIES", "10.0.0.5")
        .variable("TENANTDESK_TLS_KEY", "")
        .variable("TENANTDESK_URL", "http://desk.example")
        .start();
    server.stop();
    let log = server.log();
    assert!(log.contains("TENANTDESK_TRUSTED_PROXIES"), "{log}");
    assert!(!log.contains("TENANTDESK_TLS_KEY") && !log.contains("TENANTDESK_URL"), "{log}");
    let mut command = server.command();
    command.arg("--data-dir").arg(server.data()).arg("doctor");
    command.env("TENANTDESK_TRUSTED_PROXIES", "10.0.0.5");
    let output = run(command, "").done().stdout;
    assert!(output.contains("TENANTDESK_TRUSTED_PROXIES"), "{output}");
}

#[test]
fn serves_options_can_be_environment_variables() {
    let setup = Setup::plain()
        .variable("TENANTDESK_RATE_LIMIT", "7")
        .variable("TENANTDESK_LOG_FORMAT", "json");
    let server = setup.variable("TENANTDESK_CREATE_TENANT", "one,two").start();
    let keys = keys_in(&server.output());
    assert_eq!(keys.len(), 2, "a list has commas: {}", server.output());
    assert_eq!(server.with_key(&keys[0]).get("/customers.php").is(200).limit("Limit"), 7);
    until("the log is JSON", || {
        server.log().lines().next().map(|line| assert!(line.starts_with('{')))
    });
    // An option on the command line counts before its environment variable.
    let setup = Setup::plain().variable("TENANTDESK_RATE_LIMIT", "7").option("--rate-limit=9");
    let (_server, tenant) = setup.start_with_tenant();
    assert_eq!(tenant.with_scopes(ALL).get("/customers.php").is(200).limit("Limit"), 9);
}

/// As in `tenantdesk export … | head`.
#[test]
fn a_command_whose_output_nobody_reads_ends_with_1_in_silence() {
    let data_dir = DataDir::acme();
    for arguments in [
        &["export", "acme", "customers"][..],
        &["export", "acme", "customers", "--output", "/proc/self/fd/1"],
        &["tenant", "list"],
        &["openapi"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = data_dir.command();
        command.arg("--data-dir").arg(data_dir.data()).args(arguments);
        let output = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*stderr), (Some(1), ""), "{arguments:?}");
    }
}
