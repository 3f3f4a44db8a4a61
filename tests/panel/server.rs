//! The panel of the shipped binary: its path, its log, and that sign-ins do not block the API.

use std::thread;

use crate::NEW;
use crate::support::browser::Browser;
use crate::support::process_stats::ProcessStats;
use crate::support::{Tenant, TestServer, until};

#[test]
fn the_panel_is_at_the_root_alone() {
    let server = TestServer::start();
    let api = server.anonymous();
    for method in ["GET", "HEAD"] {
        api.call(method, "/api_keys.php").send().is(200);
    }
    api.get("/v1/api_keys.php").fails_with(404, "endpoint_not_found");
    api.delete("/api_keys.php").is(405).showing("<h1>");
}

#[test]
fn the_log_has_a_line_for_each_event_with_tenant_and_address() {
    let server = TestServer::start();
    let Tenant { name, password, .. } = server.tenant("acme");
    let mut browser = Browser::at(&server, "192.0.2.66");
    browser.sign_in(&name, "not the password").is(401);
    browser.sign_in("no\u{202e}body\n\" action=\"x\"", NEW).is(401);
    let id = browser.sign_in(&name, &password).is(303).header("X-Request-Id").unwrap().to_owned();
    let name = ("name", "Web shop");
    let created = browser.send("create", &[name, ("scope", "all"), ("expires", "1y")]).is(303);
    let key = ("key", created.header("Location").unwrap().split('=').nth(1).unwrap());
    browser.send("edit", &[key, name, ("expires", "never")]).is(303);
    browser.send("revoke", &[key]).is(303);
    browser.send("delete", &[key]).is(303);
    let unknown = format!("tdk_{}", "x".repeat(43));
    let refused = server.with_key(&unknown).get("/customers.php").is(401);
    let refused = refused.header("X-Request-Id").unwrap().to_owned();
    // Each line is complete once its request has its line in the access log.
    until("the requests are logged", || {
        let log = server.log();
        log.lines().any(|line| line.contains(&refused) && line.contains("GET")).then_some(())
    });
    let log = server.log();
    let events: Vec<String> = log
        .lines()
        .filter_map(|line| line.split_once("panel event "))
        .map(|(_, fields)| fields.split(" request_id=").next().unwrap().to_owned())
        .collect();
    let event =
        |tenant: &str, rest: &str| format!("tenant=\"{tenant}\" action=\"{rest} client=192.0.2.66");
    let key = key.1;
    let expected = [
        event("acme", "failed sign-in\""),
        event("no%E2%80%AEbody%0A\\\"%20action=\\\"x\\\"", "failed sign-in\""),
        event("acme", "signed in\""),
        event("acme", &format!("key created\" key={key}")),
        event("acme", &format!("key expiry changed\" key={key}")),
        event("acme", &format!("key revoked\" key={key}")),
        event("acme", &format!("key deleted\" key={key}")),
    ];
    assert_eq!(events, expected);
    let line = log.lines().find(|line| line.contains("panel event") && line.contains(&id)).unwrap();
    assert!(line.contains(&format!("client=192.0.2.66 request_id={id}")), "{line}");
    let access =
        |id: &str| log.lines().find(|l| l.contains(id) && l.contains(" request: ")).unwrap();
    assert!(access(&id).contains("tenant=\"acme\""), "{}", access(&id));
    let warning = format!("an unknown API key client=127.0.0.1 request_id={refused}");
    assert!(log.contains(&warning), "{log}");
    assert!(!log.contains(&unknown[4..12]));
}

/// Signs in to each of these tenants at the same time, and runs `meanwhile`. Returns the statuses.
fn sign_in_at_once(
    server: &TestServer,
    names: &[String],
    password: &str,
    meanwhile: impl FnOnce(),
) -> Vec<u16> {
    let browsers = names.iter().map(|name| (Browser::at(server, "192.0.2.66"), name));
    let browsers: Vec<_> = browsers.collect();
    thread::scope(|scope| {
        let mut sent = Vec::new();
        for (mut browser, name) in browsers {
            sent.push(scope.spawn(move || browser.sign_in(name, password).status));
        }
        meanwhile();
        sent.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn wrong_sign_ins_at_once_are_counted_as_those_in_a_row() {
    let (server, tenant) = TestServer::with_tenant();
    let names = vec![tenant.name; 8];
    let mut statuses = sign_in_at_once(&server, &names, "not the password", || ());
    statuses.sort_unstable();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429, 429, 429]);
}

#[test]
fn a_flood_of_sign_ins_is_shed_and_costs_bounded_memory() {
    let (server, api) = TestServer::with_api();
    let names: Vec<String> = (0..48).map(|count| format!("nobody-{count}")).collect();
    let statuses = sign_in_at_once(&server, &names, "not the password", || {
        api.get("/customers.php").is(200);
    });
    assert!(statuses.iter().all(|status| [401, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&401), "{statuses:?}");
    let peak = ProcessStats::of(server.pid()).peak_memory;
    assert!(peak < 100 * 1024, "{peak} KiB");
}
