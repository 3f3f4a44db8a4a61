//! The texts of the Debian package agree with the program. `release/README.md` names the tests of
//! the built package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::server::{Output, binary, run};
use crate::support::{TestServer, tree};

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

/// The script that the package installs as `tenantdesk`.
const COMMAND: &str = "command/tenantdesk";

/// Runs a shell script in a mount namespace in which the package is installed as `desk`, beside an
/// empty data directory of the user `tenantdesk`.
fn run_installed(script: &str) -> Output {
    let install = r#"
        users=$(cat /etc/passwd) groups=$(cat /etc/group)
        mount -t tmpfs none /var/lib; mount -t tmpfs none /etc
        printf '%s\ntenantdesk:x:64998:64998::/:/bin/sh\n' "$users" >/etc/passwd
        printf '%s\ntenantdesk:x:64998:\n' "$groups" >/etc/group
        install -d -o tenantdesk -g tenantdesk -m 700 /var/lib/tenantdesk
        install -m 755 "$BUILT" /var/lib/program
        echo "$SCRIPT" | sed 's|=/usr/lib/tenantdesk/tenantdesk|=/var/lib/program|' >/var/lib/desk
        desk() { sh /var/lib/desk "$@"; }
        cd /var/lib
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-euc", &format!("{install}\n{script}")]);
    command.env("BUILT", binary()).env("SCRIPT", debian(COMMAND));
    run(command, "")
}

#[test]
fn a_command_of_root_runs_as_the_service_with_its_settings() {
    let output = run_installed(
        r#"
        desk tenant create acme
        find /var/lib/tenantdesk ! -user tenantdesk # nothing
        printf '# Options\n\nTENANTDESK_LISTEN=127.0.0.1:9\nTENANTDESK_JSON="true"\n' >/etc/tenantdesk.env
        desk tenant list
        desk health 2>&1 || true
        # An empty variable counts as unset.
        TENANTDESK_JSON= TENANTDESK_DATA_DIR= desk key list acme
        # The settings name another directory. The environment takes precedence.
        install -d -o tenantdesk -m 700 /var/lib/other
        echo TENANTDESK_DATA_DIR=/var/lib/other >>/etc/tenantdesk.env
        TENANTDESK_JSON=false desk tenant create beta
        ls /var/lib/other/tenants
        echo a secret password | TENANTDESK_JSON=false desk tenant password beta --stdin
        desk tenant list --wrong 2>/dev/null || echo code $?
        "#,
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    let expected = [
        "tenant acme (id 1)",
        "panel password",
        r#"[{"id":1,"name":"acme""#,
        r#"{"url":"http://127.0.0.1:9/readyz""#,
        "error: ",
        "[]",
        "tenant beta (id 1)",
        "panel password",
        "1.db",
        "the panel password of beta is set",
        "code 2",
    ];
    assert_eq!(lines.len(), expected.len(), "{output:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}: {output:?}");
    }
}

#[test]
fn another_user_reads_which_command_to_run() {
    let output = run_installed(
        "setpriv --reuid=64999 --clear-groups sh /var/lib/desk tenant create acme 2>&1 || echo code $?",
    );
    let expected = "error: /var/lib/tenantdesk belongs to tenantdesk; run: sudo -u tenantdesk tenantdesk …\ncode 1\n";
    assert_eq!(output.stdout, expected);
}

#[test]
fn root_reads_how_to_give_the_directory_back_to_the_service() {
    let output =
        run_installed("chown root: /var/lib/tenantdesk; desk tenant list 2>&1 || echo code $?");
    let advice = "run: sudo chown -R tenantdesk: /var/lib/tenantdesk";
    assert_eq!(
        output.stdout,
        format!("error: /var/lib/tenantdesk belongs to root; {advice}\ncode 1\n")
    );
}

#[test]
fn root_imports_a_file_of_a_closed_home() {
    let output = run_installed(
        r#"
        install -d -m 700 /var/lib/home
        cd /var/lib/home
        printf 'Firma\nAda\n' >list.CSV; chmod 600 list.CSV
        printf '[columns]\nFirma = "name"\n' >map.toml
        cp list.CSV list.text
        cd /
        desk tenant create acme >/dev/null
        desk import acme --map /var/lib/home/map.toml customers /var/lib/home/list.CSV --dry-run
        desk --json import acme customers /var/lib/home/list.text --map /var/lib/home/map.toml --format csv
        desk import acme customers /var/lib/home/missing.csv 2>&1 || true
        desk import acme customers /var/lib/home/list.text 2>&1 || true
        desk import acme customers /var/lib/home/list.ods 2>&1 || true
        desk export acme customers --format jsonl | grep -c Ada
        "#,
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    let said = &output.stdout;
    assert!(said.contains("Permission denied") || said.contains("cannot read"), "{said}");
    assert!(said.contains("must end in .csv") && said.ends_with("\n1\n"), "{output:?}");
    assert!(said.contains("save it as .xlsx"), "{said}");
}

/// Otherwise the script would take the value of an option for the file.
#[test]
fn the_script_knows_the_options_of_import_that_have_a_value() {
    let server = TestServer::start();
    let help = server.cli(&["import", "--help"]).done().stdout;
    let script = debian(COMMAND);
    let options = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let names: Vec<&str> = options.filter_map(|option| Some(option.split_once(" <")?.0)).collect();
    assert!(names.len() > 4, "{help}");
    for name in names {
        assert!(
            script.contains(&format!("--{name} | ")) || script.contains(&format!("--{name})")),
            "{name}"
        );
    }
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
