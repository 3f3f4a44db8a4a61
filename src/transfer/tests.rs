//! Import and export against the file of a tenant.

use std::collections::HashMap;
use std::path::Path;

use uuid::Uuid;

use super::*;
use crate::clock::Clock;
use crate::model::{CUSTOMER, EMPLOYEE, HARDWARE, Resource, TenantId};
use crate::store::{Actor, ChangeContext, DataDir, Registry, TenantFile};

const NOW: &str = "2026-11-20T19:30:00Z";

pub(super) struct Fixture {
    directory: tempfile::TempDir,
}

/// An import without its map.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub resource: &'static Resource,
    pub format: FileFormat,
    pub mode: Mode,
    pub overwrite: bool,
    pub dry_run: bool,
    /// When it runs.
    pub at: &'static str,
}

impl Fixture {
    /// A data directory with the tenants 1 and 2.
    pub(super) fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        DataDir::create(directory.path()).unwrap();
        let registry = Registry::open(directory.path()).unwrap();
        for name in ["one", "two"] {
            registry.create_tenant(name, None, "$phc", None, Clock::system().now()).unwrap();
        }
        Fixture { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn file(&self, id: i64) -> TenantFile {
        TenantFile::open(self.path(), TenantId(id)).unwrap()
    }

    pub(super) fn import(
        &self,
        import: Job,
        text: &[u8],
    ) -> (Result<Imported, TransferError>, Vec<String>) {
        self.import_with("", import, text)
    }

    fn import_with(
        &self,
        map: &str,
        import: Job,
        text: &[u8],
    ) -> (Result<Imported, TransferError>, Vec<String>) {
        match import.format {
            FileFormat::Xlsx => match rows_of(text) {
                Ok(rows) => self.import_rows(map, import, &rows),
                Err(message) => (Err(unsuitable(message)), Vec::new()),
            },
            _ => self.import_rows(map, import, text),
        }
    }

    /// Imports a text, or the rows of a workbook.
    fn import_rows(
        &self,
        map: &str,
        Job { resource, format, mode, overwrite, dry_run, at }: Job,
        rows: &[u8],
    ) -> (Result<Imported, TransferError>, Vec<String>) {
        let map = Map::parse(map, resource).unwrap();
        let import = Import { resource, map: &map, mode, overwrite, dry_run };
        let source = InputFile::new(format, rows, &map);
        let mut errors = Vec::new();
        let mut report = |finding: Finding<'_>| {
            if let Finding::Fault(error) = finding {
                errors.push(error.to_string());
            }
            Ok(())
        };
        let context = || context(at);
        let outcome = import.run(source, &mut self.file(1), context, || (), &mut report);
        (outcome, errors)
    }

    /// Removes the entries of the change log before `at`, and those of that second.
    #[expect(clippy::disallowed_methods, reason = "no pragma matters here")]
    pub(super) fn forget_changes(&self, at: &str) {
        let path = self.path().join("tenants/1.db");
        let file = rusqlite::Connection::open(path).unwrap();
        let sql = "INSERT OR REPLACE INTO changes_removed (resource, seq, at)
                     SELECT resource, max(seq), max(at) FROM changes WHERE at <= ?1 GROUP BY resource";
        file.execute(sql, [at]).unwrap();
        file.execute("DELETE FROM changes WHERE at <= ?1", [at]).unwrap();
    }

    pub(super) fn accepts(&self, resource: &'static Resource, format: FileFormat, text: &str) {
        let (outcome, errors) = self.import(import(resource, format), text.as_bytes());
        assert_eq!((outcome.map_err(|e| e.to_string()).is_ok(), errors), (true, Vec::new()));
    }

    /// The errors of a file that is rejected, each as line, column and code.
    fn rejects(&self, import: Job, text: &[u8]) -> Vec<String> {
        let before = self.export(1, import.resource, FileFormat::JsonLines);
        let (outcome, errors) = self.import(import, text);
        assert!(matches!(outcome, Err(TransferError::InvalidRows { .. })), "{outcome:?}");
        assert_eq!(
            self.export(1, import.resource, FileFormat::JsonLines),
            before,
            "something was imported"
        );
        errors
            .iter()
            .map(|line| line.splitn(4, ": ").take(3).collect::<Vec<_>>().join(": "))
            .collect()
    }

    pub(super) fn export(
        &self,
        id: i64,
        resource: &'static Resource,
        format: FileFormat,
    ) -> String {
        let mut text = Vec::new();
        let export = Export { resource, format, with_names: false };
        export.run(&self.file(id), &mut text, self.path(), || ()).unwrap();
        String::from_utf8(text).unwrap()
    }
}

pub(super) fn context(at: &str) -> ChangeContext {
    let actor = Actor::Command { name: "import".to_owned(), run: Uuid::nil() };
    ChangeContext { at: at.parse().unwrap(), actor }
}

pub(super) const fn import(resource: &'static Resource, format: FileFormat) -> Job {
    Job { resource, format, mode: Mode::Add, overwrite: false, dry_run: false, at: NOW }
}

pub(super) fn update(resource: &'static Resource, format: FileFormat, name: &str) -> Job {
    Job { mode: Mode::update_by(resource, name).unwrap(), ..import(resource, format) }
}

/// The records of an exported CSV file by column.
pub(super) fn records(csv: &str) -> Vec<HashMap<String, String>> {
    ::csv::Reader::from_reader(csv.as_bytes()).deserialize().map(Result::unwrap).collect()
}

const CSV: FileFormat = FileFormat::Csv;
const JSON: FileFormat = FileFormat::JsonLines;
const XLSX: FileFormat = FileFormat::Xlsx;

