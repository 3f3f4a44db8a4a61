//! Contract section 2: the customer of a piece of hardware.

use serde_json::{Value, json};

use crate::support::{ALL, Api, TestServer};

const DEVICE: &str = "/hardware.php?id=1";

/// Customers 1 and 2 with the employees 1 and 2.
fn two_customers(api: &Api) {
    for name in ["Eins", "Zwei"] {
        let customer = api.customer(name);
        api.employee(customer);
    }
}

/// The employee and the customer of device 1.
#[track_caller]
fn assert_belongs(api: &Api, employee: Option<i64>, customer: Option<i64>) {
    let device = api.get(DEVICE).found();
    assert_eq!(
        [&device["employee_id"], &device["customer_id"]],
        [&json!(employee), &json!(customer)]
    );
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
        (json!({"employee_id": 2, "customer_id": ""}), None, Some(1)),
        (json!({"employee_id": 2, "customer_id": 1}), Some(2), Some(2)),
        (json!({"employee_id": null, "customer_id": null}), None, None),
        (json!({"employee_id": 2, "customer_id": null}), Some(2), Some(2)),
    ];
    api.create("/hardware.php", json!({"name": "Switch"}));
    for (body, employee, customer) in steps {
        let is_refused = body["customer_id"] == "";
        let reply = api.put(DEVICE, body);
        if is_refused {
            reply.fails_with(400, "bad_request");
        } else {
            reply.is(200);
        }
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

#[test]
fn a_file_names_the_customer_of_a_device_by_number_or_address() {
    let (server, api) = TestServer::with_unlimited_api();
    for (number, email) in [("C-1", "eins@shop.example"), ("C-2", "zwei@shop.example")] {
        let body = json!({"name": number, "customer_number": number, "email": email});
        let customer = api.create("/customers.php", body);
        let employee = json!({"customer_id": customer, "email": format!("of-{email}")});
        api.create("/employees.php", employee);
    }
    let import = |text: &str, options: &[&str]| {
        let file = server.home().join("devices.csv");
        std::fs::write(&file, text).unwrap();
        let command = ["import", "acme", "hardware", file.to_str().unwrap()];
        server.cli(&[&command[..], options].concat())
    };
    import("name,customer_email\nServer,zwei@shop.example\nNobody's,\n", &[]).done();
    let text = "name,customer_number,employee_email\n\
                Laptop,,of-eins@shop.example\n\
                Screen,C-2,of-zwei@shop.example\n\
                Switch,C-1,\n";
    import(text, &[]).done();
    let owners = |api: &Api| -> Vec<Value> {
        api.all("/hardware.php").iter().map(|device| device["customer_id"].clone()).collect()
    };
    assert_eq!(owners(&api), [json!(2), json!(null), json!(1), json!(2), json!(1)]);
    let wrong = "name,customer_number,employee_email\nPhone,C-2,of-eins@shop.example\n";
    let refused = import(wrong, &[]).ends_with(1);
    assert!(refused.stderr.starts_with("line 2: customer_id: bad_request"), "{refused:?}");
    // Changed employees in an exported file take the devices to their customers.
    let text = "id,employee_id,customer_id\n3,2,1\n4,,2\n5,1,\n";
    import(text, &["--update-by", "id"]).done();
    assert_eq!(owners(&api), [json!(2), json!(null), json!(2), json!(2), json!(1)]);
    // The file of an employee moves devices, too.
    let file = server.home().join("employees.csv");
    std::fs::write(&file, "id,customer_number\n2,C-1\n").unwrap();
    let file = file.to_str().unwrap();
    server.cli(&["import", "acme", "employees", file, "--update-by", "id"]).done();
    assert_eq!(owners(&api), [json!(2), json!(null), json!(1), json!(2), json!(1)]);
}
