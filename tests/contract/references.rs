//! Contract section 2: a reference by the client's own number in place of an id.

use serde_json::{Value, json};

use crate::support::{ALL, Api, TestServer};

const DEVICES: &str = "/hardware.php";

/// Customers 1 and 2 have the numbers `K-1` and `K-2`, and an employee each.
fn two_customers(api: &Api) {
    for n in 1..=2 {
        let email = format!("office{n}@x.example");
        let body = json!({"name": "Office", "customer_number": format!("K-{n}"), "email": email});
        let customer = api.create("/customers.php", body);
        let (number, email) = (format!("E-{n}"), format!("eva{n}@x.example"));
        let body = json!({"customer_id": customer, "employee_number": number, "email": email});
        api.create("/employees.php", body);
    }
}

/// The employee and the customer of a device.
fn owners(device: &Value) -> [&Value; 2] {
    [&device["employee_id"], &device["customer_id"]]
}

#[test]
fn a_number_or_an_address_stands_for_an_id() {
    let (_server, tenant) = TestServer::with_unlimited_tenant();
    two_customers(&tenant.with_scopes(ALL));
    // A script that registers a computer needs to read nothing.
    let api = tenant.with_scopes(&["employees:write", "hardware:write"]);
    for (member, value, customer) in [
        ("customer_number", " K-2 ", 2),
        ("customer_email", "office1@x.example", 1),
        ("customer_number", "K-1", 1),
    ] {
        let mut body = json!({"email": "new@x.example"});
        body[member] = json!(value);
        let employee = api.post("/employees.php", body).created();
        assert_eq!(employee["customer_id"], customer, "{member}");
        assert_eq!(employee.get(member), None);
    }
    let device = json!({"name": "PC", "serial_number": "S", "employee_number": "E-1"});
    let by_serial = "/hardware.php?update_by=serial_number";
    assert_eq!(owners(&api.post(by_serial, device).created()), [1, 1]);
    let device = json!({"name": "PC", "serial_number": "S", "employee_email": "eva2@x.example"});
    assert_eq!(owners(&api.post(by_serial, device).found()), [2, 2]);
    let given_back = api.put("/hardware.php?id=1", json!({"employee_number": null})).found();
    assert_eq!(owners(&given_back), [&Value::Null, &json!(2)]);
    let moved = api.put("/hardware.php?id=1", json!({"customer_number": "K-1"})).found();
    assert_eq!(owners(&moved), [&Value::Null, &json!(1)]);
}

#[test]
fn a_value_that_leads_to_no_record_or_to_several_changes_nothing() {
    let (_server, api) = TestServer::with_unlimited_api();
    two_customers(&api);
    let double = json!({"name": "Again", "customer_number": "K-1"});
    let double = api.create("/customers.php", double);
    let employee = |number: &str| json!({"email": "new@x.example", "customer_number": number});
    api.post("/employees.php", employee("K-9")).fails_with(422, "customer_not_found").saying("K-9");
    api.post("/employees.php", employee("K-1"))
        .fails_with(409, "ambiguous_record")
        .saying(&format!("ids 1, {double}"));
    let device = json!({"name": "PC", "employee_number": "E-9", "customer_number": "K-2"});
    api.post(DEVICES, device).fails_with(422, "employee_not_found").saying("employee_number");
    assert_eq!((api.total("/employees.php"), api.total(DEVICES)), (2, 0));

    // Another member, or the stored record, says which one it is.
    let mut both = employee("K-1");
    both["customer_id"] = json!(double);
    assert_eq!(api.post("/employees.php", both).created()["customer_id"], double);
    let same = json!({"customer_number": "K-1", "phone": "1"});
    assert_eq!(api.put("/employees.php?id=1", same).found()["customer_id"], 1);
    // Numbers of employees may begin anew at each customer.
    let mut colleague = employee("K-2");
    colleague["employee_number"] = json!("E-1");
    let colleague = api.create("/employees.php", colleague);
    let of_two = json!({"name": "PC", "employee_number": "E-1"});
    api.post(DEVICES, of_two.clone()).fails_with(409, "ambiguous_record");
    let mut narrowed = of_two;
    narrowed["customer_number"] = json!("K-2");
    assert_eq!(owners(&api.post(DEVICES, narrowed).created()), [colleague, 2]);
}

#[test]
fn several_members_of_one_reference_agree() {
    let (_server, api) = TestServer::with_unlimited_api();
    two_customers(&api);
    let employee = |members: &Value| {
        let mut body = json!({"email": "new@x.example"});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        api.post("/employees.php", body)
    };
    let agreeing =
        json!({"customer_id": 2, "customer_number": "K-2", "customer_email": "office2@x.example"});
    assert_eq!(employee(&agreeing).created()["customer_id"], 2);
    for different in [
        json!({"customer_id": 1, "customer_number": "K-2"}),
        json!({"customer_number": "K-2", "customer_email": "office1@x.example"}),
    ] {
        employee(&different).fails_with(400, "bad_request").saying("K-2");
    }
    // The records exist (check 26) before the members agree (check 27).
    employee(&json!({"customer_id": 1, "customer_number": "K-9"}))
        .fails_with(422, "customer_not_found");
    employee(&json!({"customer_id": 9, "customer_number": "K-1"}))
        .fails_with(422, "customer_not_found");
    for empty in [json!(null), json!(" ")] {
        let ignored = json!({"customer_id": empty, "customer_number": "K-2"});
        assert_eq!(employee(&ignored).created()["customer_id"], 2);
        let ignored = json!({"customer_id": 1, "customer_number": empty, "customer_email": empty});
        assert_eq!(employee(&ignored).created()["customer_id"], 1);
        employee(&json!({"customer_number": empty})).fails_on(&[("customer_id", "required")]);
    }
    employee(&json!({})).fails_on(&[("customer_id", "required")]).saying("customer_number");
    employee(&json!({"customer_number": 7})).fails_with(400, "bad_request");
    let malformed = json!({"customer_email": "x", "customer_number": "N".repeat(51)});
    employee(&malformed)
        .fails_on(&[("customer_number", "too_long"), ("customer_email", "invalid_email")]);
}

#[test]
fn a_batch_finds_the_records_that_it_has_made() {
    let (_server, api) = TestServer::with_unlimited_api();
    let post = |path: &str, body: Value| json!({"method": "POST", "path": path, "body": body});
    let operations = json!({"operations": [
        post("/customers.php", json!({"name": "New", "customer_number": "K-7"})),
        post("/employees.php", json!({"email": "e@x.example", "employee_number": "E-7",
            "customer_number": "K-7"})),
        post(DEVICES, json!({"name": "PC", "employee_number": "E-7"})),
        post(DEVICES, json!({"name": "PC", "customer_id": {"result": 0}, "customer_number": "K-7"})),
    ]});
    let results = api.post("/batch.php", operations).found();
    assert_eq!(owners(&results["results"][2]["body"]), [1, 1]);
    assert_eq!(owners(&results["results"][3]["body"]), [&Value::Null, &json!(1)]);
}
