//! `import` reads files of spreadsheet programs: the files in `fixtures/spreadsheets`, and files of
//! an installed LibreOffice.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use rust_xlsxwriter::{Format, Workbook};
use serde_json::{Value, json};

use crate::support::{ALL, DataDir, TestServer, database};

/// The files that are made for customers.
const FILES: [&str; 4] =
    ["excel-sep.csv", "excel-windows-1252.csv", "libreoffice-german.csv", "libreoffice-tabs.csv"];

#[track_caller]
fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Imports the file, with a map if it is Windows-1252.
fn assert_is_imported(file: &Path) {
    let data_dir = DataDir::acme();
    let import = ["import", "acme", "customers", file.to_str().unwrap()];
    let mut output = data_dir.cli(&import);
    if file.to_str().unwrap().contains("1252") {
        output.fails_saying("1 fault in 1 row; nothing was imported");
        let map = "[formats]\nencoding = \"windows-1252\"\n";
        fs::write(data_dir.home().join("map.toml"), map).unwrap();
        output = data_dir.cli(&[&import[..], &["--map", "map.toml"]].concat());
    }
    assert_eq!(output.done().stdout, "imported 3 rows of customers into acme\n", "{file:?}");
    let (notes, mail) = ("Erste Zeile;\n\"zweite\", dritte", "info@mueller.example");
    let expected = [
        json!(["Müller & Söhne GmbH", "K-1", mail, "01067", "Dresden", "2024-02-29", notes]),
        json!(["Bäckerei Größe", "K-2", null, "09111", "Chemnitz", null, null]),
        json!(["Café Zoë", "K-3", "zoe@cafe.example", "80331", "München", "2025-12-31", "10 %"]),
    ];
    let names =
        ["name", "customer_number", "email", "postal_code", "city", "customer_since", "notes"];
    assert_eq!(members(&data_dir, "customers", &names), expected, "{file:?}");
}

#[test]
fn what_spreadsheets_write_is_imported() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/spreadsheets");
    FILES.iter().for_each(|name| assert_is_imported(&fixtures.join(name)));
}

#[test]
fn workbooks_of_other_programs_are_imported() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/spreadsheets");
    for name in ["openpyxl.xlsx", "sheetjs.xlsx"] {
        let data_dir = DataDir::acme();
        let file = fixtures.join(name);
        data_dir.cli(&["import", "acme", "hardware", file.to_str().unwrap()]).done();
        let custom = |share: &str| json!({"share": share, "sum": "3"});
        let expected = [
            json!(["Laptop", "007", "2024-02-29", 129_950, true, "a\nb", custom("0.19")]),
            json!(["Screen", "1E5", "1999-12-31", 10_000, false, "=1+1", custom("1")]),
            json!(["Server", "4711", null, 10, false, null, {}]),
        ];
        let names =
            ["name", "serial_number", "purchase_date", "purchase_cost_cents", "is_leased", "notes"];
        let names = [&names[..], &["custom"]].concat();
        assert_eq!(members(&data_dir, "hardware", &names), expected, "{name}");
    }
}

/// The records of the resource as JSON Lines, without ids and times.
fn exported(data_dir: &DataDir, resource: &str) -> Vec<Value> {
    let text = data_dir.cli(&["export", "acme", resource, "--format", "jsonl"]).done().stdout;
    let mut records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for record in &mut records {
        for name in ["id", "created_at", "updated_at", "etag"] {
            record.as_object_mut().unwrap().remove(name);
        }
    }
    records
}

/// These members of each record of the resource.
fn members(data_dir: &DataDir, resource: &str, names: &[&str]) -> Vec<Value> {
    let pick = |record: &Value| names.iter().map(|name| record[*name].clone()).collect();
    exported(data_dir, resource).iter().map(pick).collect()
}

