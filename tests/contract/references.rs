//! Contract section 2: a reference by the client's own number in place of an id, and the customer of
//! a piece of hardware.

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
    let device = api.post(DEVICES, narrowed).created();
    assert_eq!(owners(&device), [colleague, 2]);
    let path = format!("{DEVICES}?id={}", device["id"]);
    let to_the_other = json!({"employee_number": "E-1", "customer_id": 1});
    assert_eq!(owners(&api.put(&path, to_the_other).found()), [1, 1]);
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

const DEVICE: &str = "/hardware.php?id=1";

/// The employee and the customer of device 1.
#[track_caller]
fn assert_belongs(api: &Api, employee: Option<i64>, customer: Option<i64>) {
    assert_eq!(owners(&api.get(DEVICE).found()), [&json!(employee), &json!(customer)]);
}

#[test]
fn a_device_belongs_to_the_customer_of_its_employee() {
    let (_server, api) = TestServer::with_unlimited_api();
    two_customers(&api);
    // What is sent, and the employee and the customer of the device afterwards.
    let steps = [
        (json!({"customer_id": 2}), None, Some(2)),
        (json!({"customer_id": null}), None, None),
        (json!({"employee_id": 1}), Some(1), Some(1)),
        (json!({"employee_id": 1, "customer_id": 1}), Some(1), Some(1)),
        (json!({"employee_id": 2}), Some(2), Some(2)),
        (json!({"employee_id": 1, "customer_id": 1}), Some(1), Some(1)),
        // The stored customer counts as not named.
        (json!({"employee_id": 2, "customer_id": 1}), Some(2), Some(2)),
        // An employee gives the device back, and it stays with the customer.
        (json!({"employee_id": null}), None, Some(2)),
        (json!({"employee_id": null, "customer_id": 1}), None, Some(1)),
        (json!({"employee_id": 2, "customer_id": 1}), Some(2), Some(2)),
        (json!({"employee_id": null, "customer_id": null}), None, None),
        (json!({"employee_id": 2, "customer_id": null}), Some(2), Some(2)),
    ];
    api.create("/hardware.php", json!({"name": "Switch"}));
    for (body, employee, customer) in steps {
        api.put(DEVICE, body).is(200);
        assert_belongs(&api, employee, customer);
    }
    let whole = api.get(DEVICE).found();
    assert_eq!(api.put(DEVICE, whole.clone()).found(), whole);
}

#[test]
fn a_customer_other_than_the_employees_is_refused() {
    let (_server, api) = TestServer::with_unlimited_api();
    two_customers(&api);
    let refused = |reply: crate::support::Reply, named: &str| {
        let reply = reply.fails_with(400, "bad_request");
        reply.saying(&format!("\"customer_id\" was {named}")).saying("customer 1");
    };
    for (customer, named) in [(json!(2), "2"), (json!(null), "null")] {
        let body = json!({"name": "Laptop", "employee_id": 1, "customer_id": customer});
        refused(api.post("/hardware.php", body.clone()), named);
        refused(api.post("/hardware.php?update_by=name", body.clone()), named);
        let operation = json!({"method": "POST", "path": "/hardware.php", "body": body});
        refused(api.post("/batch.php", json!({"operations": [operation]})), named);
    }
    assert!(api.all("/hardware.php").is_empty());
    api.create("/hardware.php", json!({"name": "Laptop", "employee_id": 1}));
    refused(api.put(DEVICE, json!({"customer_id": 2})), "2");
    refused(api.put(DEVICE, json!({"customer_id": null, "employee_id": 1})), "null");
    // The references come first.
    let missing = json!({"employee_id": 9, "customer_id": 2});
    api.put(DEVICE, missing).fails_with(422, "employee_not_found");
    api.put(DEVICE, json!({"customer_id": 9})).fails_with(422, "customer_not_found");
    assert_belongs(&api, Some(1), Some(1));
}

