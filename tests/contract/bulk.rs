//! Contract section 10: `import` and `export`.

use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::server::Output;
use crate::support::{DataDir, TestServer, database};

struct Shop {
    data_dir: Arc<DataDir>,
}

impl Shop {
    /// A tenant without a server.
    fn new() -> Shop {
        Shop { data_dir: DataDir::acme() }
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.data_dir.home().join(name), text).unwrap();
    }

    #[track_caller]
    fn import(&self, resource: &str, file: &str, options: &[&str]) -> Output {
        self.data_dir.cli(&[&["import", "acme", resource, file], options].concat())
    }

    #[track_caller]
    fn export(&self, resource: &str, options: &[&str]) -> String {
        self.data_dir.cli(&[&["export", "acme", resource], options].concat()).done().stdout
    }
}

#[test]
fn faults_are_reported_line_by_line_and_nothing_is_imported() {
    let shop = Shop::new();
    shop.write("a.csv", "name,email\nGood,\nx,nobody\n\"Good\" not\n");
    let output = shop.import("customers", "a.csv", &[]).fails_saying("nothing was imported");
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert!(lines[0].starts_with("line 3: name: too_short: "), "{output:?}");
    assert!(lines[1].starts_with("line 3: email: invalid_email: "), "{output:?}");
    assert!(lines[2].starts_with("line 4: -: invalid_row: "), "{output:?}");
    assert_eq!((lines.len(), output.stdout.as_str()), (4, ""), "{output:?}");
    assert_eq!(shop.export("customers", &["--format", "jsonl"]), "");
    let rows = "\"x\n\",\n".repeat(600) + "Good,a@b\n" + &"x,\n".repeat(600);
    shop.write("d.csv", format!("name,email\n{rows}"));
    let output = shop.import("customers", "d.csv", &[]).fails_saying("1,201 faults in 1,201 rows");
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert!(lines[1].starts_with("line 4 (row 3): name: too_short: "), "{output:?}");
    assert!(lines[5].starts_with("line 1202 (row 602): email: invalid_email: "), "{output:?}");
    let summary = [
        "Faults by field and code (--json prints each fault):",
        "  name too_short: 1,200 rows, first in line 2",
        "  email invalid_email: 1 row, first in line 1202 (row 602)",
    ];
    assert_eq!((&lines[6..9], lines.len()), (&summary[..], 10));
}

