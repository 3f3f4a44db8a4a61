//! `import` reads files of spreadsheet programs: the files in `fixtures/spreadsheets`, and new
//! files of an installed LibreOffice.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::examples::has;
use crate::support::DataDir;

/// The files that are made for customers.
const FILES: [&str; 7] = [
    "excel-sep.csv",
    "excel-utf-8.csv",
    "excel-windows-1252.csv",
    "libreoffice.csv",
    "libreoffice-german.csv",
    "libreoffice-tabs.csv",
    "libreoffice-windows-1252.csv",
];

#[track_caller]
fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn customers(data_dir: &DataDir) -> Vec<Value> {
    const NAMES: [&str; 7] =
        ["name", "customer_number", "email", "postal_code", "city", "customer_since", "notes"];
    let export = ["export", "acme", "customers", "--format", "jsonl"];
    let text = data_dir.cli(&export).done().stdout;
    let record = |line| serde_json::from_str::<Value>(line).unwrap();
    text.lines().map(record).map(|record| NAMES.map(|name| record[name].clone()).into()).collect()
}

/// Imports the file, after the conversion that the message asks for if it is Windows-1252.
fn assert_is_imported(file: &Path) {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let import =
        |file: &Path| data_dir.cli(&["import", "acme", "customers", file.to_str().unwrap()]);
    let mut output = import(file);
    if file.to_str().unwrap().contains("1252") {
        output.fails_saying("1 fault in 1 row; nothing was imported");
        let converted = data_dir.home().join("converted.csv");
        let mut iconv = Command::new("iconv");
        let text = run(iconv.args(["-f", "WINDOWS-1252", "-t", "UTF-8"]).arg(file));
        fs::write(&converted, text).unwrap();
        output = import(&converted);
    }
    assert_eq!(output.done().stdout, "imported 3 rows of customers into acme\n", "{file:?}");
    let (notes, mail) = ("Erste Zeile;\n\"zweite\", dritte", "info@mueller.example");
    let expected = [
        json!(["Müller & Söhne GmbH", "K-1", mail, "01067", "Dresden", "2024-02-29", notes]),
        json!(["Bäckerei Größe", "K-2", null, "09111", "Chemnitz", null, null]),
        json!(["Café Zoë", "K-3", "zoe@cafe.example", "80331", "München", "2025-12-31", "10 %"]),
    ];
    assert_eq!(customers(&data_dir), expected, "{file:?}");
}

#[test]
fn what_spreadsheets_write_is_imported() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/spreadsheets");
    FILES.iter().for_each(|name| assert_is_imported(&fixtures.join(name)));
}

#[test]
fn workbooks_of_other_programs_are_imported() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/spreadsheets");
    for name in ["openpyxl.xlsx", "exceljs.xlsx", "sheetjs.xlsx", "sheetjs.ods"] {
        let data_dir = DataDir::new(false);
        data_dir.tenant("acme");
        let file = fixtures.join(name);
        data_dir.cli(&["import", "acme", "hardware", file.to_str().unwrap()]).done();
        let export = ["export", "acme", "hardware", "--format", "jsonl"];
        let text = data_dir.cli(&export).done().stdout;
        let members =
            ["name", "serial_number", "purchase_date", "purchase_cost_cents", "is_leased", "notes"];
        let records: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|record| json!([members.map(|member| record[member].clone()), record["custom"]]))
            .collect();
        let custom = |share: &str| json!({"share": share, "sum": "3"});
        let expected = [
            json!([["Laptop", "007", "2024-02-29", 129_950, true, "a\nb"], custom("0.19")]),
            json!([["Screen ", "1E5", "1999-12-31", 10_000, false, "=1+1"], custom("1")]),
            json!([["Server", "4711", null, 10, false, null], {}]),
        ];
        assert_eq!(records, expected, "{name}");
    }
}

#[test]
fn the_sheet_and_the_faults_of_a_workbook_are_named() {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let file = "tests/fixtures/spreadsheets/openpyxl.xlsx";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    for (sheet, faults) in [
        ("Faults", &["cell A2: name: invalid_row: ", "cell B2: purchase_date: invalid_date: "][..]),
        ("Faults", &["cell C2: notes: invalid_row: The cell has the error #N/A."]),
        ("Title", &["row 1: -: invalid_row: ", "row 3 has more cells"]),
        ("Hidden", &["row 1: not: unknown_column: "]),
        ("Device", &["Unknown sheet \"Device\". Did you mean \"Devices\"?"]),
    ] {
        let arguments = ["import", "acme", "hardware", file.to_str().unwrap(), "--sheet", sheet];
        let output = data_dir.cli(&arguments).ends_with(1);
        for fault in faults {
            assert!(output.stderr.contains(fault), "{}", output.stderr);
        }
    }
}

#[test]
#[ignore = "takes 4 s; .ci/run runs it"]
fn long_what_an_installed_libreoffice_writes_is_imported() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/spreadsheets");
    if has("soffice", "--version") && has("python3", "--version") {
        let directory = tempfile::tempdir().unwrap();
        run(Command::new("python3").arg(fixtures.join("make")).arg(directory.path()));
        FILES.iter().for_each(|name| assert_is_imported(&directory.path().join(name)));
    }
}

/// The dry run shows what a spreadsheet destroys that reads postal codes as numbers.
#[test]
fn what_a_spreadsheet_destroys_is_shown() {
    if !has("soffice", "--version") {
        return;
    }
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme");
    let row = |n: u32| format!("Kunde {n},010{n},Leipzig\n");
    let text = format!("name,postal_code,city\n{}", (10..30).map(row).collect::<String>());
    fs::write(data_dir.home().join("customers.csv"), text).unwrap();
    data_dir.cli(&["import", "acme", "customers", "customers.csv"]).done();
    data_dir.cli(&["export", "acme", "customers", "--output", "exported.csv"]).done();
    let mut office = Command::new("soffice");
    office.arg(format!("-env:UserInstallation=file://{}/profile", data_dir.home().display()));
    office.args(["--headless", "--convert-to", "csv", "--outdir", "edited", "exported.csv"]);
    run(office.current_dir(data_dir.home()));
    let update = ["import", "acme", "customers", "edited/exported.csv", "--update-by", "id"];
    let output = data_dir.cli(&[&update[..], &["--dry-run"]].concat()).done();
    assert!(output.stdout.ends_with("\n20 records change: postal_code 20\n"), "{output:?}");
    let warning = "warning: postal_code loses leading zeros, a plus sign or digits in 20 records. ";
    assert!(output.stderr.starts_with(warning), "{output:?}");
}