#[test]
fn an_export_is_imported_without_loss() {
    let fixture = Fixture::new();
    let notes = "Zeile 1\r\nZeile 2\n\"quoted\", ; \t ' ü € 😀 \r end";
    let line = serde_json::json!({
        "name": "=1+1 Müller; \"Söhne\"",
        "notes": notes,
        "country": "DE",
        "phone": "+49",
        "customer_since": "2024-02-29",
        "status": "inactive",
        "city": null,
        "street": "",
        "id": 77,
    });
    fixture.accepts(&CUSTOMER, JSON, &format!("{line}\n{{\"name\": \"Second\"}}"));
    fixture.accepts(
        &EMPLOYEE,
        CSV,
        "customer_id,email,is_active\n2,a@b.example,0\n1,c@d.example,TRUE\n1,c@d.example,\n",
    );
    fixture.accepts(
        &HARDWARE,
        CSV,
        "name,employee_id,purchase_cost_cents,is_leased\nA laptop,1,-5,1\nA thing,,,\n",
    );
    for resource in crate::model::ALL {
        for format in [CSV, JSON] {
            let text = fixture.export(1, resource, format);
            let copy = Fixture::new();
            for earlier in crate::model::ALL.into_iter().take_while(|earlier| *earlier != resource)
            {
                copy.accepts(earlier, JSON, &fixture.export(1, earlier, JSON));
            }
            copy.accepts(resource, format, &text);
            assert_eq!(
                copy.export(1, resource, CSV),
                fixture.export(1, resource, CSV),
                "{} {format:?}",
                resource.name
            );
            assert_eq!(
                copy.export(1, resource, JSON),
                fixture.export(1, resource, JSON),
                "{} {format:?}",
                resource.name
            );
        }
    }
    let text = fixture.export(1, &CUSTOMER, JSON);
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["notes"], notes);
    assert_eq!(first["name"], "=1+1 Müller; \"Söhne\"");
    assert_eq!((&first["phone"], &first["street"]), (&"+49".into(), &serde_json::Value::Null));
    assert_eq!(first["created_at"], NOW);
}

#[test]
fn every_error_has_its_line_and_column() {
    let fixture = Fixture::new();
    let csv = "name,email,country,customer_since,status\n\
               A,x,DEU,2024-02-30,\"new\n\"\n\
               ,,,,\n\
               Good,,,,,,\n\
               \"a\"b,,,,\n\
               Wide,,,,,,x\n\
               Good,a@b.example,DE,2024-02-29,active\n";
    assert_eq!(
        fixture.rejects(import(&CUSTOMER, CSV), csv.as_bytes()),
        [
            "line 2: customer_since: invalid_date",
            "line 2: name: too_short",
            "line 2: email: invalid_email",
            "line 2: country: too_long",
            "line 2: status: not_in_list",
            "line 6 (row 5): -: invalid_row",
            "line 7 (row 6): -: invalid_row",
        ]
    );
    let lines = b"{\"name\": \"Good\"}\n{\"name\": 5, \"nmae\": 1}\n\n[]\n\
          {\"name\": 5}\n{\"name\": \"a\\u0000b\"}\n{\xff}\n";
    assert_eq!(
        fixture.rejects(import(&CUSTOMER, JSON), lines),
        [
            "line 2: nmae: unknown_column",
            "line 4: -: invalid_row",
            "line 5: name: bad_request",
            "line 6: name: bad_request",
            "line 7: -: invalid_row",
        ]
    );
}

#[test]
fn the_header_has_any_order_and_known_columns() {
    let fixture = Fixture::new();
    for (text, expected) in [
        (
            format!("{}nmae,city\nx,y\n", ",".repeat(26)),
            "line 1: nmae: unknown_column: Unknown column 27 (AA) \"nmae\". Did you mean \"name\"?",
        ),
        (
            "name;city;;name\n".to_owned(),
            "line 1: name: bad_request: Column 1 (A) \"name\" and column 4 (D) \"name\" set the \
             same field. Keep one.",
        ),
        (
            "name;;city;\nGood;;;\nBad;;;x\n".to_owned(),
            "line 3: -: invalid_row: The value \"x\" stands in column 4 (D), which has no heading. \
             If it belongs to the cell before it, put that cell in quotes.",
        ),
    ] {
        let (_, errors) = fixture.import(import(&CUSTOMER, CSV), text.as_bytes());
        assert_eq!(errors, [expected]);
    }
    let (_, errors) = fixture.import(import(&CUSTOMER, CSV), b"Firma,Ort,PLZ\n");
    let lists = errors.iter().map(|error| error.contains("Known here: ")).collect::<Vec<_>>();
    assert_eq!(lists, [true, false, false, false], "the columns are listed once: {errors:?}");
    let title = "line 1: -: invalid_row: No heading of this row is known. If the row is a title,";
    assert!(errors[3].starts_with(title), "{errors:?}");
    assert_eq!(fixture.rejects(import(&CUSTOMER, CSV), b""), ["line 1: -: invalid_row"]);
    let wide = "name,".repeat(1_001);
    assert_eq!(
        fixture.rejects(import(&CUSTOMER, CSV), wide.as_bytes()),
        ["line 1: -: invalid_row"]
    );
    fixture.accepts(
        &CUSTOMER,
        CSV,
        "\u{feff}notes; created_at;;name ;id;\r\n\"a;b\";soon;;\" Eins\";x;\r\n;;;Zwei, drei ;;;\r\n;;;",
    );
    let text = fixture.export(1, &CUSTOMER, CSV);
    let records = records(&text);
    let first =
        ["id", "name", "status", "notes", "country"].map(|column| records[0][column].as_str());
    assert_eq!(first, ["1", "Eins", "active", "a;b", ""]);
    assert_ne!(records[0]["created_at"], "soon");
    assert_eq!((records[1]["id"].as_str(), records[1]["name"].as_str()), ("2", "Zwei, drei"));
}