#[test]
fn a_document_for_scripts_has_every_fault() {
    let shop = Shop::new();
    shop.write("a.csv", format!("name,email\n{}Good,\nx,nobody\n", "x,\n".repeat(250)));
    let output =
        shop.import("customers", "a.csv", &["--json"]).fails_saying("252 faults in 251 rows");
    let document = output.json();
    assert_eq!([&document["done"], &document["resource"]], ["nothing", "customers"]);
    let faults = document["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 252);
    let names: Vec<&String> = faults[0].as_object().unwrap().keys().collect();
    assert_eq!(names, ["line", "row", "field", "code", "message"]);
    assert_eq!((&faults[0]["line"], &faults[0]["code"]), (&json!(2), &json!("too_short")));
    let last = &faults[251];
    assert_eq!((&last["line"], &last["code"]), (&json!(253), &json!("invalid_email")));
    let members = |n: usize| format!("{{\"x{n}\": 1}}\n");
    shop.write("c.jsonl", (0..150).map(members).collect::<String>() + &members(0));
    let output = shop.import("customers", "c.jsonl", &["--json"]).ends_with(1);
    assert_eq!(output.json()["faults"].as_array().unwrap().len(), 151);
    assert_eq!(output.stderr.lines().count(), 101 + 1 + 100 + 1, "{output:?}");
    shop.write("b.csv", "nmae\nGood\n");
    let document = shop.import("customers", "b.csv", &["--json", "--dry-run"]).ends_with(1).json();
    assert_eq!(document["faults"][0]["code"], "unknown_column");
}

#[test]
fn a_list_of_faults_ends() {
    let shop = Shop::new();
    let header = "name,type,status,purchase_date,warranty_until,purchase_cost_cents,is_leased\n";
    shop.write("a.csv", header.to_owned() + &"x,x,x,x,x,x,x\n".repeat(15_000));
    let output = shop.import("hardware", "a.csv", &["--json", "--dry-run"]);
    let output = output.fails_saying("100,000 faults in 14,286 rows, and the rest of the file");
    let document = output.json();
    assert_eq!(document["faults"].as_array().unwrap().len(), 100_000);
    assert_eq!(document["more"], true);
    // A row has one fault about its cells beyond the header, and one about its width.
    let wide = "Good".to_owned() + &",y".repeat(1_000);
    shop.write("b.csv", format!("name\n{wide}\nGood,x,y,z\nGood\n{wide}\n"));
    let document = shop.import("customers", "b.csv", &["--json"]).ends_with(1).json();
    let faults = document["faults"].as_array().unwrap();
    let lines: Vec<&Value> = faults.iter().map(|fault| &fault["line"]).collect();
    assert_eq!((lines, &document["more"]), (vec![&json!(2), &json!(3), &json!(5)], &json!(false)));
    let members: Vec<String> = (0..1_001).map(|n| format!("\"x{n}\":1")).collect();
    shop.write("c.jsonl", format!("{{{}}}\n{{\"x\":1}}\n", members.join(",")));
    let document = shop.import("customers", "c.jsonl", &["--json"]).ends_with(1).json();
    assert_eq!(document["faults"].as_array().unwrap().len(), 2);
}

#[test]
fn a_draft_reads_the_start_of_a_file() {
    let shop = Shop::new();
    let rows = format!("Good,{},aktiv\n", "y".repeat(1_000_000)).repeat(17);
    shop.write("a.csv", format!("name,notes,status\n{rows}Good,,inaktiv\n"));
    let draft = shop.import("customers", "a.csv", &["--draft-map"]).done().stdout;
    assert!(draft.contains("\"aktiv\"") && !draft.contains("\"inaktiv\""), "{draft}");
    shop.write("b.csv", "a".repeat(20_000_000));
    shop.import("customers", "b.csv", &["--draft-map"]).fails_saying("more than 1 MiB");
}

#[test]
fn a_name_of_many_records_lists_ten_of_them() {
    let shop = Shop::new();
    shop.write("c.csv", format!("name\n{}", "Müller\n".repeat(11)));
    shop.import("customers", "c.csv", &[]).done();
    shop.write("e.csv", "customer_name,email\nMüller,eva@mueller.example\n");
    let output = shop.import("employees", "e.csv", &[]).ends_with(1);
    let listed = ": 1, 2, 3, 4, 5, 6, 7, 8, 9, 10. Name one by its id or number.\n";
    assert!(output.stderr.contains(listed), "{output:?}");
}

#[test]
fn texts_of_a_file_do_not_control_the_terminal() {
    let shop = Shop::new();
    shop.write("a.csv", "name,\u{9b}2J\u{202e}\nGood,\u{7f}\u{2066}\n");
    let draft = shop.import("customers", "a.csv", &["--draft-map"]).done().stdout;
    assert!(draft.contains(r#""\u009b2J\u202e" = """#), "{draft}");
    shop.write("map.toml", &draft);
    shop.import("customers", "a.csv", &["--map", "map.toml", "--dry-run"]).done();
    let output = shop.import("customers", "a.csv", &["--json"]).ends_with(1);
    assert_eq!(output.json()["faults"][0]["field"], "\u{9b}2J\u{202e}");
    for text in [&draft, &output.stdout, &output.stderr] {
        assert!(!text.contains(['\u{9b}', '\u{202e}', '\u{7f}', '\u{2066}']), "{text:?}");
    }
}

#[test]
fn wrong_usage_exits_with_2_and_a_missing_file_or_tenant_with_1() {
    let shop = Shop::new();
    shop.write("a.txt", "name\nGood\n");
    shop.write("a.csv", "name\nGood\n");
    let output = shop.import("customers", "a.txt", &[]).ends_with(2);
    assert!(output.stderr.contains("must end in .csv, .jsonl or .xlsx"), "{output:?}");
    shop.write("~$a.xlsx", "a");
    let output = shop.import("customers", "~$a.xlsx", &[]).ends_with(2);
    assert!(output.stderr.contains("its workbook is open"), "{output:?}");
    shop.import("people", "a.csv", &[]).ends_with(2);
    shop.data_dir.cli(&["export", "acme", "customers", "--format", "xml"]).ends_with(2);
    shop.import("customers", "none.csv", &[]).fails_saying("none.csv");
    shop.data_dir.cli(&["import", "other", "customers", "a.csv"]).fails_saying("no tenant other");
    shop.data_dir.cli(&["export", "other", "customers"]).fails_saying("no tenant other");
    let closed = DataDir::new(true);
    closed.tenant("acme");
    let private = closed.home().join("private.csv");
    std::fs::write(&private, "name\nGood\n").unwrap();
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o0)).unwrap();
    let words =
        "cannot read private.csv: Permission denied; the service's user must be able to read";
    closed.cli(&["import", "acme", "customers", "private.csv"]).fails_saying(words);
    let set_mode = |mode| {
        std::fs::set_permissions(closed.data(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(0);
    let output = closed.cli(&["export", "acme", "customers"]);
    set_mode(0o700);
    let path = closed.data().display().to_string();
    output.fails_saying(&format!("cannot read {path}: Permission denied to the user "));
}

#[test]
fn a_dry_run_imports_nothing_and_json_reports_what_was_done() {
    let shop = Shop::new();
    shop.write("a.csv", "name\nEins\nZwei\n");
    let report = shop.import("customers", "a.csv", &["--dry-run", "--json"]).done().json();
    let expected = json!({"done": "checked", "tenant": "acme", "resource": "customers", "rows": 2});
    assert_eq!(report, expected);
    assert_eq!(shop.export("customers", &[]).lines().count(), 1);
    let output = shop.import("customers", "a.csv", &["--json"]).done();
    assert_eq!(output.json()["done"], "imported");
    assert!(output.stderr.starts_with("To take this back: "), "no bar in a pipe: {output:?}");
    let report = shop.data_dir.cli_json(&["export", "acme", "customers", "--output", "out.jsonl"]);
    assert_eq!((&report["rows"], &report["file"]), (&json!(2), &json!("out.jsonl")));
    let file = shop.data_dir.home().join("out.jsonl");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let exported = shop.export("customers", &["--format", "jsonl"]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), exported);
    shop.import("customers", "a.csv", &["--keep-ids"]).fails_saying("");
    let output = shop.data_dir.cli(&["export", "acme", "customers", "--output", "new/out.csv"]);
    output.fails_saying("cannot write new/out.csv: there is no directory new; create it first");
}

#[test]
fn an_update_reports_what_it_does_and_logs_what_it_changes() {
    let (server, api) = TestServer::with_api();
    for (number, city) in [("K-1", "Bonn"), ("K-2", "Ulm")] {
        let record = json!({"name": "Eins", "customer_number": number, "city": city});
        api.create("/customers.php", record);
    }
    let tag = || api.get("/customers.php?id=2").header("ETag").unwrap().to_owned();
    let before = tag();
    let text = "customer_number,city,name\nK-1,Köln,Eins\nK-2,Ulm,Eins\nK-3,,Drei\n";
    std::fs::write(server.home().join("c.csv"), text).unwrap();
    let update = |options: &[&str]| {
        let words = ["import", "acme", "customers", "c.csv", "--update-by", "customer_number"];
        server.cli(&[&words, options].concat())
    };
    let mut expected = json!({"done": "checked", "tenant": "acme", "resource": "customers",
        "rows": 3, "created": 1, "changed": 1, "unchanged": 1, "fields": {"city": 1}});
    let change = json!({"line": 2, "row": 2, "id": 1, "name": "Eins",
        "fields": {"city": {"old": "Bonn", "new": "Köln"}}});
    expected["changes"] = json!([change]);
    assert_eq!(update(&["--dry-run", "--json"]).done().json(), expected);
    assert_eq!(api.total("/customers.php"), 2);
    expected["done"] = json!("imported");
    assert_eq!(update(&["--json"]).done().json(), expected);
    let entries = api.get("/changes.php").found()["data"].as_array().unwrap().clone();
    let entry = |n: usize| ["action", "id", "fields", "before", "by"].map(|name| &entries[n][name]);
    let import = json!({"kind": "command", "name": "import c.csv"});
    assert_eq!(
        entry(2),
        [&json!("updated"), &json!(1), &json!(["city"]), &json!({"city": "Bonn"}), &import]
    );
    let fields = json!(["name", "customer_number", "status"]);
    assert_eq!(entry(3), [&json!("created"), &json!(3), &fields, &Value::Null, &import]);
    assert_eq!(entries.len(), 4);
    assert_eq!(tag(), before);
    let again = update(&[]).done().stdout;
    assert!(again.contains("0 created, 0 changed, 3 unchanged"), "{again}");
    assert_eq!(api.ids("/customers.php?q=k%C3%B6ln"), [1]);
    server.cli(&["check"]).done();
    let fields = ["notes", "status", "nmae", "created_at"];
    for field in fields {
        server.cli(&["import", "acme", "customers", "c.csv", "--update-by", field]).ends_with(2);
    }
    update(&["--keep-ids"]).ends_with(2);
}

#[test]
fn an_import_warns_of_what_a_person_may_not_have_intended() {
    let shop = Shop::new();
    let customers = |count: usize, postal_code: &str, notes: &str| {
        let row = |n: usize| format!("K-{n},Eins,{postal_code}{n},{notes}\n");
        let rows = (10..10 + count).map(row).collect::<String>();
        format!("customer_number,name,postal_code,notes\n{rows}K-2,Zwei,,\n")
    };
    shop.write("a.csv", customers(12, "010", "") + "K-2,Zwei,,\n,Drei,,\n");
    let warnings = |file: &str, options: &[&str]| {
        let said = shop.import("customers", file, options).done().stderr;
        said.split("To take this back").next().unwrap().to_owned()
    };
    let repeated = |rows: &str| {
        format!(
            "warning: the customer_number of {rows} stands in a record or in an earlier row, too. \
             Each row is a new record. --update-by customer_number changes the existing ones.\n"
        )
    };
    assert_eq!(warnings("a.csv", &[]), repeated("1 row"), "the table was empty");
    shop.write("b.csv", customers(1_200, "010", "") + "K-2,Zwei,,\nK-9999,Neu,,\nK-9999,Neu,,\n");
    let warning = repeated("15 rows");
    for options in [&["--dry-run"][..], &["--json"]] {
        assert_eq!(warnings("b.csv", options), warning);
    }
    assert_eq!(shop.export("customers", &[]).lines().count(), 1 + 15 + 1_204);
    shop.write("c.csv", "name,email\nEins,a@b.example\n");
    assert_eq!(warnings("c.csv", &[]), "");
    let output = shop.import("customers", "c.csv", &[]).done();
    assert!(output.stderr.contains("the email of 1 row stands in a record"), "{output:?}");
    let other = Shop::new();
    other.write("a.csv", customers(1_200, "010", ""));
    other.import("customers", "a.csv", &[]).done();
    let update = |rows: String| {
        other.write("b.csv", rows);
        other.import("customers", "b.csv", &["--update-by", "customer_number", "--dry-run"]).done()
    };
    let output = update(customers(20, "10", "") + "K-30,Eins,01031,\n");
    let warning = "warning: postal_code loses leading zeros, a plus sign or digits in 20 records. ";
    assert!(output.stderr.starts_with(warning), "{output:?}");
    let counted = "\n21 records change: postal_code 21\nline 2: customer 1 \"Eins\": ";
    assert!(output.stdout.contains(counted), "{output:?}");
    assert!(output.stdout.ends_with("\n… and 1 more\n"), "{output:?}");
    let output = update("customer_number,city\nK-2,Ulm\n".to_owned());
    assert!(output.stdout.contains("\n1 record changes: city 1\n"), "{output:?}");
}

/// A pager that waits for a key, for example. The export is longer than a pipe.
#[test]
fn an_export_that_nobody_reads_does_not_hold_the_write_ahead_log() {
    let shop = Shop::new();
    let row = format!("Ada,{}\n", "x".repeat(5_000));
    shop.write("rows.csv", format!("name,notes\n{}", row.repeat(100)));
    shop.import("customers", "rows.csv", &[]).done();
    let mut command = shop.data_dir.command();
    command.arg("--data-dir").arg(shop.data_dir.data()).args(["export", "acme", "customers"]);
    command.stdout(Stdio::piped());
    let mut export = command.spawn().unwrap();
    let mut output = export.stdout.take().unwrap();
    output.read_exact(&mut [0]).unwrap();
    let file = database(&shop.data_dir.data().join("tenants/1.db"));
    file.execute("UPDATE customers SET name = 'Eva'", []).unwrap();
    let empty = "PRAGMA wal_checkpoint(TRUNCATE)";
    let is_held: bool = file.query_row(empty, [], |row| row.get(0)).unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(export.wait().unwrap().success());
    assert_eq!((is_held, rest.matches(",Ada,").count()), (false, 100));
}

#[test]
fn an_export_replaces_the_file_behind_a_link_and_the_link_stays() {
    let shop = Shop::new();
    let home = shop.data_dir.home();
    let (target, copy) = (home.join("exports/monday.csv"), home.join("copy.csv"));
    std::fs::create_dir(home.join("exports")).unwrap();
    std::fs::write(&target, "old").unwrap();
    std::fs::hard_link(&target, &copy).unwrap();
    symlink("exports/monday.csv", home.join("latest.csv")).unwrap();
    let report = shop.data_dir.cli_json(&["export", "acme", "customers", "--output", "latest.csv"]);
    assert_eq!(report["file"], "latest.csv");
    assert!(home.join("latest.csv").is_symlink());
    assert_eq!(std::fs::read_to_string(&target).unwrap(), shop.export("customers", &[]));
    assert_eq!(target.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "old", "the file is new");
    assert_eq!(std::fs::read_dir(home.join("exports")).unwrap().count(), 1);
    symlink("nowhere", home.join("dangling.csv")).unwrap();
    for (name, words) in [("dangling.csv", "No such file"), ("exports", "it is a directory")] {
        let export = ["export", "acme", "customers", "--output", name];
        shop.data_dir.cli(&export).fails_saying(words);
    }
}

/// The links stand for the machine's `/dev/stdout` and the shell's `>(…)`.
#[test]
fn an_export_writes_to_standard_output_and_into_a_pipe() {
    let shop = Shop::new();
    let home = shop.data_dir.home();
    let records = shop.export("customers", &[]);
    for (link, target) in [("stdout", "/proc/self/fd/1"), ("pipe", "fifo")] {
        symlink(target, home.join(link)).unwrap();
    }
    for output in ["-", "stdout", "/proc/self/fd/1"] {
        assert_eq!(shop.export("customers", &["--output", output]), records);
    }
    assert!(Command::new("mkfifo").arg(home.join("fifo")).status().unwrap().success());
    let pipe = home.join("pipe");
    let reader = std::thread::spawn(move || std::fs::read_to_string(pipe).unwrap());
    let said = shop.export("customers", &["--output", "pipe"]);
    assert_eq!(said, "exported 0 rows of customers of acme to pipe\n");
    assert_eq!(reader.join().unwrap(), records);
    assert!(home.join("stdout").is_symlink() && home.join("pipe").is_symlink());
    assert!(home.join("fifo").symlink_metadata().unwrap().file_type().is_fifo());
    assert!(!home.join("-").exists());
}
