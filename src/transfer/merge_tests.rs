//! The merge of a file with what others have changed since its export (contract section 10).

use proptest::prelude::*;

use super::tests::{Fixture, Job, context, counts, import, records, update};
use super::*;
use crate::model::{CUSTOMER, EMPLOYEE, HARDWARE, ID, RecordId, Resource, Value};
use crate::store::{Change, ChangeKind, StoreCode, StoreError};

const CSV: FileFormat = FileFormat::Csv;
const JSON: FileFormat = FileFormat::JsonLines;
/// The second of the first rows, of a change by a colleague, and of the import.
const EXPORTED: &str = "2026-11-20T19:30:00Z";
const LATER: &str = "2026-11-21T08:00:00Z";
const NOW: &str = "2026-11-22T08:00:00Z";

fn by(resource: &'static Resource, format: FileFormat, field: &str, at: &'static str) -> Job {
    Job { at, ..update(resource, format, field) }
}

/// Three customers, of which a colleague changes the second one later.
fn shop() -> Fixture {
    let fixture = Fixture::new();
    fixture.accepts(
        &CUSTOMER,
        CSV,
        "name,customer_number,phone,city,notes,custom.room\nEins,K-1,1,Ulm,\"a\r\nb\",7\n\
         Zwei,K-2,1,Ulm,,7\nDrei,K-3,,,,\n",
    );
    let change = b"id,phone,custom.room\n2,2,8\n";
    let (outcome, errors) = fixture.import(by(&CUSTOMER, CSV, "id", LATER), change);
    assert_eq!((counts(outcome), errors), ((0, 1, 0), Vec::new()));
    fixture
}

/// The columns of the customer with this id.
fn customer(fixture: &Fixture, id: usize) -> [String; 4] {
    let csv = fixture.export(1, &CUSTOMER, CSV);
    let columns = ["name", "phone", "city", "custom.room"];
    columns.map(|column| records(&csv)[id - 1][column].clone())
}

/// Imports a row of an export, and returns the errors.
#[track_caller]
fn merges(fixture: &Fixture, header: &str, row: &str, count: (u64, u64, u64)) {
    let text = format!("{header},updated_at\n{row},{EXPORTED}\n");
    let (outcome, errors) = fixture.import(by(&CUSTOMER, CSV, "id", NOW), text.as_bytes());
    assert_eq!(errors, Vec::<String>::new(), "{row}");
    assert_eq!(counts(outcome), count, "{row}");
}

fn faults(fixture: &Fixture, job: Job, text: &str) -> Vec<String> {
    let before = fixture.export(1, job.resource, JSON);
    let (outcome, errors) = fixture.import(job, text.as_bytes());
    assert!(outcome.is_err(), "{text}");
    assert_eq!(fixture.export(1, job.resource, JSON), before, "something was stored");
    errors
}

#[test]
fn a_cell_that_was_not_edited_keeps_what_others_have_stored() {
    let fixture = shop();
    merges(&fixture, "id,name,phone,city,custom.room", "2,Zwei,1,Bonn,7", (0, 1, 0));
    assert_eq!(customer(&fixture, 2), ["Zwei", "2", "Bonn", "8"]);
}

#[test]
fn an_edited_cell_is_stored_or_equal_or_a_conflict() {
    let fixture = shop();
    merges(&fixture, "id,phone,custom.room", "2,2,8", (0, 0, 1));
    merges(&fixture, "id,phone,city", "1,3,", (0, 1, 0));
    assert_eq!(customer(&fixture, 1), ["Eins", "3", "", "7"]);
    let text = format!("id,phone,city,custom.room,updated_at\n2,4,Bonn,9,{EXPORTED}\n");
    let errors = faults(&fixture, by(&CUSTOMER, CSV, "id", NOW), &text);
    let changed = |field: &str, [then, now, file]: [&str; 3]| {
        format!(
            "line 2: {field}: changed_meanwhile: {field} was \"{then}\" at the export, is \"{now}\" \
             since 2026-11-21T08:00:00Z (the command import), and \"{file}\" in the file"
        )
    };
    let expected = [changed("phone", ["1", "2", "4"]), changed("custom.room", ["7", "8", "9"])];
    assert_eq!(errors, expected);
    let emptied = format!("{{\"id\":2,\"phone\":null,\"updated_at\":\"{EXPORTED}\"}}");
    let errors = faults(&fixture, by(&CUSTOMER, JSON, "id", NOW), &emptied);
    assert!(errors[0].ends_with("(the command import), and empty in the file"), "{errors:?}");
    let job = Job { overwrite: true, ..by(&CUSTOMER, CSV, "id", NOW) };
    assert_eq!(counts(fixture.import(job, text.as_bytes()).0), (0, 1, 0));
    assert_eq!(customer(&fixture, 2), ["Zwei", "4", "Bonn", "9"]);
}

