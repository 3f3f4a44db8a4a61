//! JSON bodies to every resource, through the whole service. The contract knows each answer, and a
//! created record is found as it was returned.

use std::cell::RefCell;

use serde_json::Value;
use tenantdesk::model;

use crate::mutate::{fuzz, words};
use crate::support::raw::{Client, request};
use crate::support::{ALL, InProcess};

const SEEDS: &[&[u8]] = &[
    b"[1,2]",
    br#"{"name":"Muster GmbH","customer_number":"K-1","email":"info@muster.example","phone":"+49 30 1",
      "street":"Weg 1","postal_code":"10115","city":"Berlin","country":"DE","status":"active",
      "customer_since":"2024-02-29","notes":"\u00df"}"#,
    br#"{"customer_id":1,"email":"eva@muster.example","first_name":"Eva","last_name":"M","department":
      "IT","job_title":"Admin","is_active":true,"start_date":"2024-01-01","end_date":null,"notes":""}"#,
    b"{}",
    br#"{"name":"\u0041\ud83d\ude00\n\"","notes":"\u0000"}"#,
    br#"{"name":"Laptop","employee_id":1,"type":"laptop","manufacturer":"M","model":"X",
      "serial_number":"S","notes":"n"}"#,
    br#"{"name":"a1","name":"a2"}"#,
    br#"{"customer_id":"1","email":7,"is_active":"yes","start_date":"2024-02-30","type":"car"}"#,
];

const PIECES: &str = r#"
    { } [ ] " : , null true 1 0 -1 1e2 9223372036854775808 \u0000 \ud800 \ud83d\ude00 é
    "name": "email": "customer_id":1 "employee_id":1 "status":"active" "is_active":1
    "customer_since":"2026-02-30" "a@b.example" "\u0020" "id":7 "created_at":"x" "country":"DE"
    "type":"laptop" [[[[[[[[[[[[[[[[ {"a":{"a":{"a": {"result":0} {"operations":[
    "path":"/employees.php" "if_match":
"#;

const STATUSES: [u16; 4] = [200, 201, 400, 422];

#[test]
fn body() {
    let server = InProcess::made_of(|app| app);
    let tenant = server.tenant("acme");
    let key = tenant.key(ALL).key;
    // Records that others may refer to, and that are changed.
    let api = server.with_key(&key);
    let employee = api.employee(api.customer("First"));
    api.create("/hardware.php", serde_json::json!({"name": "First", "employee_id": employee}));
    let client = RefCell::new(Client::connect(server.address()));
    let ask = |method: &str, target: &str, body: &[u8]| {
        let json = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        let mut bytes = request(method, target, &key, &json, "").into_bytes();
        bytes.extend_from_slice(body);
        let mut client = client.borrow_mut();
        client.send(bytes);
        client.answer()
    };
    let nested = [b"{\"a\":".repeat(64), b"1".to_vec(), b"}".repeat(64)].concat();
    let seeds = [SEEDS, &[&nested]].concat();
    fuzz("body", &seeds, &words(PIECES), |input| {
        // Larger bodies are rejected by the edge.
        let input = &input[..input.len().min(64 * 1024)];
        for batch in [input.to_vec(), batch_of(input)] {
            let answer = ask("POST", "/batch.php", &batch);
            assert!(STATUSES.contains(&answer.status), "{answer:?}");
            let members = answer.json().as_object().map_or(0, serde_json::Map::len);
            assert!(members > 0, "{answer:?}");
        }
        for resource in model::ALL {
            for (method, target) in
                [("POST", resource.path.to_owned()), ("PUT", format!("{}?id=1", resource.path))]
            {
                let answer = ask(method, &target, input);
                assert!(STATUSES.contains(&answer.status), "{method} {target}: {answer:?}");
                let reported: Value = answer.json();
                if answer.status >= 400 {
                    assert_eq!(reported["error"]["status"], answer.status);
                } else {
                    let found =
                        ask("GET", &format!("{}?id={}", resource.path, reported["id"]), b"");
                    assert_eq!(found.json(), reported);
                }
            }
        }
    });
}

/// A batch that creates a customer, and then an employee from `body`.
fn batch_of(body: &[u8]) -> Vec<u8> {
    let customer: &[u8] =
        br#"{"operations":[{"method":"POST","path":"/customers.php","body":{"name":"First"}},"#;
    let employee: &[u8] = br#"{"method":"POST","path":"/employees.php","body":"#;
    [customer, employee, body, b"}]}"].concat()
}
