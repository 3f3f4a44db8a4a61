//! The texts of the Debian package agree with the program. `release/README.md` names the tests of
//! the built package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::server::{binary, run};
use crate::support::{TestServer, can, tree};

fn debian(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("release/debian").join(file))
        .unwrap()
}

/// The commands that the installation prints.
fn printed_commands() -> Vec<String> {
    let script = debian("tenantdesk.postinst");
    let words = |line: &str| line.trim().strip_prefix("${sudo}tenantdesk ").map(str::to_owned);
    script.lines().filter_map(words).collect()
}

#[test]
fn the_two_commands_that_the_installation_prints_give_a_key() {
    let server = TestServer::start();
    let commands = printed_commands();
    assert_eq!(commands.len(), 2);
    let run = |words: &String| server.cli(&words.split(' ').collect::<Vec<_>>()).done();
    let outputs: Vec<_> = commands.iter().map(run).collect();
    let key = outputs[1].stdout.trim();
    server.with_key(key).post("/customers.php", serde_json::json!({"name": "First"})).is(201);
}

/// Root types no user, no directory and no address. Runs in a mount namespace with a service of the
/// user `nobody`.
#[test]
fn a_command_of_root_is_for_the_service_and_has_its_settings() {
    if !can("unshare -m mount -t tmpfs none /tmp && command -v setpriv") {
        return;
    }
    let script = r#"
        users=$(cat /etc/passwd)
        mount -t tmpfs none /var/lib; mount -t tmpfs none /etc; echo "$users" >/etc/passwd
        install -d -o 65534 -g 65534 -m 700 /var/lib/tenantdesk
        printf '# Options

TENANTDESK_LISTEN=127.0.0.1:9
TENANTDESK_JSON="true"
' >/etc/tenantdesk.env
        install -m 755 "$BUILT" /var/lib/desk
        mkdir -p /var/lib/here/data
        cd /var/lib/here
        /var/lib/desk tenant create acme
        /var/lib/desk health 2>&1 || true
        find /var/lib/tenantdesk ! -user 65534 # nothing
        setpriv --reuid=64999 --clear-groups /var/lib/desk tenant create beta 2>&1 || true
        # An empty variable counts as unset.
        echo TENANTDESK_DATA_DIR= >>/etc/tenantdesk.env
        timeout 60 /var/lib/desk tenant create third >/var/lib/third
        # The settings name another directory. The environment has its way against the settings.
        install -d -o 65534 -g 65534 -m 700 /var/lib/other
        echo TENANTDESK_DATA_DIR=/var/lib/other >>/etc/tenantdesk.env
        TENANTDESK_JSON=false /var/lib/desk tenant create gamma
        ls /var/lib/other/tenants
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-euc", script]).env("BUILT", binary());
    let output = run(command, "");
    let said = &output.stdout;
    assert_eq!(output.code, Some(0), "{output:?}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with(r#"{"id":1,"name":"acme""#), "{said}");
    assert!(lines[1].contains("127.0.0.1:9"), "{said}");
    let advice = "no data directory here; for the service's, run: sudo /var/lib/desk tenant create";
    assert!(lines[3].contains(advice), "{said}");
    assert!(
        lines[4].starts_with("tenant gamma (id 1)")
            && said.contains(
                "
1.db"
            ),
        "{said}"
    );
}

#[test]
fn the_settings_file_names_options_of_serve() {
    let server = TestServer::start();
    let help = server.cli(&["serve", "--help"]).done().stdout;
    let settings = debian("tenantdesk.env");
    let names: Vec<&str> = settings
        .lines()
        .filter_map(|line| line.strip_prefix("#TENANTDESK_")?.split('=').next())
        .collect();
    assert!(names.len() > 5, "{settings}");
    for name in names {
        assert!(help.contains(&format!("TENANTDESK_{name}=")), "{name}");
    }
}

/// The settings can name another data directory.
#[test]
fn each_unit_that_opens_the_data_directory_reads_the_settings_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let is_unit = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "service");
    let opens = |text: &String| text.contains("\nEnvironment=TENANTDESK_DATA_DIR=");
    let units =
        tree(&root).into_iter().filter(is_unit).map(|path| fs::read_to_string(path).unwrap());
    let units: Vec<_> = units.filter(opens).collect();
    assert!(units.len() >= 3, "{}", units.len());
    for unit in units {
        assert!(unit.contains("\nEnvironmentFile=-/etc/tenantdesk.env\n"), "{unit}");
    }
}