#[test]
fn without_the_time_a_row_overwrites() {
    let fixture = shop();
    for updated_at in ["", ",updated_at"] {
        let text = format!("id,phone{updated_at}\n2,5{}\n", updated_at.replace("updated_at", ""));
        let outcome = fixture.import(by(&CUSTOMER, CSV, "id", NOW), text.as_bytes()).0;
        assert_eq!(counts(outcome).2, u64::from(!updated_at.is_empty()), "{text}");
        assert_eq!(customer(&fixture, 2)[1], "5");
    }
    let text = "id,phone,updated_at\n2,5,yesterday\n";
    let errors = faults(&fixture, by(&CUSTOMER, CSV, "id", NOW), text);
    assert!(errors[0].starts_with("line 2: updated_at: invalid_date: \"updated_at\" was"));
}

#[test]
fn what_a_spreadsheet_does_to_a_text_is_no_edit() {
    let fixture = shop();
    fixture.import(by(&CUSTOMER, CSV, "id", LATER), b"id,notes\n1,other\n").0.unwrap();
    merges(&fixture, "id,name,notes", "1, Eins ,\"a\nb\"", (0, 0, 1));
    merges(&fixture, "id,name,notes", "1,Eins,other", (0, 0, 1));
}

#[test]
fn any_version_of_the_second_of_the_export_is_no_edit() {
    let fixture = Fixture::new();
    fixture.accepts(&CUSTOMER, CSV, "name,phone,city\nEins,1,Ulm\n");
    for change in ["id,phone\n1,2\n", "id,phone\n1,3\n"] {
        fixture.import(by(&CUSTOMER, CSV, "id", EXPORTED), change.as_bytes()).0.unwrap();
    }
    fixture.import(by(&CUSTOMER, CSV, "id", LATER), b"id,city\n1,Bonn\n").0.unwrap();
    let row = |row: &str| format!("id,phone,city,updated_at\n{row},{EXPORTED}\n");
    for phone in ["1", "2", "3"] {
        let text = row(&format!("1,{phone},Ulm"));
        let outcome = fixture.import(by(&CUSTOMER, CSV, "id", NOW), text.as_bytes()).0;
        let earlier = outcome.as_ref().unwrap().earlier.get("phone").map_or(0, Vec::len);
        assert_eq!(earlier, usize::from(phone != "3"), "{phone}");
        assert_eq!(counts(outcome), (0, 0, 1), "{phone}");
    }
    // The last version of the second is compared with the present one.
    let outcome = fixture.import(by(&CUSTOMER, CSV, "id", NOW), row("1,4,Ulm").as_bytes()).0;
    assert_eq!(counts(outcome), (0, 1, 0));
}

#[test]
fn a_moment_between_two_versions_means_the_earlier_one() {
    let fixture = shop();
    for (moment, phone) in [("2026-11-20T20:00:00Z", "1"), ("2026-11-21T09:00:00+01:00", "2")] {
        let text = format!("id,phone,updated_at\n2,{phone},{moment}\n");
        let outcome = fixture.import(by(&CUSTOMER, CSV, "id", NOW), text.as_bytes()).0;
        assert_eq!(counts(outcome), (0, 0, 1), "{moment}");
    }
    let text = "id,phone,updated_at\n2,1,2026-11-20T19:29:59Z\n";
    let errors = faults(&fixture, by(&CUSTOMER, CSV, "id", NOW), text);
    let early = "line 2: updated_at: changed_meanwhile: the customer was created at \
                 2026-11-20T19:30:00Z, after the export";
    assert_eq!(errors, [early]);
}

