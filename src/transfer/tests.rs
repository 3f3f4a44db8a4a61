//! Import and export against a tenant's file, in this process.

use std::io::Cursor;
use std::path::Path;

use super::*;
use crate::clock::Clock;
use crate::model::{CUSTOMER, EMPLOYEE, HARDWARE, Resource};
use crate::store::DatabaseError;
use crate::store::Registry;
use crate::store::tenant_file::TenantFile;

const NOW: &str = "2026-11-20T19:30:00Z";

struct Desk {
    folder: tempfile::TempDir,
}

#[derive(Default)]
struct Told(Vec<String>);

impl Watcher for Told {
    fn fault(&mut self, fault: &RowFault) {
        self.0.push(fault.to_string());
    }

    fn progress(&mut self, _: Stage, _: u64) {}
}

impl Desk {
    /// A data directory with the tenants 1 and 2.
    fn new() -> Desk {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::create(folder.path()).unwrap();
        for name in ["one", "two"] {
            registry.create_tenant(name, None, "$phc", Clock::system().now()).unwrap();
        }
        Desk { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self, id: i64) -> TenantFile {
        TenantFile::open(self.path(), id).unwrap()
    }

    fn import(&self, import: Import, text: &[u8]) -> (Result<u64, ImportError>, Vec<String>) {
        let mut told = Told::default();
        let outcome = import.run(&mut Cursor::new(text), &mut self.file(1), NOW, &mut told);
        (outcome, told.0)
    }

    fn takes(&self, resource: &'static Resource, format: Format, text: &str) {
        let (outcome, told) = self.import(import(resource, format), text.as_bytes());
        assert_eq!((outcome.map_err(|e| e.to_string()).is_ok(), told), (true, Vec::new()));
    }

    /// What it says of a file that it refuses, without the words behind the code.
    fn refuses(&self, import: Import, text: &[u8]) -> Vec<String> {
        let before = self.export(1, import.resource, Format::JsonLines);
        let (outcome, told) = self.import(import, text);
        assert!(matches!(outcome, Err(ImportError::Faulty { .. })), "{outcome:?}");
        assert_eq!(self.export(1, import.resource, Format::JsonLines), before, "something was imported");
        told.iter().map(|line| line.splitn(4, ": ").take(3).collect::<Vec<_>>().join(": ")).collect()
    }

    fn export(&self, id: i64, resource: &'static Resource, format: Format) -> String {
        let mut text = Vec::new();
        export(&self.file(id), resource, format, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }
}

const fn import(resource: &'static Resource, format: Format) -> Import {
    Import { resource, format, keep_ids: false, dry_run: false }
}

const CSV: Format = Format::Csv;
const JSON: Format = Format::JsonLines;

#[test]
fn what_is_exported_comes_back_without_loss() {
    let desk = Desk::new();
    let notes = "Zeile 1\r\nZeile 2\n\"quoted\", ; \t ' ü € 😀 \r end";
    let line = serde_json::json!({"name": "=1+1 Müller; \"Söhne\"", "notes": notes, "country": "DE", "phone": " +49 ",
        "customer_since": "2024-02-29", "status": "inactive", "city": null, "street": "", "id": 77});
    desk.takes(&CUSTOMER, JSON, &format!("{line}\n{{\"name\": \"Second\"}}"));
    desk.takes(&EMPLOYEE, CSV, "customer_id,email,is_active\n2,a@b.example,0\n1,c@d.example,TRUE\n1,c@d.example,\n");
    desk.takes(&HARDWARE, CSV, "name,employee_id,purchase_cost_cents,is_leased\nA laptop,1,-5,1\nA thing,,,\n");
    for resource in crate::model::ALL {
        for format in [CSV, JSON] {
            let text = desk.export(1, resource, format);
            let copy = Desk::new();
            for earlier in crate::model::ALL.into_iter().take_while(|earlier| *earlier != resource) {
                copy.takes(earlier, JSON, &desk.export(1, earlier, JSON));
            }
            copy.takes(resource, format, &text);
            assert_eq!(copy.export(1, resource, CSV), desk.export(1, resource, CSV), "{} {format:?}", resource.name);
            assert_eq!(copy.export(1, resource, JSON), desk.export(1, resource, JSON), "{} {format:?}", resource.name);
        }
    }
    let text = desk.export(1, &CUSTOMER, JSON);
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["notes"], notes);
    assert_eq!(first["name"], "=1+1 Müller; \"Söhne\"");
    assert_eq!((&first["phone"], &first["street"]), (&" +49 ".into(), &serde_json::Value::Null));
    assert_eq!(first["created_at"], NOW);
    let sound = crate::store::check::check(desk.path()).unwrap();
    assert!(sound.iter().all(|finding| finding.problems.is_empty()), "{sound:?}");
}

#[test]
fn imported_records_are_found_by_search() {
    let desk = Desk::new();
    desk.takes(&CUSTOMER, CSV, "name\nStraßenbau\nOther\n");
    desk.takes(&CUSTOMER, CSV, "name\nStrassenbahn\n");
    let tenants = crate::store::Tenants::new(
        desk.path(),
        crate::store::Limits::default(),
        crate::metrics::Metrics::new(|_| "").into(),
    );
    let listing = crate::model::ListQuery {
        resource: &CUSTOMER,
        sort: crate::model::Column::Id,
        descending: false,
        filters: Vec::new(),
        words: vec!["STRASSE".to_owned()],
        limit: 10,
        after: None,
        total: true,
    };
    let page = tenants.open(1).unwrap().read(|reading| reading.page(&listing)).unwrap();
    assert_eq!(page.total, Some(2));
}

#[test]
fn every_fault_is_one_line_with_its_place() {
    let desk = Desk::new();
    let csv = "name,email,country,customer_since,status\n\
               A,x,DEU,2024-02-30,\"new\n\"\n\
               ,,,,\n\
               Good,,,,\n\
               Short,,\n\
               \"a\"b,,,,\n\
               Good,a@b.example,DE,2024-02-29,active\n";
    assert_eq!(
        desk.refuses(import(&CUSTOMER, CSV), csv.as_bytes()),
        [
            "line 2: name: too_short",
            "line 2: email: invalid_email",
            "line 2: country: too_long",
            "line 2: status: not_in_list",
            "line 2: customer_since: invalid_date",
            "line 4: name: required",
            "line 6: -: invalid_row",
            "line 7: -: invalid_row",
        ]
    );
    let lines =
        b"{\"name\": \"Good\"}\n{\"name\": 5, \"nmae\": 1}\n\n[]\n{\"name\": 5}\n{\"name\": \"a\\u0000b\"}\n{\xff}\n";
    assert_eq!(
        desk.refuses(import(&CUSTOMER, JSON), lines),
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
fn the_header_is_in_any_order_and_known() {
    let desk = Desk::new();
    let (_, told) = desk.import(import(&CUSTOMER, CSV), b"nmae,city\nx,y\n");
    assert_eq!(told, ["line 1: nmae: unknown_column: Unknown column \"nmae\". Did you mean \"name\"?"]);
    assert_eq!(desk.refuses(import(&CUSTOMER, CSV), b"name,city,name\n"), ["line 1: name: duplicate_column"]);
    assert_eq!(desk.refuses(import(&CUSTOMER, CSV), b""), ["line 1: -: invalid_row"]);
    assert_eq!(
        desk.refuses(import(&EMPLOYEE, CSV), b"customer_id,email,customer_number\n"),
        ["line 1: customer_number: duplicate_column"]
    );
    desk.takes(&CUSTOMER, CSV, "\u{feff}notes;created_at;name;id\r\n\"a;b\";soon;Eins;x\r\n;;Zwei, drei;\r\n");
    let text = desk.export(1, &CUSTOMER, CSV);
    assert!(text.contains("1,Eins,,,,,,,,active,,a;b,2026"), "{text}");
    assert!(text.contains("2,\"Zwei, drei\","), "{text}");
}

#[test]
fn references_by_id_or_by_what_people_know() {
    let desk = Desk::new();
    desk.takes(&CUSTOMER, CSV, "name,customer_number,email\nEins,K-1,a@b.example\nZwei,K-2,\nDrei,K-2,\n");
    desk.takes(&EMPLOYEE, CSV, "customer_number,email\nK-1,eva@b.example\n");
    desk.takes(&EMPLOYEE, JSON, "{\"customer_email\": \"a@b.example\", \"email\": \"tom@b.example\"}\n");
    desk.takes(&HARDWARE, CSV, "name,employee_email\nA laptop,tom@b.example\nSpare,\n");
    let text = desk.export(1, &HARDWARE, CSV);
    assert!(text.contains("1,A laptop,2,") && text.contains("2,Spare,,"), "{text}");
    let faults = desk.refuses(import(&EMPLOYEE, CSV), b"customer_number,email\nK-2,a@b.c1\nK-9,a@b.c1\n,a@b.c1\n");
    assert_eq!(
        faults,
        [
            "line 2: customer_number: ambiguous_reference",
            "line 3: customer_number: customer_not_found",
            "line 4: customer_number: required",
        ]
    );
    let faults = desk.refuses(import(&EMPLOYEE, CSV), b"customer_id,email\n4,a@b.c1\n007,x\n");
    assert_eq!(
        faults,
        ["line 2: customer_id: customer_not_found", "line 3: customer_id: invalid_int", "line 3: email: invalid_email"]
    );
    let faults =
        desk.refuses(import(&HARDWARE, JSON), b"{\"name\": \"PC\", \"employee_id\": 9, \"employee_email\": null}\n");
    assert_eq!(faults, ["line 1: employee_email: duplicate_column"]);
    let faults = desk.refuses(import(&HARDWARE, JSON), b"{\"name\": \"PC\", \"employee_email\": 5}\n");
    assert_eq!(faults, ["line 1: employee_email: bad_request"]);
}

#[test]
fn ids_are_kept_only_where_none_was_ever_given() {
    let desk = Desk::new();
    let keep = Import { keep_ids: true, ..import(&CUSTOMER, CSV) };
    assert_eq!(desk.refuses(keep, b"name\nEins\n"), ["line 1: id: required"]);
    let faults = desk.refuses(keep, b"id,name\n7,Eins\n7,Zwei\n0,Drei\nx,Vier\n,Acht\n9223372036854775807,Neun\n");
    assert_eq!(
        faults,
        [
            "line 3: id: duplicate_id",
            "line 4: id: invalid_int",
            "line 5: id: invalid_int",
            "line 6: id: required",
            "line 7: id: invalid_int",
        ]
    );
    let (outcome, told) = desk.import(keep, b"id,name\n9,Neun\n7,Sieben\n");
    assert_eq!((outcome.unwrap(), told), (2, Vec::new()));
    desk.takes(&CUSTOMER, CSV, "id,name\n3,Zehn\n");
    let text = desk.export(1, &CUSTOMER, CSV);
    let ids: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(ids, ["7", "9", "10"]);
    let (outcome, _) = desk.import(keep, b"id,name\n100,Neun\n");
    assert!(matches!(outcome, Err(ImportError::HasHeldRecords("customers"))));
}

#[test]
fn a_dry_run_stores_nothing() {
    let desk = Desk::new();
    let dry = Import { dry_run: true, ..import(&CUSTOMER, CSV) };
    let (outcome, _) = desk.import(dry, b"name\nEins\nZwei\n");
    assert_eq!(outcome.unwrap(), 2);
    let held: Result<bool, DatabaseError> = desk.file(1).read(|reading| reading.has_ever_held(&CUSTOMER));
    assert!(!held.unwrap());
}

#[test]
fn a_line_of_a_fault_is_one_line() {
    let fault = RowFault::new(3, "a\nb\u{1b}[2J", "unknown_column", "x\ry");
    assert_eq!(fault.to_string(), "line 3: a\\nb\\u{1b}[2J: unknown_column: x\\ry");
}