#[test]
fn the_recipe_of_a_german_spreadsheet_imports_its_file() {
    let data_dir = DataDir::acme();
    let recipe = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/recipes").join(name);
        path.to_str().unwrap().to_owned()
    };
    let (file, map) = (recipe("kunden.csv"), recipe("kunden.toml"));
    data_dir.cli(&["import", "acme", "customers", &file, "--map", &map]).done();
    let records = exported(&data_dir, "customers");
    let first = json!({"name": "Müller & Söhne GmbH", "customer_number": "00001",
        "email": "info@mueller.example", "phone": "+49 351 12345", "street": "Hauptstraße 12",
        "postal_code": "01067", "city": "Dresden", "country": "DE", "status": "active",
        "customer_since": "2017-07-16", "notes": "Rechnung per E-Mail",
        "custom": {"interne_nr": "17"}});
    assert_eq!((records.len(), &records[0]), (3, &first));
    let draft = data_dir.cli(&["import", "acme", "customers", &file, "--draft-map"]).done().stdout;
    assert!(corrections(&draft, &std::fs::read_to_string(map).unwrap()) <= 2, "{draft}");
}

/// The recipe: devices that name customers and people by their names, and then the same list a
/// week later.
#[test]
fn the_recipe_of_a_list_of_devices_works_as_printed() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    let home = data_dir.home();
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/recipes");
    for file in ["kunden.csv", "kunden.toml", "personen.csv", "geraete.csv"] {
        fs::copy(recipes.join(file), home.join(file)).unwrap();
    }
    let run = |words: &[&str]| data_dir.cli(words).done().stdout;
    run(&["import", "acme", "customers", "kunden.csv", "--map", "kunden.toml"]);
    run(&["import", "acme", "employees", "personen.csv"]);

    let import = ["import", "acme", "hardware", "geraete.csv"];
    fs::write(home.join("geraete.toml"), run(&[&import[..], &["--draft-map"]].concat())).unwrap();
    run(&[&import[..], &["--map", "geraete.toml"]].concat());
    let names = ["name", "customer_id", "employee_id", "warranty_until", "purchase_cost_cents"];
    let expected = [
        json!(["ThinkPad T14", 1, 1, "2027-03-01", 129_950]),
        json!(["Kassendrucker", 2, null, null, 21_900]),
        json!(["Server", 2, 2, "2026-12-01", null]),
    ];
    assert_eq!(members(&data_dir, "hardware", &names), expected);

    let backdate = "UPDATE hardware SET updated_at = '2026-11-20T08:00:00Z',
                      created_at = '2026-11-19T08:00:00Z';
                    UPDATE changes SET at = '2026-11-20T08:00:00Z';";
    database(&tenant.file()).execute_batch(backdate).unwrap();
    run(&["export", "acme", "hardware", "--names", "--output", "liste.csv"]);
    fs::write(home.join("office.csv"), "id,status\n1,in_repair\n").unwrap();
    run(&["import", "acme", "hardware", "office.csv", "--update-by", "id"]);
    let list = fs::read_to_string(home.join("liste.csv")).unwrap();
    assert!(list.contains("2026-11-19T08:00:00Z,2026-11-20T08:00:00Z"), "{list}");
    fs::write(home.join("liste.csv"), list.replace("ThinkPad T14", "ThinkPad T14 (Eva)")).unwrap();
    let update = ["import", "acme", "hardware", "liste.csv", "--update-by", "id"];
    let said = run(&update);
    assert!(said.ends_with("name \"ThinkPad T14\" → \"ThinkPad T14 (Eva)\"\n"), "{said}");
    let record = &exported(&data_dir, "hardware")[0];
    assert_eq!([&record["name"], &record["status"]], ["ThinkPad T14 (Eva)", "in_repair"]);
}

#[test]
fn an_exported_workbook_is_imported_without_a_change() {
    let data_dir = DataDir::acme();
    let rows = "name,notes\nWindows,\"one\r\ntwo\rthree _x0041_ _x000D_ _xz _x005F_\"\n\
                Control,\"\u{1}\u{b}\u{1f}\u{fffe}\"\n";
    std::fs::write(data_dir.home().join("in.csv"), rows).unwrap();
    data_dir.cli(&["import", "acme", "customers", "in.csv"]).done();
    data_dir.cli(&["export", "acme", "customers", "--output", "w.xlsx"]).done();
    let again =
        data_dir.cli(&["import", "acme", "customers", "w.xlsx", "--update-by", "id"]).done();
    assert!(again.stdout.contains("0 changed, 2 unchanged"), "{}", again.stdout);
    assert!(!again.stderr.contains("sheet"), "there is no other one: {}", again.stderr);
}