#[test]
fn a_record_that_is_gone_is_a_conflict_if_its_row_was_edited() {
    let fixture = shop();
    fixture.import(by(&CUSTOMER, CSV, "id", LATER), b"id,customer_number\n1,K-9\n").0.unwrap();
    let by_number = by(&CUSTOMER, CSV, "customer_number", NOW);
    let row = |row: &str| format!("customer_number,name,city,updated_at\n{row},{EXPORTED}\n");
    let outcome = fixture.import(by_number, row("K-1,Eins,Ulm").as_bytes()).0;
    assert_eq!(counts(outcome), (0, 0, 1));
    assert_eq!(
        faults(&fixture, by_number, &row("K-1,Eins,Bonn")),
        ["line 2: customer_number: changed_meanwhile: the customer has another customer_number \
          since 2026-11-21T08:00:00Z (the command import), and city is \"Bonn\" in the file"]
    );
    let errors = faults(&fixture, by_number, &row("K-77,Eins,Bonn"));
    assert!(errors[0].starts_with("line 2: customer_number: not_found: No customer had the"));
    // Another record has the number now.
    fixture.import(by(&CUSTOMER, CSV, "id", LATER), b"id,customer_number\n3,K-1\n").0.unwrap();
    let errors = faults(&fixture, by_number, &row("K-1,Eins,Bonn"));
    assert!(errors[0].contains("the customer has another customer_number since"), "{errors:?}");
    let errors =
        faults(&fixture, by(&CUSTOMER, CSV, "id", NOW), &format!("id,updated_at\n99,{NOW}\n"));
    assert!(errors[0].starts_with("line 2: id: not_found: No customer had the id 99 then."));
}

#[test]
fn a_record_that_was_deleted_is_a_conflict_if_its_row_was_edited() {
    let fixture = shop();
    by_api(&fixture, &Change::new(&CUSTOMER, ChangeKind::Delete(RecordId(2)), Vec::new())).unwrap();
    let deleted = "the customer was deleted at 2026-11-21T08:00:00Z (the command import)";
    for (key, value) in [("id", "2"), ("customer_number", "K-2")] {
        let job = by(&CUSTOMER, CSV, key, NOW);
        let row = |city: &str| {
            format!("{key},name,phone,city,updated_at\n{value},Zwei,1,{city},{EXPORTED}\n")
        };
        assert_eq!(counts(fixture.import(job, row("Ulm").as_bytes()).0), (0, 0, 1), "{key}");
        let expected = format!(
            "line 2: {key}: changed_meanwhile: {deleted}, and city is \"Bonn\" in the file"
        );
        assert_eq!(faults(&fixture, job, &row("Bonn")), [expected]);
    }
}

#[test]
fn a_version_that_the_change_log_no_longer_has_must_equal_the_present_one() {
    let fixture = shop();
    fixture.forget_changes(LATER);
    merges(&fixture, "id,phone,city", "2,2,Ulm", (0, 0, 1));
    merges(&fixture, "id,phone,city", "1,1,Bonn", (0, 1, 0));
    let text = format!("id,phone,updated_at\n2,1,{EXPORTED}\n");
    let errors = faults(&fixture, by(&CUSTOMER, CSV, "id", NOW), &text);
    assert!(errors[0].starts_with("line 2: updated_at: changed_meanwhile: phone was edited, but"));
}

/// Two customers of the same name, their people and a device.
fn people() -> Fixture {
    let fixture = Fixture::new();
    let customers = "name,customer_number,email\nMüller,K-1,a@b.example\nMÜLLER,K-2,\nBeck,K-3,\n";
    fixture.accepts(&CUSTOMER, CSV, customers);
    fixture.accepts(
        &EMPLOYEE,
        CSV,
        "customer_number,employee_number,email,first_name,last_name\n\
         K-1,P-1,eva@b.example,Eva,Maier\nK-2,P-2,e@c.example,Eva,Maier\nK-3,P-3,t@c.example,Tom,\n",
    );
    fixture.accepts(&HARDWARE, CSV, "name,employee_number\nLaptop,P-1\nServer,\n");
    fixture
}

