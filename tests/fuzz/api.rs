//! What the API reads: query strings, down to the rows of a tenant's file; cursors, which it accepts if
//! it gave them out; and JSON bodies for every resource, whose responses are those of the contract.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use tenantdesk::api::filter::filters;
use tenantdesk::api::list;
use tenantdesk::api::parameters::Query;
use tenantdesk::clock::Clock;
use tenantdesk::config::Config;
use tenantdesk::model::{
    self, Field, KeysetPosition, Kind, RecordId, Resource, Scopes, TenantId, Value,
};
use tenantdesk::store::{Actor, ChangeContext, DataDir, Deadline, Registry, TenantFile, Tenants};

use crate::support::raw::{Client, request};
use crate::support::{ALL, InProcess};
use crate::{fuzz, words};

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

/// Records of each resource.
const RECORDS: usize = 20;

/// A tenant with records of every resource, all of whose texts hold the word `needle`. Returns its
/// id.
fn make_tenant(data_dir: &Path) -> TenantId {
    DataDir::create(data_dir).unwrap();
    let registry = Registry::open(data_dir).unwrap();
    let id =
        registry.create_tenant("acme", None, "$phc", None, Clock::system().now()).unwrap().0.id;
    let mut file = TenantFile::open(data_dir, id).unwrap();
    let at = Clock::system().now().timestamp();
    let context =
        ChangeContext { at, actor: Actor::Command { name: "import", run: uuid::Uuid::nil() } };
    for resource in model::ALL {
        let import = file.begin(Some(resource), || ()).unwrap();
        let writing = import.writing();
        for n in 0..RECORDS {
            writing.insert(resource, None, None, values(resource, n), &context).unwrap();
        }
        writing.flush().unwrap();
        drop(writing);
        import.commit(at).unwrap();
    }
    id
}

fn values(resource: &Resource, n: usize) -> Vec<Value> {
    resource.fields.iter().map(|field| value(field, n)).collect()
}

fn value(field: &Field, n: usize) -> Value {
    match field.kind {
        _ if !field.required && n.is_multiple_of(3) => field.default_value(),
        Kind::Text { max: 2, .. } => Value::Text("DE".to_owned()),
        Kind::Text { .. } => Value::Text(format!("needle {n}")),
        Kind::Email => Value::Text(format!("needle-{n}@shop.example")),
        Kind::Integer => Value::Integer(1),
        Kind::Boolean => Value::Boolean(n.is_multiple_of(2)),
        Kind::Date | Kind::Timestamp => Value::Text("2026-11-20".to_owned()),
        Kind::Choice(_) | Kind::Custom => field.default_value(),
    }
}

#[test]
fn query() {
    let data = tempfile::tempdir().unwrap();
    let id = make_tenant(data.path());
    let tenants =
        Tenants::new(Arc::new(Registry::open(data.path()).unwrap()), Config::new("").tenants);
    let tenant = tenants.open(id).unwrap();
    fuzz("query", QUERY_SEEDS, &words(QUERY_PIECES), |input| {
        let text = String::from_utf8_lossy(input);
        let Ok(query) = Query::parse(Some(&text)) else { return };
        for resource in model::ALL {
            let Ok(list) = list::parse(resource, &query, Scopes::every()) else { continue };
            assert!((1..=200).contains(&list.limit));
            assert!(list.words.len() <= 20);
            let page =
                tenant.read(Deadline::new(Arc::default()), |reading| reading.page(&list)).unwrap();
            let records: Vec<serde_json::Value> = serde_json::from_slice(&page.json).unwrap();
            assert!(records.len() <= list.limit);
            assert!(page.next.is_none() || records.len() == list.limit);
        }
        // The next page's address says the same, and can stand in a header.
        let next = query.with_cursor("abc");
        assert!(next.bytes().all(|byte| (0x21..0x7f).contains(&byte)), "{next:?}");
        let again = Query::parse(Some(&next)).unwrap();
        assert_eq!(again.get("cursor"), Some("abc"));
        for resource in model::ALL {
            let filters = filters(resource).iter().map(|filter| filter.name.as_str());
            for name in list::parameters(resource).chain(filters).filter(|name| *name != "cursor") {
                assert_eq!(again.get(name), query.get(name), "{next:?}");
            }
        }
    });
}

const CURSOR_SEEDS: &[&[u8]] =
    &[b"AQAAAAAAAAAAAAAAAAAAAAAAbgAAAAAAAAAA&sort=-name", &[b'A'; 600], b"", b"AQAA====", b"AQ"];

const CURSOR_PIECES: &str =
    "AAAA ____ ==== %00 - eyJ &sort=name &sort=-created_at &q=a &status=active Z 0";

#[test]
fn cursor() {
    fuzz("cursor", CURSOR_SEEDS, &words(CURSOR_PIECES), |input| {
        let text = format!("cursor={}", String::from_utf8_lossy(input));
        let Ok(query) = Query::parse(Some(&text)) else { return };
        for resource in model::ALL {
            forge(resource, input);
            let Ok(list) = list::parse(resource, &query, Scopes::every()) else { continue };
            let Some(position) = &list.after else {
                assert_eq!(query.get("cursor"), Some(""), "only an empty cursor has no place");
                continue;
            };
            let written = list::write_cursor(position, &list);
            let again = Query::parse(Some(&query.with_cursor(&written))).unwrap();
            assert_eq!(
                list::parse(resource, &again, Scopes::every()).unwrap().after.as_ref(),
                Some(position),
                "{written}"
            );
        }
    });
}

/// A cursor that was put together by someone who knows how: its sum is right, its content is not.
fn forge(resource: &'static Resource, input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut number = [0; 8];
    number.iter_mut().zip(input).for_each(|(to, from)| *to = *from);
    let number = i64::from_be_bytes(number);
    let values = [
        Value::Null,
        Value::Boolean(number & 1 == 1),
        Value::Integer(number),
        Value::Text(text.into_owned()),
    ];
    for sort in resource.sortable_fields() {
        let query = format!("sort={}", sort.name);
        let list =
            list::parse(resource, &Query::parse(Some(&query)).unwrap(), Scopes::every()).unwrap();
        for value in &values {
            let position = KeysetPosition { value: value.clone(), id: RecordId(number) };
            let forged = format!("{query}&cursor={}", list::write_cursor(&position, &list));
            if let Ok(taken) =
                list::parse(resource, &Query::parse(Some(&forged)).unwrap(), Scopes::every())
            {
                assert_eq!(taken.after, Some(position));
            }
        }
    }
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
    let seeds = [BODY_SEEDS, &[&nested]].concat();
    fuzz("body", &seeds, &words(BODY_PIECES), |input| {
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
                let reported: serde_json::Value = answer.json();
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
