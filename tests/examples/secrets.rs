//! The rules in the documents that find attackers and leaked keys match the log and the keys of the
//! server.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::browser::Browser;
use crate::support::{ALL, TestServer, until};

fn document(path: &str) -> String {
    read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The first block of code in `text` that begins with this line.
fn block(text: &str, first: &str) -> String {
    let blocks = text.split("```").skip(1).step_by(2);
    let mut code = blocks.filter_map(|block| Some(block.split_once('\n')?.1));
    code.find(|code| code.starts_with(first)).unwrap().to_owned()
}

/// Puts a file beside the server's data directory.
fn file(server: &TestServer, name: &str, text: &str) -> PathBuf {
    let path = server.home().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn fail2ban_reads_failed_sign_ins_and_unknown_keys_from_the_log() {
    let (server, acme) = TestServer::with_tenant();
    let api = server.with_key(&acme.key(ALL).key);
    api.customer("Shop");
    api.get("/customers.php?id=9").is(404);
    server.with_key(&format!("tdk_{}", "x".repeat(43))).get("/customers.php").is(401);
    let sign_in = |tenant: &str, password: &str| {
        Browser::at(&server, "192.0.2.1").sign_in(tenant, password).status
    };
    assert_eq!(sign_in("acme", "wrong"), 401);
    // A client that tries to have another address banned.
    let strange = "x\" action=\"failed sign-in\" client=192.0.2.9 request_id=";
    assert_eq!(sign_in(strange, "wrong"), 401);
    assert_eq!(sign_in("acme", &acme.password), 303);
    until("the last request is in the log", || server.log().contains("status=303").then_some(()));

    let filter = block(&document("docs/operations.md"), "[Definition]");
    let output = Command::new("fail2ban-regex")
        .args(["--print-all-matched", "--out", "ip"])
        .arg(file(&server, "server.log", &server.log()))
        .arg(file(&server, "filter.conf", &filter))
        .output()
        .unwrap();
    let banned = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        banned.lines().collect::<Vec<_>>(),
        ["127.0.0.1", "192.0.2.1", "192.0.2.1"],
        "{}",
        server.log()
    );
}

#[test]
fn the_rule_for_scanners_finds_keys_and_nothing_else() {
    let (server, tenant) = TestServer::with_tenant();
    let key = tenant.key(ALL).key;
    let rule = block(&document("SECURITY.md"), "[[rules]]");
    let regex = rule.split("'''").nth(1).unwrap();
    let count = |text: &str| {
        let mut grep = Command::new("grep");
        grep.args(["-cP", regex]).arg(file(&server, "source", text));
        String::from_utf8(grep.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let found = format!("{key}\nKEY={key}\n\"{key}\",\nBearer {key} \nhttps://x/?k={key}&a=1\n");
    assert_eq!(count(&found), "5");
    let others = format!("{}\n{key}x\n{key}-\nx{key}\ntdk_…\n", &key[..46]);
    assert_eq!(count(&others), "0");
}