#[test]
fn an_employee_takes_the_devices_along() {
    let (_server, tenant) = TestServer::with_unlimited_tenant();
    let (api, mover) = (tenant.with_scopes(ALL), tenant.with_scopes(&["employees:write"]));
    two_customers(&api);
    for employee in [json!(1), json!(2), json!(null), json!(1)] {
        api.create("/hardware.php", json!({"name": "Laptop", "employee_id": employee}));
    }
    let before = api.all("/hardware.php");
    let cursor = api.get("/changes.php?cursor=now").found()["next_cursor"].clone();
    // A batch that fails leaves the devices where they are.
    let put = |id: i64, customer: i64| {
        json!({"method": "PUT",
        "path": format!("/employees.php?id={id}"), "body": {"customer_id": customer}})
    };
    let failing = json!({"operations": [put(1, 2), put(9, 2)]});
    mover.post("/batch.php", failing).fails_with(404, "not_found");
    assert_eq!(api.all("/hardware.php"), before);
    mover.put("/employees.php?id=1", json!({"customer_id": 2})).is(200);
    let after = api.all("/hardware.php");
    assert_eq!(api.ids("/hardware.php?customer_id=2"), [1, 2, 4]);
    assert_eq!([&after[1], &after[2]], [&before[1], &before[2]], "the others stay as they are");
    let cursor = cursor.as_str().unwrap();
    let page = api.get(&format!("/changes.php?cursor={cursor}")).found();
    let entries = page["data"].as_array().unwrap();
    assert_eq!(entries[0]["resource"], "employees");
    assert_eq!(entries.len(), 3);
    for (entry, place) in entries[1..].iter().zip([0, 3]) {
        assert_eq!(entry["id"], after[place]["id"]);
        assert_eq!(entry["fields"], json!(["customer_id"]));
        assert_eq!(entry["before"], json!({"customer_id": 1}));
        assert_eq!(entry["request_id"], entries[0]["request_id"]);
        assert_ne!(after[place]["etag"], before[place]["etag"]);
    }
    mover.put("/employees.php?id=1", json!({"phone": "1"})).is(200);
    assert_eq!(api.all("/hardware.php"), after);
}

#[test]
fn a_request_moves_at_most_999_devices_along() {
    let (server, api) = TestServer::with_unlimited_api();
    two_customers(&api);
    for _ in 0..2 {
        api.employee(1);
    }
    let import = |resource: &str, text: &str, options: &[&str]| {
        let file = server.home().join("list.csv");
        std::fs::write(&file, text).unwrap();
        let command = ["import", "acme", resource, file.to_str().unwrap()];
        server.cli(&[&command[..], options].concat()).done();
    };
    let devices: String = [(1, 1_000), (3, 600), (4, 399)]
        .map(|(employee, count)| format!("Laptop,{employee}\n").repeat(count))
        .concat();
    import("hardware", &format!("name,employee_id\n{devices}"), &[]);
    let at_second = || api.total("/hardware.php?customer_id=2");
    let put = |employee: i64| {
        json!({"method": "PUT", "path": format!("/employees.php?id={employee}"),
               "body": {"customer_id": 2}})
    };
    let refused = api.put("/employees.php?id=1", json!({"customer_id": 2}));
    let refused = refused.fails_with(409, "has_dependents");
    refused.saying("1,000 devices").saying("import --update-by");
    // Each would pass alone. With the two employees, these are 1,001 records.
    let batch = json!({"operations": [put(3), put(4)]});
    let refused = api.post("/batch.php", batch).fails_with(409, "has_dependents");
    assert_eq!(refused.json()["operation"], 1);
    assert_eq!(at_second(), 0);
    api.put("/employees.php?id=4", json!({"customer_id": 2, "phone": "1"})).is(200);
    api.put("/hardware.php?id=1", json!({"employee_id": null})).is(200);
    api.put("/employees.php?id=1", json!({"customer_id": 2})).is(200);
    assert_eq!(at_second(), 399 + 999);
    api.put("/employees.php?id=1", json!({"phone": "1"})).is(200);
    api.put("/hardware.php?id=1", json!({"employee_id": 1})).is(200);
    import("employees", "id,customer_id\n1,1\n", &["--update-by", "id"]);
    assert_eq!(at_second(), 399);
}