#[test]
fn references_are_named_by_what_people_know() {
    let fixture = people();
    let text = "name,customer_name,customer_number,employee_name\n\
                One,  mu\u{308}ller ,K-2,eva  MAIER\nTwo,Beck,,\nThree,,,Tom\nFour,,K-1,\n";
    fixture.accepts(&HARDWARE, CSV, text);
    let csv = fixture.export(1, &HARDWARE, CSV);
    let ids: Vec<_> = records(&csv)[2..]
        .iter()
        .map(|record| ["customer_id", "employee_id"].map(|column| record[column].clone()))
        .collect();
    assert_eq!(ids, [["2", "2"], ["3", ""], ["3", "3"], ["1", ""]]);
    let text = "name,customer_id,customer_name,customer_number,employee_name,employee_number\n\
                PC,,Müller,,,\nPC,,Beck,K-2,,\nPC,1,Beck,,,\nPC,,,,Eva Maier,\nPC,,Nobody,,,\n\
                PC,,,K-3,,P-1\n";
    assert_eq!(
        faults(&fixture, import(&HARDWARE, CSV), text),
        [
            "line 2: customer_name: ambiguous_reference: Several customers have customer_name \
             \"Müller\": 1 (K-1), 2 (K-2). Name one by its id or number.",
            "line 3: customer_number: bad_request: No customer has customer_name \"Beck\" and \
             customer_number \"K-2\". Correct or empty the wrong cells.",
            "line 4: customer_name: bad_request: No customer has customer_id 1 and customer_name \
             \"Beck\". Correct or empty the wrong cells.",
            "line 5: employee_name: ambiguous_reference: Several employees have employee_name \
             \"Eva Maier\": 1 (P-1), 2 (P-2). Name one by its id or number.",
            "line 6: customer_name: customer_not_found: There is no customer with the name \
             \"Nobody\". Correct the name, or create the customer first.",
            "line 7: customer_id: bad_request: the employee P-1 works at the customer K-1, not \
             K-3; leave the customer out, or name another employee",
        ]
    );
}

#[test]
fn a_conflict_of_a_reference_names_the_edited_column_and_a_cure() {
    let fixture = people();
    fixture.import(by(&EMPLOYEE, CSV, "id", LATER), b"id,customer_id\n1,2\n").0.unwrap();
    let job = by(&EMPLOYEE, CSV, "id", NOW);
    let row = |cells: &str| {
        format!("id,customer_id,customer_number,customer_name,updated_at\n1,{cells},{EXPORTED}\n")
    };
    let start =
        "line 2: customer_name: changed_meanwhile: customer_id was 1 at the export, is 2 since";
    for (cells, edited) in
        [(",,Beck", "customer_name"), (",K-3,Beck", "customer_number and customer_name")]
    {
        let errors = faults(&fixture, job, &row(cells));
        let cure = "to keep the present value, write it into customer_id, and empty";
        let end = format!("3 in the file; {cure} {edited}");
        assert!(errors[0].starts_with(start) && errors[0].ends_with(&end), "{errors:?}");
    }
    assert_eq!(counts(fixture.import(job, row("2,,").as_bytes()).0), (0, 0, 1));
}

#[test]
fn the_readable_columns_of_a_merged_row_agree_with_its_id() {
    let fixture = people();
    fixture.import(by(&CUSTOMER, CSV, "id", LATER), b"id,name\n1,Renamed\n").0.unwrap();
    let job = by(&EMPLOYEE, CSV, "id", NOW);
    let header = "id,customer_id,customer_number,customer_name,last_name,updated_at";
    let row = |cells: &str| format!("{header}\n1,{cells},{EXPORTED}\n");
    for name in ["Müller", "Renamed"] {
        let text = row(&format!("1,K-1,{name},Maier"));
        assert_eq!(counts(fixture.import(job, text.as_bytes()).0), (0, 0, 1), "{name}");
    }
    for (cells, message) in [
        ("1,K-1,Beck,Maier", "customer_name: bad_request: No customer has customer_id 1 and"),
        ("3,K-1,Beck,Maier", "customer_number: bad_request: No customer has customer_id 3 and"),
        ("1,K-1,,Maier", "customer_name: bad_request: \"customer_name\" is empty, but"),
    ] {
        let errors = faults(&fixture, job, &row(cells));
        assert!(errors[0].starts_with(&format!("line 2: {message}")), "{errors:?}");
    }
    assert_eq!(counts(fixture.import(job, row("3,K-3,Beck,Maier").as_bytes()).0), (0, 1, 0));
    // Others have moved the employee since. The file names the customer of the export by name alone.
    let text = format!("id,customer_name,updated_at\n1,Müller,{EXPORTED}\n");
    assert_eq!(counts(fixture.import(job, text.as_bytes()).0), (0, 0, 1));
    let text = format!("id,customer_name,updated_at\n1,Beck,{EXPORTED}\n");
    assert_eq!(counts(fixture.import(job, text.as_bytes()).0), (0, 0, 1));
    let text = format!("id,customer_number,updated_at\n1,K-2,{EXPORTED}\n");
    let errors = faults(&fixture, job, &text);
    let start = "line 2: customer_number: changed_meanwhile: customer_id was 1 at";
    assert!(errors[0].starts_with(start), "{errors:?}");
}