/// The draft of a map for this file has each of these lines.
#[track_caller]
fn assert_draft(resource: &str, rows: &str, lines: &[&str]) {
    let data_dir = DataDir::acme();
    fs::write(data_dir.home().join("d.csv"), rows).unwrap();
    let import = ["import", "acme", resource, "d.csv", "--draft-map"];
    let draft = data_dir.cli(&import).done().stdout;
    for line in lines {
        assert!(draft.contains(line), "{line}: {draft}");
    }
}

#[test]
fn a_draft_turns_no_word_into_its_opposite_and_keeps_custom_fields() {
    assert_draft(
        "hardware",
        "name,status,custom.raum,Besitzer,Garantie,Kaufdatum\n\
         A,inaktiv,2.00,Eva,24 Monate,?\nB,nicht im Lager,,,,1.2.24\nC,im Lager,,,,\n",
        &[
            r#""custom.raum" = "custom.raum""#,
            r##"# "inaktiv" = """##,
            r#""Besitzer" = "employee_name""#,
            r##""Garantie" = ""  # or "custom.garantie": "24 Monate""##,
            r#""Kaufdatum" = "purchase_date""#,
            r##"# "nicht im Lager" = """##,
            r#""im Lager" = "in_stock""#,
        ],
    );
}

/// The number of lines of the map that the draft does not have.
fn corrections(draft: &str, map: &str) -> usize {
    let lines = |text: &str| -> Vec<String> {
        let meant = text.lines().map(|line| line.split('#').next().unwrap().trim().to_owned());
        meant.filter(|line| !line.is_empty()).collect()
    };
    let draft = lines(draft);
    lines(map).into_iter().filter(|line| !draft.contains(line)).count()
}

/// A German file of 20 columns, four forms of dates and amounts with commas: as CSV in Windows-1252,
/// and the same as a workbook of LibreOffice. The draft needs five corrections.
#[test]
#[ignore = "needs LibreOffice; `make proof` runs it"]
fn proof_a_german_file_has_a_draft_that_needs_few_corrections_in_two_forms() {
    const LEFT_OUT: [(&str, &str); 4] = [
        ("Standort", "custom.standort"),
        ("Raum", "custom.raum"),
        ("IP-Adresse", "custom.ip_adresse"),
        ("Betriebssystem", "custom.betriebssystem"),
    ];
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/spreadsheets");
    let mut all = Vec::new();
    for ending in ["csv", "xlsx"] {
        let data_dir = DataDir::acme();
        let home = data_dir.home();
        fs::write(home.join("c.csv"), "name,customer_number,email\nMüller,00001,\nGröße,00002,\n")
            .unwrap();
        fs::write(home.join("e.csv"), "customer_number,email\n00001,eva@mueller.example\n")
            .unwrap();
        data_dir.cli(&["import", "acme", "customers", "c.csv"]).done();
        data_dir.cli(&["import", "acme", "employees", "e.csv"]).done();
        fs::copy(fixtures.join("german.csv"), home.join("german.csv")).unwrap();
        if ending != "csv" {
            // Every column as text: a person who keeps the zeros does this.
            let columns: Vec<String> = (1..=20).map(|column| format!("{column}/2")).collect();
            let filter = format!("--infilter=CSV:59,34,1,1,{}", columns.join("/"));
            let mut office = office(&data_dir);
            run(office.args(["--convert-to", ending, &filter, "german.csv"]));
        }
        let file = format!("german.{ending}");
        let import = ["import", "acme", "hardware", &file];
        let mut map = data_dir.cli(&[&import[..], &["--draft-map"]].concat()).done().stdout;
        for (heading, name) in LEFT_OUT {
            let draft = format!("\"{heading}\" = \"\"");
            assert!(map.contains(&draft), "{map}");
            map = map.replace(&draft, &format!("\"{heading}\" = \"{name}\""));
        }
        fs::write(home.join("map.toml"), map).unwrap();
        data_dir.cli(&[&import[..], &["--map", "map.toml"]].concat()).done();
        all.push(exported(&data_dir, "hardware"));
    }
    let members = ["asset_tag", "serial_number", "type", "status", "purchase_date", "is_leased"];
    let values: Vec<Value> =
        all[0].iter().map(|record| members.map(|member| record[member].clone()).into()).collect();
    let expected = [
        json!(["0001", "00417", "laptop", "in_use", "2017-07-16", true]),
        json!(["0002", "1E5", "printer", "in_stock", "2019-02-01", false]),
        json!(["0003", "CN-07", "monitor", "in_repair", "2018-05-03", false]),
        json!(["0004", null, "network", "retired", "2015-12-31", false]),
    ];
    assert_eq!(values, expected);
    let costs: Vec<_> = all[0].iter().map(|record| record["purchase_cost_cents"].clone()).collect();
    assert_eq!(costs, [262_382, 129_900, 8_990, 105_000]);
    assert_eq!(all[0][0]["custom"]["betriebssystem"], "Windows 11");
    assert!(all[1] == all[0], "{all:?}");
}