#[test]
fn headings_match_without_case_and_with_spaces_and_hyphens() {
    let fixture = Fixture::new();
    let text = "NAME,Serial Number,Purchase-Cost,Custom.Room\nPC,S-1,1299.5,2.14\n";
    fixture.accepts(&HARDWARE, CSV, text);
    let csv = fixture.export(1, &HARDWARE, CSV);
    let columns = ["name", "serial_number", "purchase_cost_cents", "custom.room"];
    let record = &records(&csv)[0];
    assert_eq!(columns.map(|column| &*record[column]), ["PC", "S-1", "129950", "2.14"]);
    let both = b"name,purchase_cost,purchase_cost_cents\n";
    let double = ["line 1: purchase_cost_cents: bad_request"];
    assert_eq!(fixture.rejects(import(&HARDWARE, CSV), both), double);
    let exact = b"{\"Name\": \"PC\"}\n";
    assert_eq!(fixture.rejects(import(&HARDWARE, JSON), exact), ["line 1: Name: unknown_column"]);
}

#[test]
fn a_row_that_ends_early_is_complete_unless_the_file_may_be_cut_off() {
    let fixture = Fixture::new();
    let text = "name,city,notes\nEins,Ulm\nZwei\n\"Drei\"\nVier,Bonn,x";
    fixture.accepts(&CUSTOMER, CSV, text);
    let errors = fixture.rejects(import(&CUSTOMER, CSV), b"name,city\nEins,Ulm\nZw");
    assert_eq!(errors, ["line 3: -: invalid_row"]);
}

#[test]
fn files_of_other_kinds_are_named() {
    let fixture = Fixture::new();
    for (start, name) in [
        (&b"\xff\xfen\0a\0"[..], "UTF-16"),
        (b"n\0a\0", "UTF-16"),
        (b"\xff\xfe\0\0n\0\0\0", "UTF-32"),
        (b"PK\x03\x04", "workbook"),
        (b"\xd0\xcf\x11\xe0\xa1", "Excel"),
        (b"<!DOCTYPE html>", "HTML"),
        (b"#TYPE System.Object\r\n", "PowerShell"),
    ] {
        let (_, errors) = fixture.import(import(&CUSTOMER, CSV), start);
        let is_named = errors.len() == 1 && errors[0].contains(name);
        assert!(is_named && errors[0].starts_with("line 1: -: invalid_row"), "{errors:?}");
    }
}

const MAP: &str = r#"
    other_columns = "ignore"
    [columns]
    "Gerät" = "name"
    "Preis" = "purchase_cost"
    "Kaufdatum" = "purchase_date"
    "Raum" = "custom.room"
    "Intern" = ""
    "Fehlt" = "model"
    [values.type]
    "Drucker" = "printer"
    [values.is_leased]
    "ja" = "true"
    [formats]
    date = ["DD.MM.YYYY", "MM/DD/YY"]
    decimal = ","
    encoding = "windows-1252"
"#;

#[test]
fn a_map_gives_names_words_and_formats() {
    let fixture = Fixture::new();
    let text = b"Ger\xe4t;Preis;Kaufdatum;Raum;Intern;Type;is_leased;Mehr\n\
                 B\xfcro;1.299,50 \x80;16.7.17;2.14;x; Drucker ;ja;y\n\
                 PC;-3,5;12/31/1969;;;laptop;false;\n\
                 PC;;2024-02-29;;;laptop;1;\n";
    let (outcome, errors) = fixture.import_with(MAP, import(&HARDWARE, CSV), text);
    assert_eq!((counts(outcome), errors), ((3, 0, 0), Vec::new()));
    let csv = fixture.export(1, &HARDWARE, CSV);
    let columns =
        ["name", "purchase_cost_cents", "purchase_date", "custom.room", "type", "is_leased"];
    let records: Vec<_> =
        records(&csv).iter().map(|record| columns.map(|column| record[column].clone())).collect();
    assert_eq!(records[0], ["Büro", "129950", "2017-07-16", "2.14", "printer", "true"]);
    assert_eq!(records[1], ["PC", "-350", "1969-12-31", "", "laptop", "false"]);
    assert_eq!(records[2], ["PC", "", "2024-02-29", "", "laptop", "true"]);
    let text = b"Ger\xe4t;Preis;Kaufdatum\nPC;1299.50;31/12/69\nPC;1.29,00;1.1.202\n";
    let (_, errors) = fixture.import_with(MAP, import(&HARDWARE, CSV), text);
    let codes = ["purchase_cost (Preis): invalid_int", "purchase_date (Kaufdatum): invalid_date"];
    assert!((0..4).all(|n| errors[n].contains(codes[n % 2])), "{errors:?}");
}

#[test]
fn a_map_that_does_not_fit_the_file_is_a_fault_or_a_warning() {
    let fixture = Fixture::new();
    let encoding = "[formats]\nencoding = \"windows-1252\"\n";
    for text in ["name\nBäckerei\n", "name,Gerät\nA,\n"] {
        let (outcome, errors) =
            fixture.import_with(encoding, import(&CUSTOMER, CSV), text.as_bytes());
        assert!(outcome.is_err() && errors.len() == 1, "{errors:?}");
        assert!(errors[0].contains("The row is UTF-8, but the map"), "{errors:?}");
    }
    for text in [&b"name\nB\xe4ckerei\n"[..], "\u{feff}name\nBäckerei\n".as_bytes()] {
        let (outcome, errors) = fixture.import_with(encoding, import(&CUSTOMER, CSV), text);
        assert_eq!((counts(outcome), errors), ((1, 0, 0), Vec::new()));
    }
    let map = "other_columns = \"ignore\"\n[columns]\n\"Ort Neu\" = \"city\"\nFirma = \"name\"\nX = \"\"\n";
    let (outcome, _) =
        fixture.import_with(map, import(&CUSTOMER, CSV), b"Firma,Ort neu\nAda,Ulm\n");
    assert_eq!(outcome.unwrap().absent_headings, ["Ort Neu"]);
    let (_, errors) =
        fixture.import_with(map, import(&CUSTOMER, CSV), b"Firma,Status\nAda,x\n,active\n");
    assert!(errors[0].starts_with("line 2: status: not_in_list: "), "{errors:?}");
    assert!(errors[1].starts_with("line 3: name (Firma): required: "), "{errors:?}");
}