/// Makes a change as the API does.
fn by_api(fixture: &Fixture, change: &Change) -> Result<(), StoreError> {
    let (mut file, context) = (fixture.file(1), context(LATER));
    let transaction = file.begin(None, || ())?;
    transaction.writing(&context).apply(change, &[])?;
    transaction.commit()
}

/// What a cell of the file becomes, or `None` for a conflict: the promise, word by word.
fn merged<'v>(then: &'v str, now: &'v str, cell: &'v str) -> Option<&'v str> {
    if cell == then || cell == now {
        Some(now)
    } else if now == then {
        Some(cell)
    } else {
        None
    }
}

/// The fields of the model. The employee 1 works at the customer 1, and so on.
const DEVICE: [&str; 7] = [
    "name",
    "customer_id",
    "employee_id",
    "purchase_date",
    "purchase_cost_cents",
    "is_leased",
    "custom.a",
];

type Device = [String; 7];

fn device_value(field: usize, number: usize) -> String {
    match (DEVICE[field], number) {
        ("name", number) => format!("PC {number}"),
        ("is_leased", number) => (number == 1).to_string(),
        (_, 0) => String::new(),
        ("purchase_date", number) => format!("2026-01-0{number}"),
        (_, number) => number.to_string(),
    }
}

/// Sets a field as the API does: a device belongs to the customer of its employee.
fn set_by_model(device: &mut Device, field: usize, value: String) -> bool {
    let [_, customer, employee, ..] = device;
    match DEVICE[field] {
        "customer_id" if !employee.is_empty() => return *customer == value,
        "employee_id" if !value.is_empty() => customer.clone_from(&value),
        _ => {}
    }
    device[field] = value;
    true
}