fn office(data_dir: &DataDir) -> Command {
    let mut office = Command::new("soffice");
    office.arg(format!("-env:UserInstallation=file://{}/profile", data_dir.home().display()));
    office.arg("--headless").current_dir(data_dir.home());
    office
}

#[test]
#[ignore = "needs LibreOffice; `make proof` runs it"]
fn proof_a_workbook_that_libreoffice_saves_again_changes_nothing() {
    let data_dir = DataDir::acme();
    let row = |n: usize| {
        let month = n % 12 + 1;
        format!("=1+{n} GmbH,{n:05},+4930{n},0{n:04},1E{n},2095-{month:02}-28,00{n},@x -{n}\n")
    };
    let heading = "name,customer_number,phone,postal_code,city,customer_since,custom.room,notes";
    let rows = (0..1_000).map(row).collect::<String>();
    fs::write(data_dir.home().join("c.csv"), format!("{heading}\n{rows}")).unwrap();
    data_dir.cli(&["import", "acme", "customers", "c.csv"]).done();
    data_dir.cli(&["export", "acme", "customers", "--output", "c.xlsx"]).done();
    run(office(&data_dir).args(["--convert-to", "xlsx", "--outdir", "saved", "c.xlsx"]));
    let import = ["import", "acme", "customers", "saved/c.xlsx", "--update-by", "id"];
    let said = data_dir.cli(&import).done().stdout;
    assert!(said.contains("0 created, 0 changed, 1,000 unchanged"), "{said}");
}

#[test]
fn other_sheets_are_named_and_zeros_of_a_format_are_read() {
    let data_dir = DataDir::acme();
    let mut workbook = Workbook::new();
    let cover = workbook.add_worksheet().set_name("Deckblatt").unwrap();
    cover.write(0, 0, "Kunden der Firma XY").unwrap();
    let sheet = workbook.add_worksheet().set_name("Kunden").unwrap();
    for (column, heading) in ["name", "postal_code", "custom.nr"].into_iter().enumerate() {
        sheet.write(0, column as u16, heading).unwrap();
    }
    let format = Format::new().set_num_format("[Blue]00000;@");
    for (row, code) in [(1, 1_067), (2, 80_331), (3, 9_111)] {
        sheet.write(row, 0, "Eins").unwrap();
        sheet.write_with_format(row, 1, code, &format).unwrap();
        sheet.write(row, 2, code).unwrap();
    }
    workbook.save(data_dir.home().join("k.xlsx")).unwrap();
    let import = |options: &[&str]| {
        data_dir.cli(&[&["import", "acme", "customers", "k.xlsx"], options].concat()).done()
    };
    let other = "Only the sheet \"Deckblatt\" is read. Others have rows, too: \"Kunden\". --sheet \
                 names the one to read.\n";
    assert_eq!(import(&["--draft-map"]).stderr, other);
    fs::write(data_dir.home().join("m.toml"), import(&["--draft-map"]).stdout).unwrap();
    let output = import(&["--map", "m.toml", "--dry-run"]);
    assert!(output.stdout.starts_with("0 rows ") && output.stderr == other, "{output:?}");
    let output = import(&["--sheet", "Kunden"]);
    assert_eq!(output.stderr.matches("warning: ").count(), 0, "{output:?}");
    let codes = members(&data_dir, "customers", &["postal_code"]);
    assert_eq!(json!(codes), json!([["01067"], ["80331"], ["09111"]]));
}

