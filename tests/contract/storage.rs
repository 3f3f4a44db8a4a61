//! Contract section 11: files, their modes, their versions, and the end of the process.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::support::{ALL, DataDir, Setup, TestServer, database, tree, until};

const RECORDS: &str = "/customers.php";

#[test]
fn files_and_directories_are_private_to_the_owner() {
    let (server, tenant) = TestServer::with_tenant();
    let api = tenant.with_scopes(ALL);
    api.customer("Private");
    let paths = [tree(&server.data()), vec![server.data()]].concat();
    assert!(paths.contains(&server.registry_file()) && paths.contains(&tenant.file()));
    assert!(paths.contains(&tenant.files()[1]), "the write-ahead log exists and is checked, too");
    for path in paths {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

#[test]
fn a_tenants_file_of_a_newer_schema_makes_that_tenant_unavailable() {
    let server = TestServer::start();
    let (newer, other) = (server.tenant("newer"), server.tenant("other"));
    let (api, others) = (newer.with_scopes(ALL), other.with_scopes(ALL));
    let version: u32 =
        database(&newer.file()).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    database(&newer.file()).pragma_update(None, "user_version", 99).unwrap();
    api.get(RECORDS).fails_with(503, "tenant_unavailable");
    others.get(RECORDS).is(200);
    until("the log reports the newer schema", || server.log().contains("newer").then_some(()));
    let report = server.cli(&["--json", "check"]).ends_with(1).json();
    let faults: Vec<bool> =
        report.as_array().unwrap().iter().map(|row| row["ok"].as_bool().unwrap()).collect();
    assert_eq!(faults.iter().filter(|ok| !**ok).count(), 1, "{report}");
    database(&newer.file()).pragma_update(None, "user_version", version).unwrap();
    until("the tenant is served again", || (api.get(RECORDS).status == 200).then_some(()));
}

#[test]
fn a_registry_of_a_newer_schema_ends_every_command() {
    let (mut server, tenant) = TestServer::with_tenant();
    server.stop();
    database(&server.registry_file()).pragma_update(None, "user_version", 99).unwrap();
    let commands: [&[&str]; 7] = [
        &["serve", "--listen", "127.0.0.1:0"],
        &["tenant", "list"],
        &["tenant", "create", "other"],
        &["tenant", "suspend", "acme"],
        &["key", "list", "acme"],
        &["key", "create", "acme", "--name", "x", "--scope", "all"],
        &["check"],
    ];
    for command in commands {
        let output = server.cli(command).ends_with(1);
        let said = format!("{}{}", output.stdout, output.stderr).to_lowercase();
        assert!(said.contains("newer"), "{output:?}");
    }
    assert!(tenant.file().exists());
}

#[test]
fn a_registry_that_is_no_database_is_reported() {
    let mut server = TestServer::start();
    server.tenant("acme");
    server.stop();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", server.registry_file().display()));
    }
    std::fs::write(server.registry_file(), "no database ".repeat(1_000)).unwrap();
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["tenant", "list"], &["check"]] {
        let output = server.cli(command).ends_with(1);
        assert!(!output.stderr.contains("panicked"), "{output:?}");
        assert!(
            output.stderr.contains("registry.db") || output.stdout.contains("registry"),
            "{output:?}"
        );
    }
}

#[test]
fn a_registry_without_a_table_beside_tenants_is_damaged() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    std::fs::write(data_dir.registry_file(), "").unwrap();
    data_dir.cli(&["serve", "--listen", "127.0.0.1:0"]).fails_saying("the file is empty");
    data_dir.cli(&["tenant", "create", "other"]).fails_saying("the file is empty");
    assert!(data_dir.data().join("tenants/1.db").exists());
}

#[test]
fn a_signal_ends_a_server_that_waits_for_a_command() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let in_use = File::open(data_dir.data()).unwrap();
    in_use.lock_shared().unwrap();
    for signal in ["TERM", "INT"] {
        let serve = data_dir.command();
        // As a script that starts it in the background.
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' INT; exec \"$@\"", "sh"]).arg(serve.get_program());
        shell.arg("--data-dir").arg(data_dir.data());
        data_dir.as_its_user(&mut shell);
        shell.args(["serve", "--listen", "127.0.0.1:0"]);
        let mut serve = shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(serve.stderr.take().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains("waiting for the commands")));
        crate::support::signal(serve.id(), signal);
        until("the server ends", || serve.try_wait().unwrap());
    }
    data_dir.cli(&["check"]).done();
}

#[test]
fn a_killed_server_leaves_nothing_in_the_temporary_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let (mut server, tenant) =
        Setup::plain().variable("TMPDIR", temporary.path().to_str().unwrap()).start_with_tenant();
    let api = tenant.with_scopes(ALL);
    let entries = || tree(temporary.path()).len();
    api.customer("Served");
    assert_eq!(entries(), 0, "while it serves: {:?}", tree(temporary.path()));
    server.kill();
    server.restart();
    api.customer("Served again");
    server.kill();
    assert_eq!(entries(), 0, "after two kills: {:?}", tree(temporary.path()));
}