fn set_by_api(fixture: &Fixture, id: usize, field: usize, value: &str) -> bool {
    let kind = ChangeKind::Update(RecordId(id as i64));
    let mut change = Change::new(&HARDWARE, kind, Vec::new());
    let mut keys = HARDWARE.natural_references().iter();
    let employee_number = keys.find(|key| key.name == "employee_number").unwrap();
    let json = match DEVICE[field] {
        _ if value.is_empty() => serde_json::Value::Null,
        "customer_id" | "purchase_cost_cents" => value.parse::<i64>().unwrap().into(),
        "is_leased" => (value == "true").into(),
        _ => value.into(),
    };
    if DEVICE[field] == "employee_id" && !value.is_empty() {
        change.references.push((employee_number, Value::of(&format!("P-{value}"))));
    } else if let Some(field) = HARDWARE.field(DEVICE[field]) {
        change.values.push((field, field.check(&json).unwrap()));
    } else {
        let custom = HARDWARE.field("custom").unwrap();
        change.values.push((custom, custom.check(&serde_json::json!({ "a": json })).unwrap()));
    }
    match by_api(fixture, &change) {
        Ok(()) => true,
        Err(StoreError { code: StoreCode::Rejected(_), .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// What a row of the file makes of a device, or the columns with faults.
fn merged_device(then: &Device, now: &Device, row: &Device) -> Result<Device, Vec<&'static str>> {
    let mut device = now.clone();
    let mut conflicts = Vec::new();
    for (field, name) in DEVICE.into_iter().enumerate() {
        match merged(&then[field], &now[field], &row[field]) {
            Some(value) => device[field] = value.to_owned(),
            None => conflicts.push(name),
        }
    }
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    let [_, customer, employee, ..] = &mut device;
    if !employee.is_empty() {
        let is_named = row[1] != then[1] && !row[1].is_empty();
        if is_named && row[1] != now[1] && row[1] != *employee {
            return Err(vec!["customer_id"]);
        }
        customer.clone_from(employee);
    }
    Ok(device)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Devices with references, dates, numbers and words, which the API changes and deletes
    /// meanwhile. Each of `changes` and `edits` is a record, a field (or 7, a deletion) and the
    /// number of a value.
    #[test]
    fn the_merge_of_devices_is_that_of_the_model(
        first in prop::collection::vec((0_usize..3, 0_usize..7, 0_usize..4), 0..12),
        changes in prop::collection::vec((0_usize..3, 0_usize..8, 0_usize..4), 0..10),
        edits in prop::collection::vec((0_usize..3, 0_usize..7, 0_usize..4), 0..10),
    ) {
        let fixture = Fixture::new();
        let people = [1, 2, 3].map(|n| format!("{n},P-{n}"));
        fixture.accepts(&CUSTOMER, CSV, "name\nEins\nZwei\nDrei\n");
        let people = format!("customer_id,employee_number\n{}\n", people.join("\n"));
        fixture.accepts(&EMPLOYEE, CSV, &people);
        let header = DEVICE.join(",");
        let mut then: Vec<Device> =
            (0..3).map(|_| DEVICE.map(|name| if name == "is_leased" { "false" } else { "" }))
                .map(|device| device.map(str::to_owned)).collect();
        for device in &mut then {
            set_by_model(device, 0, device_value(0, 1));
        }
        for (record, field, number) in first {
            set_by_model(&mut then[record], field, device_value(field, number));
        }
        let rows: Vec<String> = then.iter().map(|device| device.join(",")).collect();
        fixture.accepts(&HARDWARE, CSV, &format!("{header}\n{}\n", rows.join("\n")));
        let mut now: Vec<Option<Device>> = then.iter().cloned().map(Some).collect();
        for (record, field, number) in changes {
            let Some(device) = &mut now[record] else { continue };
            if field == DEVICE.len() {
                let kind = ChangeKind::Delete(RecordId(record as i64 + 1));
                by_api(&fixture, &Change::new(&HARDWARE, kind, Vec::new())).unwrap();
                now[record] = None;
                continue;
            }
            let value = device_value(field, number);
            let is_taken = set_by_api(&fixture, record + 1, field, &value);
            prop_assert_eq!(is_taken, set_by_model(device, field, value));
        }
        let mut file = then.clone();
        for (record, field, number) in edits {
            file[record][field] = device_value(field, number);
        }
        let (mut expected, mut faults) = (now.clone(), Vec::new());
        for record in 0..3 {
            let (then, row) = (&then[record], &file[record]);
            let columns = match &now[record] {
                Some(now) => match merged_device(then, now, row) {
                    Ok(device) => {
                        expected[record] = Some(device);
                        continue;
                    }
                    Err(columns) => columns,
                },
                None if row == then => continue,
                None => vec![ID.name],
            };
            faults.extend(columns.iter().map(|column| format!("line {}: {column}", record + 2)));
        }
        let rows: Vec<String> =
            (1..).zip(&file).map(|(id, row)| format!("{id},{},{EXPORTED}", row.join(","))).collect();
        let text = format!("id,{header},updated_at\n{}\n", rows.join("\n"));
        let (_, errors) = fixture.import(by(&HARDWARE, CSV, "id", NOW), text.as_bytes());
        let place = |error: &String| error.split(": ").take(2).collect::<Vec<_>>().join(": ");
        let mut found: Vec<String> = errors.iter().map(place).collect();
        found.sort_unstable();
        faults.sort_unstable();
        prop_assert_eq!(&found, &faults, "{:?}", errors);
        let stored = if faults.is_empty() { expected } else { now };
        let csv = fixture.export(1, &HARDWARE, CSV);
        let stored: Vec<Device> = stored.into_iter().flatten().collect();
        let records: Vec<Device> = records(&csv)
            .iter()
            .map(|record| DEVICE.map(|name| record.get(name).cloned().unwrap_or_default()))
            .collect();
        prop_assert_eq!(records, stored);
    }
}