#[test]
fn the_sheet_and_the_faults_of_a_workbook_are_named() {
    let data_dir = DataDir::acme();
    let file = "tests/fixtures/spreadsheets/openpyxl.xlsx";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    for (sheet, faults) in [
        ("Faults", &["cell A2: name: invalid_row: ", "cell B2: purchase_date: invalid_date: "][..]),
        ("Faults", &["cell C2: notes: invalid_row: The cell has the error #N/A."]),
        ("Title", &["row 1: -: invalid_row: ", "delete the rows above"]),
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

/// A workbook of one sheet with the column `name`.
fn workbook(parts: &[(&str, &str)]) -> Vec<u8> {
    let relation = |kind: &str, target: &str| {
        format!(
            "<Relationships><Relationship Id=\"1\" Type=\"x/relationships/{kind}\" \
             Target=\"{target}\"/></Relationships>"
        )
    };
    let sheet = "<worksheet><sheetData><row><c t=\"str\"><v>name</v></c></row><row><c t=\"str\">\
                 <v>Original</v></c></row></sheetData></worksheet>";
    let own = [
        ("_rels/.rels", relation("officeDocument", "xl/workbook.xml")),
        ("xl/_rels/workbook.xml.rels", relation("worksheet", "a.xml")),
        ("xl/a.xml", sheet.to_owned()),
    ];
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let own = own.iter().map(|(name, text)| (*name, text.as_str()));
    for (name, text) in own.chain(parts.iter().copied()) {
        let stored = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored);
        archive.start_file(name, stored).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// The last three make the reading process allocate too much, or crash.
#[test]
#[ignore = "takes 5 s; `make proof` runs it"]
fn proof_a_harmful_workbook_is_refused_with_a_clear_error() {
    const LARGE: &str = "error: the workbook needs more than 300 MiB of memory or 60 s to read; split \
                         it, or save its sheet as CSV; nothing was imported\n";
    let book = "<workbook><sheets><sheet name=\"A\" r:id=\"1\"/></sheets></workbook>";
    let names = format!("<sheet name=\"{}\" r:id=\"1\"/>", "n".repeat(1 << 20)).repeat(300);
    let names = format!("<workbook><sheets>{names}</sheets></workbook>");
    let formats = format!(
        "<styleSheet><numFmts><numFmt numFmtId=\"200\" formatCode=\"{}\"/></numFmts><cellXfs>{}\
         </cellXfs></styleSheet>",
        "0".repeat(1 << 20),
        "<xf numFmtId=\"200\"></xf>".repeat(1_000)
    );
    let whole = workbook(&[("xl/workbook.xml", book)]);
    let at = whole.windows(8).position(|bytes| bytes == b"Original").unwrap();
    let mut tampered = whole.clone();
    tampered[at..at + 8].copy_from_slice(b"Tampered");
    let data_dir = DataDir::acme();
    for (bytes, message) in [
        (whole, ""),
        (tampered, "damaged, or unusual: xl/a.xml: Invalid checksum; open it in a spreadsheet"),
        (workbook(&[("xl/workbook.xml", &names)]), LARGE),
        (workbook(&[("xl/workbook.xml", book), ("xl/styles.xml", &formats)]), LARGE),
        (
            workbook(&[
                ("xl/workbook.xml", book),
                ("xl/sharedStrings.xml", "<sst uniqueCount=\"99999999999999999\"></sst>"),
            ]),
            "nothing was imported\n",
        ),
    ] {
        fs::write(data_dir.home().join("w.xlsx"), bytes).unwrap();
        for options in [&["--dry-run"][..], &["--dry-run", "--json"]] {
            let import = [&["import", "acme", "customers", "w.xlsx"], options].concat();
            let output = data_dir.cli(&import);
            assert_eq!(output.code, Some(i32::from(!message.is_empty())), "{output:?}");
            assert!(output.stderr.contains(message), "{output:?}");
            assert_eq!(output.stdout.is_empty(), !message.is_empty(), "{output:?}");
        }
    }
}

#[test]
fn a_csv_file_of_another_program_is_read_by_its_cells() {
    let data_dir = DataDir::acme();
    let home = data_dir.home();
    let rows = "\"Name, Firma\";Straße, Nr.;Seit;custom.bis\nMüller, Eva;Weg 1;März 2019;1.2.29\n\
                Maier, Tom;Weg 2;2019-04-01 00:00:00;\n";
    fs::write(home.join("c.csv"), rows).unwrap();
    let map = "[columns]\n\"Name, Firma\" = \"name\"\n\"Straße, Nr.\" = \"street\"\n\
               Seit = \"customer_since\"\n[values.city]\n[formats]\n\
               date = [\"D.M.YY\", \"MMMM YYYY\"]\ncustom_dates = [\"bis\"]\n";
    fs::write(home.join("m.toml"), map).unwrap();
    data_dir.cli(&["import", "acme", "customers", "c.csv", "--map", "m.toml"]).done();
    let names = ["name", "street", "customer_since", "custom"];
    let expected = [
        json!(["Müller, Eva", "Weg 1", "2019-03-01", {"bis": "2029-02-01"}]),
        json!(["Maier, Tom", "Weg 2", "2019-04-01", {}]),
    ];
    assert_eq!(members(&data_dir, "customers", &names), expected);

    fs::write(home.join("dos.csv"), b"name;city\nM\x81ller;K\x94ln\n").unwrap();
    let import = ["import", "acme", "customers", "dos.csv"];
    let output = data_dir.cli(&import).ends_with(1);
    assert!(output.stderr.contains("iconv -f CP850"), "{output:?}");
    fs::write(home.join("m.toml"), "[formats]\nencoding = \"windows-1252\"\n").unwrap();
    let output = data_dir.cli(&[&import[..], &["--map", "m.toml"]].concat()).ends_with(1);
    assert!(output.stderr.contains("line 2: -: invalid_row: The row does not fit"), "{output:?}");

    let amounts = "name|purchase_cost\nPC one|1 299,50 €\nPC two|1\u{a0}000\n";
    fs::write(home.join("h.csv"), amounts).unwrap();
    let map = "[formats]\ndelimiter = \"|\"\ndecimal = \",\"\nthousands = \" \"\n";
    fs::write(home.join("m.toml"), map).unwrap();
    data_dir.cli(&["import", "acme", "hardware", "h.csv", "--map", "m.toml"]).done();
    let costs = members(&data_dir, "hardware", &["purchase_cost_cents"]);
    assert_eq!(json!(costs), json!([[129_950], [100_000]]));
}

#[test]
fn a_draft_looks_into_the_cells() {
    assert_draft(
        "employees",
        "Vorname;Nachname;Abteilung;Status;Eintritt\nEva;Maier;IT;Aktiv;März 2019\n\
         Tom;Beck;IT;inactiv;2019-04-01 00:00\n",
        &[
            r#""Status" = "is_active""#,
            r#""Aktiv" = "true""#,
            r#""inactiv" = "false""#,
            r#""Eintritt" = "start_date""#,
            r#"date = "MMMM YYYY""#,
        ],
    );
    let (customer, employee) =
        (r#""Kunde" = "customer_name""#, r#""Anwender" = "employee_number""#);
    let rows = "Gerät;Kunde;Anwender\nPC;Müller GmbH;P-1\nPC;Beck;P-2\n";
    assert_draft("hardware", rows, &[customer, employee]);
    for rows in [
        "Gerät;Kundennr.;Kunde;gekauft am;Garantie bis\nPC;K-1;;01/02/2026;März 2027\nPC;;Beck;;\n",
        "Gerät;Kunde;Kundennr.;gekauft am;Garantie bis\nPC;Beck;K-1;01/02/2026;März 2027\n",
    ] {
        let months = "  # or months before days: \"MM/DD/YYYY\"  # a month is its first day";
        let number = r#""Kundennr." = "customer_number""#;
        assert_draft("hardware", rows, &[number, customer, months]);
    }
    let people = "Vorname;Nachname;Abteilung;E-Mail\nEva;Maier;IT;a@b.example\n";
    assert_draft("customers", people, &["# This file looks like employees, not customers.\n"]);
}

/// The owner exports, a colleague changes a phone number, and the owner imports the list.
#[test]
fn a_list_that_is_a_week_old_overwrites_nothing() {
    let server = TestServer::start();
    let tenant = server.tenant("acme");
    let api = tenant.with_scopes(ALL);
    let customer =
        |name: &str, phone: &str| json!({"name": name, "phone": phone, "city": "Dresden"});
    for name in ["Müller", "Beck"] {
        api.post("/customers.php", customer(name, "0351 1")).created();
    }
    database(&tenant.file())
        .execute_batch(
            "UPDATE changes SET at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-7 days');
             UPDATE customers SET updated_at = (SELECT max(at) FROM changes),
               created_at = (SELECT max(at) FROM changes);",
        )
        .unwrap();
    let csv = server.cli(&["export", "acme", "customers", "--output", "list.csv"]).done();
    assert!(csv.stderr.is_empty(), "{csv:?}");
    server.cli(&["export", "acme", "customers", "--output", "list.xlsx"]).done();
    let home = server.home();
    let csv = fs::read_to_string(home.join("list.csv")).unwrap();
    api.put("/customers.php?id=1", customer("Müller", "0351 2")).found();

    let import = |file: &str, options: &[&str]| {
        let import = ["import", "acme", "customers", file, "--update-by", "id"];
        server.cli(&[&import[..], options].concat())
    };
    // The workbook as it was exported changes nothing.
    let output = import("list.xlsx", &[]).done();
    assert!(output.stdout.contains("0 changed, 2 unchanged"), "{output:?}");

    fs::write(home.join("list.csv"), csv.replacen("Dresden", "Bonn", 1)).unwrap();
    let line = "\nline 2: customer 1 \"Müller\": city \"Dresden\" → \"Bonn\"\n";
    for options in [&["--dry-run"][..], &[]] {
        let output = import("list.csv", options).done();
        assert!(output.stdout.ends_with(line), "{output:?}");
    }
    let stored = api.get("/customers.php?id=1").found();
    assert_eq!([&stored["phone"], &stored["city"]], ["0351 2", "Bonn"]);

    fs::write(home.join("list.csv"), csv.replacen("0351 1", "0351 3", 1)).unwrap();
    let output = import("list.csv", &[]).ends_with(1);
    let start = "line 2: phone: changed_meanwhile: phone was \"0351 1\" at the export, is \"0351 2\" \
                 since ";
    let end = " \"a test's\"), and \"0351 3\" in the file\n";
    assert!(output.stderr.starts_with(start) && output.stderr.contains(end), "{output:?}");
    let document = import("list.csv", &["--overwrite", "--dry-run", "--json"]).done().json();
    let fields = json!({"phone": {"old": "0351 2", "new": "0351 3"},
        "city": {"old": "Bonn", "new": "Dresden"}});
    let change = json!({"line": 2, "row": 2, "id": 1, "name": "Müller", "fields": fields});
    assert_eq!((&document["changes"], &document["changed"]), (&json!([change]), &json!(1)));
    let output = import("list.csv", &["--overwrite", "--dry-run"]).done();
    let warning = "--overwrite takes back 2 values that others have changed since the export.";
    assert!(output.stderr.contains(warning), "{output:?}");
}

#[test]
fn an_edit_back_to_a_value_of_the_same_second_is_named_and_has_a_cure() {
    let data_dir = DataDir::new(false);
    let tenant = data_dir.tenant("acme");
    let home = data_dir.home();
    fs::write(home.join("new.csv"), "name,phone\nMüller,1\n").unwrap();
    data_dir.cli(&["import", "acme", "customers", "new.csv"]).done();
    let import = || data_dir.cli(&["import", "acme", "customers", "list.csv", "--update-by", "id"]);
    fs::write(home.join("list.csv"), "id,phone\n1,2\n").unwrap();
    import().done();
    database(&tenant.file())
        .execute_batch(
            "UPDATE changes SET at = (SELECT min(at) FROM changes);
             UPDATE customers SET updated_at = (SELECT min(at) FROM changes),
               created_at = updated_at;",
        )
        .unwrap();
    let list = data_dir.cli(&["export", "acme", "customers", "--format", "csv"]).done().stdout;
    let list = list.replace(",2,", ",1,");
    fs::write(home.join("list.csv"), &list).unwrap();
    let output = import().done();
    assert!(output.stdout.contains("0 changed, 1 unchanged"), "{output:?}");
    assert!(output.stderr.contains("warning: phone is not stored from line 2: "), "{output:?}");
    // The cure of the message.
    let (before, _) = list.trim_end().rsplit_once(',').unwrap();
    fs::write(home.join("list.csv"), format!("{before},\n")).unwrap();
    let output = import().done();
    assert!(output.stdout.contains("phone \"2\" → \"1\""), "{output:?}");
}

#[test]
fn an_export_with_names_goes_back_in() {
    let data_dir = DataDir::acme();
    let home = data_dir.home();
    let write = |file: &str, text: &str| fs::write(home.join(file), text).unwrap();
    write("c.csv", "name,customer_number\nMüller,007\nBeck,008\n");
    write(
        "e.csv",
        "customer_name,employee_number,email,first_name\nMüller,P-1,eva@b.example,Eva\n",
    );
    write(
        "h.csv",
        "name,employee_name,purchase_cost,is_leased\nLaptop,Eva,1299.50,true\nServer,,0,\n",
    );
    for (resource, file) in [("customers", "c.csv"), ("employees", "e.csv"), ("hardware", "h.csv")]
    {
        data_dir.cli(&["import", "acme", resource, file]).done();
    }
    for format in ["csv", "jsonl", "xlsx"] {
        let file = format!("names.{format}");
        let export = ["export", "acme", "hardware", "--names", "--output", &file];
        data_dir.cli(&export).done();
        let import = ["import", "acme", "hardware", &file, "--update-by", "id", "--dry-run"];
        let output = data_dir.cli(&import).done();
        assert!(output.stdout.contains("0 changed, 2 unchanged"), "{output:?}");
    }
    let csv = fs::read_to_string(home.join("names.csv")).unwrap();
    let readable = "employee_id,employee_number,employee_email,employee_name,customer_id,\
                    customer_number,customer_name,";
    assert!(csv.starts_with(&format!("id,name,{readable}")), "{csv}");
    assert!(csv.contains("Laptop,1,P-1,eva@b.example,Eva,1,007,Müller,"), "{csv}");
    assert!(csv.contains(",purchase_cost,") && csv.contains(",1299.50,"), "{csv}");
    assert!(csv.contains(",0.00,"), "a gift: {csv}");
    write("names.csv", &csv.replace("Müller", "Beck"));
    let output = data_dir
        .cli(&["import", "acme", "hardware", "names.csv", "--update-by", "id"])
        .ends_with(1);
    let fault = "line 2: customer_name: bad_request: No customer has customer_id 1 and \
                 customer_number \"007\" and customer_name \"Beck\".";
    assert!(output.stderr.starts_with(fault), "{output:?}");
    let mut workbook =
        zip::ZipArchive::new(fs::File::open(home.join("names.xlsx")).unwrap()).unwrap();
    let sheet = workbook.by_name("xl/worksheets/sheet1.xml").unwrap();
    let sheet = std::io::read_to_string(sheet).unwrap();
    assert!(sheet.contains("r=\"A2\""), "no row is empty: {sheet}");
    for list in ["\"in_use,in_stock,in_repair,retired,lost\"", "\"TRUE,FALSE\""] {
        assert!(sheet.contains(&format!("<formula1>{list}</formula1>")), "{list}");
    }
}