#[test]
fn an_update_with_null_removes_all_custom_fields() {
    let fixture = Fixture::new();
    let update = update(&CUSTOMER, JSON, "customer_number");
    for (custom, stored) in [(r#"{"os":"x"}"#, Some("x")), ("[]", Some("x")), ("null", None)] {
        let line = format!(r#"{{"customer_number":"K-1","name":"Shop","custom":{custom}}}"#);
        let (outcome, errors) = fixture.import(update, line.as_bytes());
        assert_eq!((outcome.is_ok(), errors), (true, Vec::new()));
        let record = records(&fixture.export(1, &CUSTOMER, CSV)).remove(0);
        assert_eq!(record.get("custom.os").map(|os| &**os), stored);
    }
}

#[test]
fn a_date_is_read_by_its_form() {
    for (form, text, date) in [
        ("D.M.YY", "16.12.2017", "2017-12-16"),
        ("DD.MM.YYYY", "1.2.24", "2024-02-01"),
        ("DD.MM.YYYY", "31.12.68", "2068-12-31"),
        ("DD.MM.YYYY", "1.1.69", "1969-01-01"),
        ("YYMMDD", "240131", "2024-01-31"),
        ("DDMMYYYY", "31012024", "2024-01-31"),
        ("MMMM YYYY", "MÄRZ 2019", "2019-03-01"),
        ("MMM YYYY", "Sept. 2019", "2019-09-01"),
        ("D. MMMM YYYY", "5. Dezember 2024", "2024-12-05"),
        ("MMM D YYYY", "mrz 5 2024", "2024-03-05"),
    ] {
        assert_eq!(map::parse_date(text, form).as_deref(), Some(date), "{form}");
    }
}

#[test]
fn a_fault_of_a_map_names_its_line() {
    for (map, fault) in [
        ("[column]", "line 1: Unknown field `column`, expected one of `other_columns`, `columns`"),
        ("[columns]\n\"A\" = \"nmae\"", "line 2: Unknown field \"nmae\". Did you mean \"name\"?"),
        ("\n[values.nmae]\n", "line 2: Unknown field"),
        ("[values.type]\n\"a\" = 1\n", "line 2: Invalid type: integer `1`, expected a string"),
        ("[formats]\n\ndates = \"\"", "line 3: Unknown field `dates`, expected one of `date`"),
        ("[formats]\ndate = 1", "line 2: The form of a date is a text, or an array of texts"),
        ("[formats]\ndate = \"DD.MM\"", "line 2: \"date\" has a day, a month and a year"),
        ("[formats]\ndate = \"DD.MM.JJJJ YYYY\"", "line 2: \"date\" has a day, a month and a year"),
        ("[formats]\ndecimal = \";\"", "line 2: \"decimal\" is \",\" or \".\"."),
        ("[formats]\nencoding = \"latin-99\"", "line 2: Unknown encoding"),
        ("other_columns = \"drop\"", "line 1: Unknown variant `drop`, expected `ignore`"),
        ("columns = 1", "line 1: Invalid type: integer `1`, expected a map"),
        ("[columns]\n\"A\" = ", "line 2: "),
    ] {
        let message = Map::parse(map, &HARDWARE).unwrap_err();
        assert!(message.starts_with(fault), "{map:?}: {message}");
    }
}

#[test]
fn a_new_key_that_nearly_exists_is_a_fault() {
    let fixture = Fixture::new();
    fixture.accepts(&CUSTOMER, CSV, "name,customer_number\nEins,007\nZwei,AB 12\n");
    let by_number = update(&CUSTOMER, CSV, "customer_number");
    let text = b"name,customer_number\nEins,7\nZwei,ab12\nDrei,8\n";
    let (_, errors) = fixture.import(by_number, text);
    let zeros = "line 2: customer_number: similar_record: customer_number \"7\" matches no record, \
                 but \"007\" exists; the spreadsheet may have removed zeros";
    assert_eq!((errors.len(), errors[0].as_str()), (2, zeros));
    let text = b"name,customer_number\nEins,007\nDrei,8\n";
    assert_eq!(counts(fixture.import(by_number, text).0), (1, 0, 1));
}

#[test]
fn texts_that_became_numbers_are_counted_by_field() {
    let fixture = Fixture::new();
    let before = "name,phone,postal_code,city,custom.room\nEins,+49,01067,1E5,007\n";
    fixture.accepts(&CUSTOMER, CSV, before);
    let after = b"id,phone,postal_code,city,custom.room,name\n1,49,1067,1.00E+05,7,Zwei\n";
    let imported = fixture.import(update(&CUSTOMER, CSV, "id"), after).0.unwrap();
    let names = |counts: &std::collections::BTreeMap<_, u64>| -> Vec<String> {
        counts.keys().map(std::string::ToString::to_string).collect()
    };
    assert_eq!(names(&imported.numbers), ["city", "custom.room", "phone", "postal_code"]);
    assert_eq!(names(&imported.fields), ["city", "custom.room", "name", "phone", "postal_code"]);
    let before = before.replace("Eins,", "1,").replace("name,", "id,");
    let imported = fixture.import(update(&CUSTOMER, CSV, "id"), before.as_bytes()).0.unwrap();
    assert_eq!(names(&imported.numbers), ["city"], "zeros that are back are not lost");
}

#[test]
fn a_decimal_amount_is_told_about_cents() {
    let fixture = Fixture::new();
    let text = b"name;purchase_cost_cents\nPC;1000,00\n";
    let (_, errors) = fixture.import(import(&HARDWARE, CSV), text);
    let message = "line 2: purchase_cost_cents: invalid_int: \"purchase_cost_cents\" was \
                   \"1000,00\"; send a whole number of cents such as 129900.";
    assert_eq!(errors, [message]);
}

#[test]
fn references_are_ids_or_natural_keys() {
    let fixture = Fixture::new();
    fixture.accepts(
        &CUSTOMER,
        CSV,
        "name,customer_number,email\nEins,K-1,a@b.example\nZwei,K-2,\nDrei,K-2,\n",
    );
    fixture.accepts(&EMPLOYEE, CSV, "customer_number,email\nK-1,eva@b.example\n");
    fixture.accepts(
        &EMPLOYEE,
        JSON,
        "{\"customer_email\": \"a@b.example\", \"email\": \"tom@b.example\"}\n",
    );
    fixture.accepts(&HARDWARE, CSV, "name,employee_email\nA laptop,tom@b.example\nSpare,\n");
    let text = fixture.export(1, &HARDWARE, CSV);
    let records = records(&text);
    let device = |n: usize| ["id", "name", "employee_id"].map(|column| records[n][column].as_str());
    assert_eq!([device(0), device(1)], [["1", "A laptop", "2"], ["2", "Spare", ""]]);
    let errors = fixture.rejects(
        import(&EMPLOYEE, CSV),
        b"customer_number,email\nK-2,a@b.c1\nK-9,a@b.c1\n,a@b.c1\n",
    );
    assert_eq!(
        errors,
        [
            "line 2: customer_number: ambiguous_reference",
            "line 3: customer_number: customer_not_found",
            "line 4: customer_number: required",
        ]
    );
    let errors = fixture.rejects(
        import(&HARDWARE, JSON),
        b"{\"name\": \"PC\", \"employee_id\": 9, \"employee_email\": null}\n",
    );
    assert_eq!(errors, ["line 1: employee_id: employee_not_found"]);
    let errors =
        fixture.rejects(import(&HARDWARE, JSON), b"{\"name\": \"PC\", \"employee_email\": 5}\n");
    assert_eq!(errors, ["line 1: employee_email: bad_request"]);
}

#[test]
fn ids_are_kept_only_in_a_resource_that_never_held_records() {
    let fixture = Fixture::new();
    let keep = Job { mode: Mode::KeepIds, ..import(&CUSTOMER, CSV) };
    assert_eq!(fixture.rejects(keep, b"name\nEins\n"), ["line 1: id: required"]);
    let errors = fixture.rejects(
        keep,
        b"id,name\n7,Eins\n7,Zwei\n0,Drei\nx,Vier\n,Acht\n9223372036854775807,Neun\n",
    );
    assert_eq!(
        errors,
        [
            "line 3: id: duplicate_id",
            "line 4: id: invalid_int",
            "line 5: id: invalid_int",
            "line 6: id: required",
            "line 7: id: invalid_int",
        ]
    );
    let (outcome, errors) = fixture.import(keep, b"id,name\n9,Neun\n7,Sieben\n");
    assert_eq!((outcome.unwrap().created, errors), (2, Vec::new()));
    fixture.accepts(&CUSTOMER, CSV, "id,name\n3,Zehn\n");
    let text = fixture.export(1, &CUSTOMER, CSV);
    let ids: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(ids, ["7", "9", "10"]);
    let (outcome, _) = fixture.import(keep, b"id,name\n100,Neun\n");
    assert!(matches!(outcome, Err(TransferError::HasHeldRecords("customers"))));
}

pub(super) fn counts(outcome: Result<Imported, TransferError>) -> (u64, u64, u64) {
    let Imported { created, changed, unchanged, .. } = outcome.unwrap();
    (created, changed, unchanged)
}

const CUSTOMERS: &str = "name,customer_number,email,city,status\n\
                         Eins,K-1,a@b.example,Berlin,prospect\n\
                         Zwei,K-2,c@d.example,Berlin,\n\
                         Drei,K-2,,,\n";

#[test]
fn an_update_changes_the_columns_of_the_file_and_creates_what_is_new() {
    let fixture = Fixture::new();
    fixture.accepts(&CUSTOMER, CSV, CUSTOMERS);
    let text = "customer_number,city,name,id\nK-1,,Eins,9\nK-9,Bonn,Neun,1\n";
    let by_number = update(&CUSTOMER, CSV, "customer_number");
    let (outcome, errors) = fixture.import(Job { dry_run: true, ..by_number }, text.as_bytes());
    let expected = (1, 1, 0);
    assert_eq!((counts(outcome), errors), (expected, Vec::new()));
    assert_eq!(fixture.export(1, &CUSTOMER, CSV).lines().count(), 4);
    let (outcome, errors) = fixture.import(by_number, text.as_bytes());
    assert_eq!((counts(outcome), errors), (expected, Vec::new()));
    let csv = fixture.export(1, &CUSTOMER, CSV);
    let records = records(&csv);
    let shown = |n: usize| {
        let columns = ["id", "name", "customer_number", "email", "city", "status"];
        columns.map(|column| records[n][column].as_str())
    };
    assert_eq!(shown(0), ["1", "Eins", "K-1", "a@b.example", "", "prospect"]);
    assert_eq!(shown(3), ["4", "Neun", "K-9", "", "Bonn", "active"]);
    let (outcome, _) = fixture.import(by_number, text.as_bytes());
    assert_eq!(counts(outcome), (0, 0, 2));
    let alone = b"{\"id\": 3}\n{\"id\": 1}\n";
    let (outcome, _) = fixture.import(update(&CUSTOMER, JSON, "id"), alone);
    assert_eq!(counts(outcome), (0, 0, 2));
    let (outcome, _) = fixture
        .import(update(&CUSTOMER, JSON, "id"), b"{\"id\": 1, \"city\": \"Ulm\"}\n{\"id\": 2}");
    assert_eq!(counts(outcome), (0, 1, 1));
}

#[test]
fn a_row_that_cannot_be_taken_for_an_update_says_why() {
    let fixture = Fixture::new();
    fixture.accepts(&CUSTOMER, CSV, CUSTOMERS);
    let text = "customer_number,name,status\n\
                K-1,,active\n\
                K-2,Zwei,active\n\
                ,Vier,active\n\
                K-5,x,\n\
                K-1,Sechs,\n\
                K-5,Sieben,active\n";
    assert_eq!(
        fixture.rejects(update(&CUSTOMER, CSV, "customer_number"), text.as_bytes()),
        [
            "line 2: name: required",
            "line 3: customer_number: ambiguous_record",
            "line 4: customer_number: required",
            "line 5: name: too_short",
            "line 5: status: required",
            "line 6: customer_number: ambiguous_record",
            "line 6: status: required",
            "line 7: customer_number: ambiguous_record",
        ]
    );
    let text = "{\"id\": 1, \"name\": null}\n{\"id\": 4}\n{\"id\": \"1\"}\n{\"id\": 0}\n\
                {\"name\": \"Eins\"}\n{\"id\": 1}\n{\"id\": 2, \"status\": \"\"}\n";
    assert_eq!(
        fixture.rejects(update(&CUSTOMER, JSON, "id"), text.as_bytes()),
        [
            "line 1: name: required",
            "line 2: id: not_found",
            "line 3: id: invalid_int",
            "line 4: id: invalid_int",
            "line 5: id: required",
            "line 6: id: ambiguous_record",
            "line 7: status: required",
        ]
    );
    let errors = fixture.rejects(update(&CUSTOMER, JSON, "email"), b"{\"email\": 5}\n");
    assert_eq!(errors, ["line 1: email: invalid_email"]);
    let errors = fixture.rejects(update(&CUSTOMER, CSV, "email"), b"name\nEins\n");
    assert_eq!(errors, ["line 1: email: required"]);
    let errors = fixture.rejects(
        update(&EMPLOYEE, CSV, "email"),
        b"email,customer_number\na@b.example,K-1\nb@b.example,\nc@b.example,K-7\nd@b.example,K-2\n",
    );
    assert_eq!(
        errors,
        [
            "line 3: customer_number: required",
            "line 4: customer_number: customer_not_found",
            "line 5: customer_number: ambiguous_reference",
        ]
    );
}

/// A row that the person has added to an exported list, and a row that stands twice.
#[test]
fn the_fault_of_a_row_says_what_to_do_with_it() {
    let fixture = Fixture::new();
    fixture.accepts(&CUSTOMER, CSV, "name,customer_number\nEins,01001\n");
    let text = b"id,name,status,updated_at\n,Neu,,\n1,Eins,active,\n1,Eins,active,\n";
    let (_, errors) = fixture.import(update(&CUSTOMER, CSV, "id"), text);
    let expected = [
        "line 2: id: required: \"id\" is empty. Put new rows into a file of their own, and import it \
         without --update-by.",
        "line 4: id: ambiguous_record: It stands at line 3, too. Keep one of them.",
    ];
    assert_eq!(errors, expected);
    let text = b"customer_number,first_name\n1001,Eva\n";
    let (_, errors) = fixture.import(import(&EMPLOYEE, CSV), text);
    let expected = "line 2: customer_number: customer_not_found: There is no customer with the \
                    customer_number \"1001\", but \"01001\" exists. Correct the customer_number, or \
                    create the customer first.";
    assert_eq!(errors, [expected]);
    let text = "name,customer_number,employee_name,purchase_cost\nPC,,\"Müller, Eva\",\n\
                PC,01001,,\"€1,299\"\n";
    let (_, errors) = fixture.import(import(&HARDWARE, CSV), text.as_bytes());
    assert!(errors[0].ends_with("Write the given name first: \"Eva Müller\"."), "{errors:?}");
    assert!(errors[1].contains("write decimal = \",\" below [formats]"), "{errors:?}");
}

#[test]
fn a_line_that_ends_early_says_so() {
    let (_, errors) = Fixture::new().import(import(&CUSTOMER, JSON), b"{\"name\": \"Eins\"");
    let message = "line 1: -: invalid_row: The line alone is not a JSON object: it ends before the \
                   object is complete at line 1 column 15.";
    assert_eq!(errors, [message]);
}

#[test]
fn a_file_that_is_not_utf_8_is_named() {
    let fixture = Fixture::new();
    for (format, text) in
        [(CSV, &b"name\nM\xfcller\n"[..]), (JSON, &b"{\"name\": \"M\xfcller\"}\n"[..])]
    {
        let (_, errors) = fixture.import(import(&CUSTOMER, format), text);
        let [error] = &*errors else { panic!("{errors:?}") };
        assert!(error.contains(": -: invalid_row: ") && error.contains("Windows-1252"), "{error}");
    }
}

/// A zip archive of these parts.
fn zip(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in parts {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut archive, content.as_bytes()).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// The rows of a workbook, as the process that reads it writes them.
fn rows_of(workbook: &[u8]) -> Result<Vec<u8>, String> {
    let mut rows = Vec::new();
    workbook::write_rows(std::io::Cursor::new(workbook), None, &mut rows)?;
    Ok(rows)
}

/// A workbook of one sheet with these rows. `parts` are added.
fn xlsx_with(rows: &str, parts: &[(&str, &str)]) -> Vec<u8> {
    let workbook = "<workbook><sheets><sheet name=\"A\" r:id=\"1\"/></sheets></workbook>";
    let relations = |kind: &str, target: &str| {
        format!(
            "<Relationships><Relationship Id=\"1\" Type=\"x/relationships/{kind}\" \
             Target=\"{target}\"/></Relationships>"
        )
    };
    let sheet = format!("<worksheet><sheetData>{rows}</sheetData></worksheet>");
    let (office, sheets) =
        (relations("officeDocument", "xl/workbook.xml"), relations("worksheet", "a.xml"));
    let own = [
        ("_rels/.rels", office.as_str()),
        ("xl/workbook.xml", workbook),
        ("xl/_rels/workbook.xml.rels", &sheets),
        ("xl/a.xml", &sheet),
    ];
    zip(&[&own[..], parts].concat())
}

fn xlsx(rows: &str) -> Vec<u8> {
    xlsx_with(rows, &[])
}

fn row(cells: &[&str]) -> String {
    format!("<row>{}</row>", cells.concat())
}

/// A cell with a text.
fn text(text: &str) -> String {
    format!("<c t=\"str\"><v>{text}</v></c>")
}

fn header(names: &[&str]) -> String {
    format!("<row>{}</row>", names.iter().map(|name| text(name)).collect::<String>())
}

#[test]
fn a_workbook_that_cannot_be_read_is_named_as_what_it_is() {
    let whole = xlsx(&header(&["name"]));
    let below = |cell: &str| xlsx(&(header(&["name", "city"]) + &row(&[&text("PC"), cell])));
    let mut stored = zip(&[("mimetype", "original")]);
    let at = stored.windows(8).position(|bytes| bytes == b"mimetype").unwrap();
    stored[at + 8] ^= 1;
    for (bytes, words) in [
        (b"\xd0\xcf\x11\xe0".to_vec(), "an old Excel file (.xls), or has a password"),
        (b"name\nEins\n".to_vec(), "Let its name end in .csv"),
        (b"<html>".to_vec(), "HTML page"),
        (b"<?xml version=\"1.0\"?><Workbook>".to_vec(), ".fods"),
        (zip(&[("content.xml", "")]), "an .ods workbook; open it, and save it as .xlsx"),
        (zip(&[("xl/workbook.bin", "")]), "an .xlsb workbook; open it, and save it as .xlsx"),
        (zip(&[("a.txt", "")]), "damaged, or unusual"),
        (whole[..whole.len() / 2].to_vec(), "damaged"),
        (stored, "damaged"),
        (xlsx(&format!("{}<row><c>", header(&["name"]))), "damaged"),
        (xlsx(&header(&["<![CDATA[name]]>"])), "a value of a cell has other XML in it"),
        (below("<c t=\"e\"><v>#SPILL!</v></c>"), "a cell in row 2 or below has the error #SPILL!"),
        (below("<c t=\"s\"><v>7</v></c>"), "in row 2 or below: "),
        (below("<c t=\"b\"><v>x</v></c>"), "in row 2 or below: "),
        (xlsx(&(header(&["name"]) + &row(&["<c s=\"3\"><v>1</v></c>"]))), "lacks the formats"),
    ] {
        let (outcome, errors) = Fixture::new().import(import(&CUSTOMER, XLSX), &bytes);
        let message = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(errors.is_empty() && message.contains(words), "{words}: {message}, {errors:?}");
    }
}

#[test]
fn rows_of_a_workbook_that_are_lost_are_a_fault() {
    let fixture = Fixture::new();
    let mut rows = rows_of(&xlsx(&(header(&["name"]) + &row(&[&text("Eins")])))).unwrap();
    rows.truncate(rows.len() - 3);
    let (outcome, errors) = fixture.import_rows("", import(&CUSTOMER, XLSX), &rows);
    let lost = "row 1: -: invalid_row: The rows after this one are lost. Import again.";
    assert_eq!((outcome.is_err(), errors), (true, vec![lost.to_owned()]));
}

#[test]
fn a_total_below_a_table_is_a_fault() {
    let fixture = Fixture::new();
    let csv = "name;serial_number;purchase_cost\nPC;1;5\nTotal;T-1;\nSumme:;;1299.50 €\n";
    let errors = fixture.rejects(import(&HARDWARE, CSV), csv.as_bytes());
    assert_eq!(errors, ["line 4: -: invalid_row"]);
    fixture.accepts(&CUSTOMER, CSV, "name;customer_number;phone\nTotal;12;0351 1\n");
    let sum = "<c/><c t=\"n\"><f>SUM(C2:C3)</f></c>".to_owned();
    let bytes =
        xlsx(&(header(&["name", "model", "purchase_cost"]) + &row(&[&text("Total"), &sum])));
    assert_eq!(fixture.rejects(import(&HARDWARE, XLSX), &bytes), ["row 2: -: invalid_row"]);
}

#[test]
fn a_row_of_a_workbook_is_bounded_before_its_texts_are_copied() {
    let texts = format!("<sst><si><t>{}</t></si></sst>", "x".repeat(MAX_ROW / 2));
    let wide = "<c t=\"s\"><v>0</v></c>".repeat(3);
    let far = "<c r=\"ZZZ3\"><v>1</v></c>";
    let bytes = xlsx_with(
        &(header(&["name"]) + &row(&[&wide]) + &row(&[far]) + &row(&[&text("Good")])),
        &[("xl/sharedStrings.xml", &texts)],
    );
    let (_, errors) = Fixture::new().import(import(&CUSTOMER, XLSX), &bytes);
    assert_eq!(
        errors,
        [
            "row 2: -: invalid_row: The row has more than 1 MiB.",
            "row 3: -: invalid_row: The row has more than 1000 columns."
        ]
    );
}

const STYLES: &str = r#"<styleSheet><numFmts>
    <numFmt numFmtId="164" formatCode="[Red]00000;@"/><numFmt numFmtId="165" formatCode="00000_)"/>
    <numFmt numFmtId="166" formatCode="000\-000"/><numFmt numFmtId="167" formatCode="&quot;C-&quot;0000"/>
    <numFmt numFmtId="168" formatCode="[h]:mm:ss"/><numFmt numFmtId="169" formatCode="0.00"/>
    </numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="164"/><xf numFmtId="165"/>
    <xf numFmtId="166"/><xf numFmtId="167"/><xf numFmtId="14"/><xf numFmtId="168"/>
    <xf numFmtId="169"/></cellXfs></styleSheet>"#;

/// A number in the format `style`, an index of [`STYLES`].
fn number(style: usize, number: &str) -> String {
    format!("<c s=\"{style}\"><v>{number}</v></c>")
}

#[test]
fn the_cells_of_a_workbook_have_the_values_that_a_spreadsheet_shows() {
    let fixture = Fixture::new();
    let columns = [
        ("name", text(" PC_x000D_ "), "PC"),
        ("asset_tag", number(0, "1E2"), "100"),
        ("model", number(0, "1e15"), "1000000000000000"),
        ("manufacturer", number(0, "-0"), "0"),
        ("serial_number", number(1, "42"), "00042"),
        ("custom.a", number(2, "42"), "00042"),
        ("custom.b", number(3, "123456"), "123456"),
        ("custom.c", number(4, "42"), "42"),
        ("custom.d", number(0, "434.99999999999994"), "435"),
        ("custom.e", number(5, "45366.395833333336"), "2024-03-15T09:30:00"),
        ("custom.f", number(6, "1.25"), "30:00:00"),
        ("custom.g", "<c t=\"d\"><v>2024-03-15T00:00:00</v></c>".into(), "2024-03-15"),
        ("custom.h", "<c t=\"inlineStr\"><v>1.0</v><is><t>1.</t></is></c>".into(), "1."),
        ("custom.i", number(7, "1234.5"), "1234.5"),
        ("purchase_cost", number(0, "434.99999999999994"), ""),
        ("purchase_date", number(5, "45366"), "2024-03-15"),
        ("is_leased", "<c t=\"b\"><v>1</v></c>".into(), "true"),
        ("type", text(" laptop "), "laptop"),
        ("notes", text("a&lt;_x005F_x000D_"), "a<_x000D_"),
    ];
    let names = columns.each_ref().map(|(name, ..)| *name);
    let cells: String = columns.iter().map(|(_, cell, _)| cell.as_str()).collect();
    let bytes = xlsx_with(&(header(&names) + &row(&[&cells])), &[("xl/styles.xml", STYLES)]);
    let (outcome, errors) = fixture.import(import(&HARDWARE, XLSX), &bytes);
    assert_eq!(errors, Vec::<String>::new());
    let warned: Vec<_> = outcome.unwrap().decorated.into_iter().collect();
    assert_eq!(warned, [("custom.b".to_owned(), 1), ("custom.c".to_owned(), 1)]);
    let record = records(&fixture.export(1, &HARDWARE, CSV)).remove(0);
    for (name, _, value) in columns.iter().filter(|(name, ..)| *name != "purchase_cost") {
        assert_eq!(record[*name], *value, "{name}");
    }
    assert_eq!(record["purchase_cost_cents"], "43500");
}

#[test]
fn a_cell_without_a_value_is_a_fault_of_its_place() {
    let fault = |cell: &str| {
        let bytes = xlsx_with(
            &(header(&["name", "purchase_date", "created_at"]) + &row(&[&text("PC"), cell])),
            &[("xl/styles.xml", STYLES)],
        );
        Fixture::new().import(import(&HARDWARE, XLSX), &bytes).1
    };
    for (cell, message) in [
        ("<c t=\"e\"><v>#N/A</v></c>", "invalid_row: The cell has the error #N/A. Correct it."),
        (
            "<c t=\"e\"><v>#REF!</v></c><c><f>A1</f></c>",
            "invalid_row: The cell has the error #REF!.",
        ),
        ("<c t=\"str\"><f>A1</f></c>", "invalid_row: The cell has a formula without a stored"),
        ("<c><f>A1</f><v></v></c>", "invalid_row: The cell has a formula without a stored value"),
        ("<c><v>NaN</v></c>", "invalid_row: The cell has no number"),
        (&number(5, "-1"), "invalid_row: The cell is the date of the number -1"),
        (
            &number(5, "45366.5"),
            "invalid_date: \"purchase_date\" was \"2024-03-15T12:00:00\"; write it as \
             YYYY-MM-DD. A date has no time: remove the time, or leave the column out.",
        ),
    ] {
        let errors = fault(cell);
        let start = format!("cell B2: purchase_date: {message}");
        assert!(errors.len() == 1 && errors[0].starts_with(&start), "{cell}: {errors:?}");
    }
    assert_eq!(fault("<c t=\"str\"><f>A1</f><v></v></c>"), Vec::<String>::new());
    assert_eq!(fault(&("<c/>".to_owned() + "<c t=\"e\"><v>#N/A</v></c>")), Vec::<String>::new());
    let stray = fault(&("<c/><c/>".to_owned() + &text("x")));
    let advice = "which has no heading. Write a heading, or empty the cell.";
    assert!(stray[0].starts_with("cell D2: -: ") && stray[0].ends_with(advice), "{stray:?}");
    let formula = "<c t=\"str\"><f>A1</f></c>".to_owned();
    let (_, errors) = Fixture::new().import(import(&HARDWARE, XLSX), &xlsx(&row(&[&formula])));
    assert!(errors.len() == 1 && errors[0].starts_with("cell A1: -: invalid_row: The cell has a"));
}

#[test]
fn the_dates_of_a_1904_workbook_are_right_beside_the_extensions_of_modern_excel() {
    let fixture = Fixture::new();
    let bytes = xlsx_with(
        &(header(&["name", "purchase_date", "warranty_until"])
            + &row(&[&text("PC"), &number(5, "43904"), &number(5, "0")])),
        &[("xl/styles.xml", STYLES)],
    );
    let old = "<workbook><sheets>";
    let new = "<workbook><workbookPr date1904=\"1\"/><extLst><x15:workbookPr \
               chartTrackingRefBase=\"1\"/></extLst><sheets>";
    let bytes = replace_part(&bytes, "xl/workbook.xml", |part| part.replace(old, new));
    let (outcome, errors) = fixture.import(import(&HARDWARE, XLSX), &bytes);
    assert_eq!((counts(outcome), errors), ((1, 0, 0), Vec::new()));
    let record = records(&fixture.export(1, &HARDWARE, CSV)).remove(0);
    assert_eq!(
        [&*record["purchase_date"], &*record["warranty_until"]],
        ["2024-03-15", "1904-01-01"]
    );
}

pub(super) fn replace_part(archive: &[u8], name: &str, change: impl Fn(&str) -> String) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(archive)).unwrap();
    let names: Vec<String> = archive.file_names().map(|name| name.unwrap().to_string()).collect();
    let parts: Vec<(String, String)> = names
        .into_iter()
        .map(|part| {
            let mut text = String::new();
            let mut file = archive.by_name(&part).unwrap();
            std::io::Read::read_to_string(&mut file, &mut text).unwrap();
            let text = if part == name { change(&text) } else { text };
            (part, text)
        })
        .collect();
    let parts: Vec<_> = parts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    zip(&parts)
}
