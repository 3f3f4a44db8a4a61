//! What the API reads: query strings, cursors, and JSON bodies for every resource. Each response is
//! as the OpenAPI document describes it.

use std::cell::RefCell;

use serde_json::{Value, json};
use tenantdesk::model;

use super::{fuzz, words};
use crate::support::raw::{Client, request};
use crate::support::{ALL, Reply, TestServer, encoded, schema};

/// A service whose tenant has records that others may refer to, and one connection to it.
struct Fixture {
    _server: TestServer,
    key: String,
    client: RefCell<Client>,
}

impl Fixture {
    fn new() -> Fixture {
        let (server, tenant) = TestServer::with_unlimited_tenant();
        let key = tenant.key(ALL).key;
        let api = server.with_key(&key);
        for n in 0..10 {
            let employee = api.employee(api.customer(&format!("needle {n}")));
            api.create("/hardware.php", json!({"name": "needle", "employee_id": employee}));
        }
        let client = RefCell::new(Client::connect(server.address()));
        Fixture { _server: server, key, client }
    }

    /// Sends a request. Its response is a success, or an error with its status in its body. Several
    /// records can have the number of a reference (409).
    fn ask(&self, method: &str, target: &str, body: &[u8]) -> Reply {
        let json = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        let mut bytes = request(method, target, &self.key, &json, "").into_bytes();
        bytes.extend_from_slice(body);
        let mut client = self.client.borrow_mut();
        client.send(bytes);
        let answer = client.answer();
        assert!(
            [200, 201, 400, 409, 422].contains(&answer.status),
            "{method} {target}: {answer:?}"
        );
        let (status, headers, body) = (answer.status, &answer.headers, &answer.body);
        let described = schema::Answer { method, target, status, headers, body };
        if let Err(fault) = described.check() {
            panic!("not as described: {fault}: {method} {target}: {answer:?}");
        }
        answer
    }

    /// Reads the list of each resource, and its next page.
    fn read(&self, query: &str) {
        for resource in model::ALL {
            let answer = self.ask("GET", &format!("{}?{query}", resource.path), b"");
            let link = answer.header("Link").unwrap_or_default();
            if let Some((target, _)) = link.trim_start_matches('<').split_once('>') {
                assert_eq!(self.ask("GET", target, b"").status, 200, "{target}");
            }
        }
    }
}

/// The bytes as a query. The ones that hyper takes in no target are encoded.
fn query_of(input: &[u8]) -> String {
    let character = |byte: &u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
        byte if b"&=+%-_.~:/?,;!*'()@$".contains(byte) => char::from(*byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    // A longer target is refused by the edge.
    input.iter().take(2_000).map(character).collect()
}

const QUERY_SEEDS: &[&[u8]] = &[
    b"cursor=AQAAAAAAAAAAAAAAAAAAAAAAbg&limit=1",
    b"customer_since_from=2026-01-01&customer_since_to=2026-12-31&country=DE&name=null",
    b"customer_id=7&is_active=true&end_date=null&sort=email",
    b"q=%zz&name=%&a=+%20%00%ff",
    b"type=laptop&employee_id=1&purchase_date_from=2024-02-29&sort=-warranty_until&price=1",
    b"customer_id=1&status=in_stock&sort=-name&q=needle&total=true",
    b"limit=50&sort=-name&status=active&q=wei%C3%9F+ma&total=true",
    b"q=a%00b",
    b"q=needle&sort=-created_at&total=true&limit=3",
    b"created_at_from=2026-11-20&created_at_to=2026-11-20T19:30:00%2B02:00&updated_at=2026-11-\
      20T19:30:00Z",
];

const QUERY_PIECES: &str = "
    & = % %00 a%00b %ff %C3%BC + limit= cursor= sort=- total=true q= needle _from= _to= null
    2026-02-30 2026-11-20T19:30:00%2B14:00 9223372036854775808 -1 created_at name= is_active=1
    customer_id= é 9999-12-31T23:59:60Z -9999
";

#[test]
fn query() {
    let fixture = Fixture::new();
    fuzz("query", QUERY_SEEDS, &words(QUERY_PIECES), |input| {
        fixture.read(&query_of(input));
    });
}

const CURSOR_PIECES: &str = "AAAA ____ ==== %00 - eyJ Z 0";

/// A cursor that the service has not given out is refused.
#[test]
fn cursor() {
    let fixture = Fixture::new();
    let list = "/customers.php?limit=1&sort=-name";
    let given = fixture.ask("GET", list, b"").json()["next_cursor"].as_str().unwrap().to_owned();
    let seeds = [given.as_bytes(), &[b'A'; 600], b"AQAA====", b"AQ"];
    fuzz("cursor", &seeds, &words(CURSOR_PIECES), |input| {
        let cursor = String::from_utf8_lossy(&input[..input.len().min(2_000)]).into_owned();
        let answer = fixture.ask("GET", &format!("{list}&cursor={}", encoded(&cursor)), b"");
        let is_good = cursor.is_empty() || cursor == given;
        assert_eq!(answer.status == 200, is_good, "{cursor}");
    });
}

const BODY_SEEDS: &[&[u8]] = &[
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

const BODY_PIECES: &str = r#"
    { } [ ] " : , null true 1 0 -1 1e2 9223372036854775808 \u0000 \ud800 \ud83d\ude00 é
    "name": "email": "customer_id":1 "employee_id":1 "status":"active" "is_active":1
    "customer_since":"2026-02-30" "a@b.example" "\u0020" "id":7 "created_at":"x" "country":"DE"
    "type":"laptop" [[[[[[[[[[[[[[[[ {"a":{"a":{"a": {"result":0} {"operations":[
    "path":"/employees.php" "if_match":
"#;

#[test]
fn body() {
    let fixture = Fixture::new();
    let nested = [b"{\"a\":".repeat(64), b"1".to_vec(), b"}".repeat(64)].concat();
    let seeds = [BODY_SEEDS, &[&nested]].concat();
    fuzz("body", &seeds, &words(BODY_PIECES), |input| {
        // Larger bodies are rejected by the edge.
        let input = &input[..input.len().min(64 * 1024)];
        for batch in [input.to_vec(), batch_of(input)] {
            let answer = fixture.ask("POST", "/batch.php", &batch).json();
            assert!(answer.as_object().is_some_and(|members| !members.is_empty()), "{answer}");
        }
        for resource in model::ALL {
            let one = format!("{}?id=1", resource.path);
            for (method, target) in [("POST", resource.path), ("PUT", &one)] {
                let answer = fixture.ask(method, target, input);
                if answer.status < 400 {
                    let made: Value = answer.json();
                    let target = format!("{}?id={}", resource.path, made["id"]);
                    assert_eq!(fixture.ask("GET", &target, b"").json(), made);
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
