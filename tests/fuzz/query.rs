//! Query strings, through everything that a list makes of them, to the rows of a tenant's file.

use std::path::Path;
use std::sync::Arc;

use tenantdesk::api::filter::filters;
use tenantdesk::api::list;
use tenantdesk::api::parameters::Query;
use tenantdesk::clock::Clock;
use tenantdesk::config::Config;
use tenantdesk::model::{self, Field, Kind, Resource, Scopes, TenantId, Value};
use tenantdesk::store::{Actor, ChangeContext, DataDir, Deadline, Registry, TenantFile, Tenants};

use crate::mutate::{fuzz, words};

const SEEDS: &[&[u8]] = &[
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

const PIECES: &str = "
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
    fuzz("query", SEEDS, &words(PIECES), |input| {
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
