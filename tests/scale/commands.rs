//! The commands.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::measure::{Table, command, watch};
use crate::records::{COLUMNS, CUSTOM, EMPLOYEES, value, write_csv};
use crate::support::{Api, TestServer};

/// A write-ahead log may be this long once a transaction has followed a large one, in bytes.
const LONGEST_LOG: u64 = 32 << 20;

/// Fills the tenant by `import` while the server has it open.
pub(crate) fn import(server: &TestServer, api: &Api, count: i64, table: &mut Table) {
    let customer = api.customer("Its customer");
    for _ in 0..EMPLOYEES {
        api.employee(customer);
    }
    let file = server.home().join("hardware.csv");
    write_csv(&file, count);
    let name = file.to_str().unwrap();
    let arguments = ["import", "acme", "hardware", name, "--dry-run", "--keep-ids"];
    command(server, &server.data(), "import, dry run with ids", &arguments, table);
    let ((), usage) = watch(server, || {
        let arguments = ["import", "acme", "hardware", name];
        let said = command(server, &server.data(), "import, beside a server", &arguments, table);
        assert_eq!(said["rows"], count);
    });
    table.add("the server meanwhile", Duration::ZERO, usage);
    assert_eq!(api.total("/hardware.php"), count);
    api.customer("Another");
    let log = server.data().join("tenants/1.db-wal");
    assert!(fs::metadata(&log).unwrap().len() < LONGEST_LOG, "{:?}", fs::metadata(&log));
    fs::remove_file(file).unwrap();
}

/// Exports in both formats; what comes out is what went in.
pub(crate) fn export(server: &TestServer, count: i64, table: &mut Table) {
    for format in ["csv", "jsonl"] {
        let file = server.home().join(format!("out.{format}"));
        let arguments = ["export", "acme", "hardware", "--output", file.to_str().unwrap()];
        let said = command(server, &server.data(), &format!("export, {format}"), &arguments, table);
        assert_eq!(said["rows"], count);
        let lines = BufReader::new(File::open(&file).unwrap()).lines().map(Result::unwrap);
        if format == "csv" {
            let mut id = 0;
            for line in lines.skip(1) {
                id += 1;
                let cells: Vec<String> =
                    COLUMNS.iter().map(|column| exported(id, column)).collect();
                assert!(line.starts_with(&cells.join(",")), "{line}");
                let custom = CUSTOM.map(|column| exported(id, column)).join(",");
                assert!(line.contains(&format!(",{custom},")), "{line}");
            }
            assert_eq!(id, count);
        } else {
            assert_eq!(lines.count(), usize::try_from(count).unwrap());
            let arguments = ["import", "acme", "hardware", file.to_str().unwrap(), "--dry-run"];
            command(server, &server.data(), "import, dry run of jsonl", &arguments, table);
        }
        fs::remove_file(file).unwrap();
    }
}

fn exported(id: i64, column: &str) -> String {
    match (column, value(id, column).cell().as_str()) {
        ("is_leased", "1") => "true".to_owned(),
        ("is_leased", _) => "false".to_owned(),
        (_, cell) => cell.to_owned(),
    }
}

/// The directory of the backup.
fn backups(server: &TestServer) -> String {
    server.home().join("backups").to_str().unwrap().to_owned()
}

pub(crate) fn backup_and_check(server: &TestServer, count: i64, table: &mut Table) {
    let dir = backups(server);
    let said = command(server, &server.data(), "backup, beside a server", &["backup", &dir], table);
    assert_eq!(said["tenants"][0]["records"]["hardware"], count);
    let said = command(server, &server.data(), "check, beside a server", &["check"], table);
    assert!(said.as_array().unwrap().iter().all(|database| database["ok"] == true), "{said}");
    let said = command(
        server,
        &server.data(),
        "doctor, beside a server",
        &["doctor", "--backups", &dir],
        table,
    );
    assert_eq!(said["ok"], true, "{said}");
}

/// Restores everything, one tenant, and one tenant into the file that a server has open and that
/// was changed since.
pub(crate) fn restore(server: &TestServer, api: &Api, count: i64, table: &mut Table) {
    let dir = backups(server);
    let records = json!({"customers": 2, "employees": EMPLOYEES, "hardware": count});
    let mut restore = |operation: &str, data: &Path, arguments: &[&str]| {
        let said =
            command(server, data, operation, &[&["restore", &dir], arguments].concat(), table);
        assert_eq!(said["tenants"][0]["records"], records, "{operation}");
    };
    assert!(api.total("/hardware.php") > count);
    restore("restore, into the file of a running server", &server.data(), &["acme", "--force"]);
    assert_eq!(api.total("/hardware.php"), count);
    assert_eq!(api.total("/hardware.php?q=charger"), count);
    let other = server.home().join("other");
    restore("restore, everything", &other, &[]);
    fs::remove_dir_all(&other).unwrap();
    restore("restore, one tenant", &other, &["acme"]);
    fs::remove_dir_all(&other).unwrap();
}
