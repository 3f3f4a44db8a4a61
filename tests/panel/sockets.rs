//! The panel over real sockets: what the edge adds, and that sign-ins do not keep the API from answering.

use std::fs;
use std::path::Path;
use std::thread;

use super::support::{ALL, Desk, Reply, Setup, Tenant};
use super::visitor::{PASSWORD, encode};

/// A form to sign in, fetched and filled in: its body and its cookie.
fn sign_in_form(desk: &Desk, tenant: &str, password: &str) -> (String, String) {
    let page = desk.anonymous().get("/api_keys.php");
    let cookie = page.header("Set-Cookie").unwrap().split(';').next().unwrap().to_owned();
    let text = page.text();
    let token = text.split("name=\"token\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let fields = [("action", "sign-in"), ("token", token), ("tenant", tenant), ("password", password)];
    (encode(&fields), cookie)
}

fn post(desk: &Desk, (body, cookie): &(String, String)) -> Reply {
    let api = desk.anonymous();
    let call = api.call("POST", "/api_keys.php").header("Content-Type", "application/x-www-form-urlencoded");
    call.header("Cookie", cookie).body(body.as_bytes()).send()
}

/// The most memory that the server has had so far, in KiB.
fn peak_memory(desk: &Desk) -> u64 {
    let data = desk.data();
    let runs_on = |folder: &Path| {
        fs::read_to_string(folder.join("cmdline")).is_ok_and(|words| words.contains(data.to_str().unwrap()))
    };
    let mut processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let status = fs::read_to_string(processes.find(|folder| runs_on(folder)).unwrap().join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn the_panel_is_at_the_root_alone() {
    let desk = Desk::start();
    let api = desk.anonymous();
    let page = api.get("/api_keys.php").is(200);
    assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
    let head = api.head("/api_keys.php").is(200);
    assert!(head.body.is_empty() && head.header("Content-Security-Policy").is_some());
    api.get("/v1/api_keys.php").fails_with(404, "endpoint_not_found");
    assert!(api.delete("/api_keys.php").is(405).text().contains("<h1>"));
    let large = api.call("POST", "/api_keys.php").body("x".repeat(70_000)).send().is(413);
    assert_eq!(large.header("Cache-Control"), Some("no-store"));
    assert!(large.text().contains("<h1>"));
}

#[test]
fn behind_a_proxy_that_speaks_https_cookies_are_secure() {
    let desk = Desk::start();
    let api = desk.anonymous();
    let page = api.call("GET", "/api_keys.php").header("X-Forwarded-Proto", "https").send().is(200);
    let cookie = page.header("Set-Cookie").unwrap();
    assert!(cookie.starts_with("__Host-") && cookie.ends_with("; Secure"), "{cookie}");
    assert!(!api.get("/api_keys.php").header("Set-Cookie").unwrap().contains("Secure"));
}

#[test]
fn both_cookies_of_a_sign_in_arrive() {
    let desk = Desk::start();
    let Tenant { name, password, .. } = desk.tenant("acme");
    let reply = post(&desk, &sign_in_form(&desk, &name, &password)).is(303);
    let cookies: Vec<_> = reply.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")).collect();
    assert_eq!(cookies.len(), 2, "{reply}");
    assert_eq!(reply.header("Location"), Some("/api_keys.php"));
}

#[test]
fn ten_sign_ins_at_once_succeed_and_the_api_answers_meanwhile() {
    let desk = Setup::roomy().start();
    let tenant = desk.tenant("acme");
    let api = tenant.with_scopes(ALL);
    let forms: Vec<_> = (0..10).map(|_| sign_in_form(&desk, &tenant.name, &tenant.password)).collect();
    thread::scope(|scope| {
        let sign_ins: Vec<_> = forms.iter().map(|form| scope.spawn(|| post(&desk, form).is(303))).collect();
        let mut answered = 0;
        while !sign_ins.iter().all(thread::ScopedJoinHandle::is_finished) {
            api.get("/customers.php").is(200);
            answered += 1;
        }
        assert!(answered > 3, "{answered}");
    });
}

#[test]
fn a_flood_of_sign_ins_is_shed_and_costs_bounded_memory() {
    let desk = Desk::start();
    let api = desk.tenant("acme").with_scopes(ALL);
    let forms: Vec<_> = (0..48).map(|count| sign_in_form(&desk, &format!("nobody-{count}"), PASSWORD)).collect();
    let statuses: Vec<u16> = thread::scope(|scope| {
        let floods: Vec<_> = forms.iter().map(|form| scope.spawn(|| post(&desk, form).status)).collect();
        api.get("/customers.php").is(200);
        floods.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [401, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&401), "{statuses:?}");
    let peak = peak_memory(&desk);
    println!("{} of 48 were shed; the peak was {} KiB", statuses.iter().filter(|s| **s == 503).count(), peak);
    assert!(peak < 100 * 1024, "{peak} KiB");
}
