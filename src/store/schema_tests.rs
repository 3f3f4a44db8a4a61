//! The schema has the declared columns, and every list is read in the order of an index.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::records::{self, Reading};
use super::schema;
use super::tenants::SCHEMA;
use crate::api::list::sortable;
use crate::model::{ALL, CUSTOMER, Field, HARDWARE, KeysetPosition, Kind, ListQuery, Predicate, Resource, Value};

fn tenant_file() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let connection = schema::create(&folder.path().join("1.db"), &SCHEMA).unwrap();
    (folder, connection)
}

/// A column: name, type, whether it is NOT NULL, and the table that it refers to.
type Column = (String, String, bool, Option<String>);

/// A set, because `ALTER TABLE … ADD COLUMN` appends: the order of columns does not count.
fn columns(connection: &Connection, table: &str) -> BTreeSet<Column> {
    let mut statement = connection
        .prepare(
            "SELECT c.name, c.type, c.\"notnull\", f.\"table\" FROM pragma_table_info(?1) c
             LEFT JOIN pragma_foreign_key_list(?1) f ON f.\"from\" = c.name",
        )
        .unwrap();
    statement
        .query_map([table], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

fn declared(resource: &Resource) -> BTreeSet<Column> {
    let column = |field: &Field| {
        let kind = match field.kind {
            Kind::Integer | Kind::Boolean => "INTEGER",
            Kind::Text { .. } | Kind::Email | Kind::Date | Kind::Choice(_) => "TEXT",
        };
        let target = Resource::referenced(field).map(|target| target.plural.to_owned());
        (field.name.to_owned(), kind.to_owned(), field.required || field.default.is_some(), target)
    };
    let text = |name: &str| (name.to_owned(), "TEXT".to_owned(), true, None);
    let id = ("id".to_owned(), "INTEGER".to_owned(), false, None);
    [id].into_iter()
        .chain(resource.fields.iter().map(column))
        .chain([text("created_at"), text("updated_at"), text("search")])
        .chain([("version".to_owned(), "INTEGER".to_owned(), false, None)])
        .chain([("last_word".to_owned(), "INTEGER".to_owned(), true, None)])
        .collect()
}

#[test]
fn the_schema_has_the_declared_columns() {
    let (_folder, connection) = tenant_file();
    for resource in ALL {
        assert_eq!(columns(&connection, resource.plural), declared(resource), "{}", resource.plural);
    }
}

/// What SQLite does for a statement, one line each.
fn plan(connection: &Connection, sql: &str, values: &[Value]) -> Vec<String> {
    let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    plan.query_map(rusqlite::params_from_iter(values.iter()), |row| row.get(3)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn every_sort_reads_in_the_order_of_an_index() {
    let (_folder, connection) = tenant_file();
    for resource in ALL {
        for sort in sortable(resource) {
            for descending in [false, true] {
                let null = sort.is_nullable().then_some(Value::Null);
                for value in [None, null, Some(Value::Text("m".to_owned()))] {
                    let list = ListQuery {
                        resource,
                        sort,
                        descending,
                        filters: Vec::new(),
                        words: Vec::new(),
                        limit: 50,
                        after: value.map(|value| KeysetPosition { value, id: 7 }),
                        total: false,
                    };
                    for (sql, values) in records::statements(&Reading::new(&connection), &list) {
                        let steps = plan(&connection, &sql, &values);
                        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{sql}: {steps:?}");
                        assert!(
                            !sql.contains("WHERE") || steps.iter().all(|step| step.starts_with("SEARCH")),
                            "{sql}: {steps:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_page_of_the_journal_is_read_along_its_indexes() {
    let (_folder, connection) = tenant_file();
    for count in 1..=ALL.len() {
        for record in [None, Some(3)] {
            let (sql, values) = records::page_statement(&ALL[..count], record);
            let steps = plan(&connection, &sql, &values);
            let reads: Vec<&String> = steps.iter().filter(|step| step.contains(" changes ")).collect();
            assert_eq!(reads.len(), count + 1, "{sql}: {steps:?}");
            assert!(reads.iter().all(|step| step.starts_with("SEARCH")), "{sql}: {steps:?}");
            assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{sql}: {steps:?}");
        }
    }
}

#[test]
fn a_narrow_range_is_read_along_its_index_and_a_wide_one_in_the_order_of_the_list() {
    let (_folder, connection) = tenant_file();
    connection
        .execute_batch(
            "WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n LIMIT 10000)
             INSERT INTO customers (name, status, customer_since, created_at, updated_at, search)
             SELECT 'Name', 'active', date('2000-01-01', id || ' days'), '', '', '' FROM n",
        )
        .unwrap();
    let column = |name: &str| sortable(&CUSTOMER).find(|column| column.name() == name).unwrap();
    let since = column("customer_since");
    for name in ["id", "name"] {
        for after in [None, Some(KeysetPosition { value: Value::Text("m".to_owned()), id: 7 })] {
            for (from, narrow) in [("2000-03-01", false), ("2026-01-01", true)] {
                let list = ListQuery {
                    resource: &CUSTOMER,
                    sort: column(name),
                    descending: false,
                    filters: vec![
                        (since, Predicate::AtLeast(from.to_owned())),
                        (column("status"), Predicate::Equals(Value::Text("active".to_owned()))),
                    ],
                    words: Vec::new(),
                    limit: 50,
                    after: after.clone(),
                    total: false,
                };
                for (sql, values) in records::statements(&Reading::new(&connection), &list) {
                    let steps = plan(&connection, &sql, &values).join(", ");
                    assert_eq!(steps.contains("customers_by_customer_since"), narrow, "{sql}: {steps}");
                }
            }
        }
    }
}

/// The first 5,000 pieces are nobody's, the next 51,000 are the first customer's, then 4,500 the second's, and the last is the third's.
/// Names are in the opposite order, two pieces to a name. Every piece holds the word `everywhere`, every 20,000th `rarely`, and those that
/// are the last by name `last`.
fn hardware_of_customers(connection: &Connection) -> Vec<(i64, Option<i64>)> {
    connection
        .execute_batch(
            "INSERT INTO customers (name, status, created_at, updated_at, search)
             VALUES ('A', 'active', '', '', ''), ('B', 'active', '', '', ''), ('C', 'active', '', '', '');
             INSERT INTO employees (customer_id, email, is_active, created_at, updated_at, search)
             VALUES (3, '', 1, '', '', ''), (1, '', 1, '', '', ''), (2, '', 1, '', '', ''), (1, '', 1, '', '', '');
             WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n LIMIT 60501)
             INSERT INTO hardware (name, employee_id, type, status, is_leased, created_at, updated_at, search)
             SELECT printf('%06d', (60501 - id) / 2),
               CASE WHEN id <= 5000 THEN NULL WHEN id <= 56000 THEN 2 + id % 2 * 2 WHEN id <= 60500 THEN 3 ELSE 1 END,
               'other', 'lost', 0, '', '', iif(id % 20000 = 0, 'rarely ', '') || iif(id <= 10000, 'last ', '') || 'everywhere' FROM n",
        )
        .unwrap();
    let one_commit = connection.unchecked_transaction().unwrap();
    records::build_search(&one_commit).unwrap();
    one_commit.commit().unwrap();
    let customer = |id| match id {
        1..=5_000 => None,
        5_001..=56_000 => Some(1),
        56_001..=60_500 => Some(2),
        _ => Some(3),
    };
    (1..=60_501).map(|id| (id, customer(id))).collect()
}

/// The ids on the first three pages. Each page has the same total.
fn first_ids(reading: &Reading<'_>, mut list: ListQuery, total: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    for _ in 0..3 {
        let page = reading.page(&list).unwrap();
        assert_eq!(page.total, Some(i64::try_from(total).unwrap()), "{list:?}");
        let records: Vec<serde_json::Value> = serde_json::from_slice(&page.json).unwrap();
        ids.extend(records.iter().map(|record| record["id"].as_i64().unwrap()));
        list.after = page.next;
        if list.after.is_none() {
            break;
        }
    }
    ids
}

/// Hardware of a customer, or of no employee, in the order of ids or names, with at most one word.
fn list_of_customer(customer: Option<i64>, sort: &str, descending: bool, word: &str) -> ListQuery {
    let column = |name: &str| sortable(&HARDWARE).find(|column| column.name() == name).unwrap();
    let value = customer.map_or(Value::Null, Value::Integer);
    ListQuery {
        resource: &HARDWARE,
        sort: column(sort),
        descending,
        filters: vec![(column("employee_id").referenced().unwrap(), Predicate::Equals(value))],
        words: word.split_whitespace().map(str::to_owned).collect(),
        limit: 50,
        after: None,
        total: true,
    }
}

#[test]
fn a_filter_by_customer_finds_the_same_however_its_records_are_found() {
    let (_folder, connection) = tenant_file();
    let hardware = hardware_of_customers(&connection);
    let reading = Reading::new(&connection);
    for (sort, descending) in [("id", false), ("id", true), ("name", false), ("name", true)] {
        for customer in [None, Some(1), Some(2), Some(3), Some(4)] {
            for (word, step) in [("", 1), ("ev", 1), ("everywhere", 1), ("rarely", 20_000), ("ra", 20_000)] {
                let having = hardware.iter().filter(|(id, of)| *of == customer && id % step == 0);
                let mut expected: Vec<i64> = having.map(|(id, _)| *id).collect();
                expected.sort_by_key(|id| (if sort == "id" { 0 } else { (60_501 - id) / 2 }, *id));
                if descending {
                    expected.reverse();
                }
                let list = list_of_customer(customer, sort, descending, word);
                let found = first_ids(&reading, list, expected.len());
                expected.truncate(150);
                assert_eq!(found, expected, "{customer:?} {sort} {descending} {word}");
            }
        }
    }
}

/// Hardware in the order of ids or names with a word, only the lost where `is_filtered`: that is all of it.
fn list_with_word(sort: &str, descending: bool, word: &str, is_filtered: bool) -> ListQuery {
    let column = |name: &str| sortable(&HARDWARE).find(|column| column.name() == name).unwrap();
    let lost = (column("status"), Predicate::Equals(Value::Text("lost".to_owned())));
    let filters = if is_filtered { vec![lost] } else { Vec::new() };
    ListQuery { sort: column(sort), filters, ..list_of_customer(None, sort, descending, word) }
}

/// A word and a rule for the ids of the records that have it.
type Having = (&'static str, fn(i64) -> bool);

const HAVING: [Having; 8] = [
    ("everywhere", |_| true),
    ("ev", |_| true),
    ("rarely", |id| id % 20_000 == 0),
    ("ra", |id| id % 20_000 == 0),
    ("last", |id| id <= 10_000),
    ("l", |id| id <= 10_000 || id % 20_000 == 0),
    ("last rarely", |_| false),
    ("nowhere", |_| false),
];

#[test]
fn a_search_is_read_in_the_way_that_ends_first_and_finds_the_same_in_each() {
    let (_folder, connection) = tenant_file();
    hardware_of_customers(&connection);
    let reading = Reading::new(&connection);
    assert_ways_of_reading(&connection, &reading);
    for (sort, descending) in [("id", false), ("id", true), ("name", false), ("name", true)] {
        for (word, has) in HAVING {
            for is_filtered in [false, true] {
                let mut expected: Vec<i64> = (1..=60_501).filter(|id| has(*id)).collect();
                expected.sort_by_key(|id| (if sort == "id" { 0 } else { (60_501 - id) / 2 }, *id));
                if descending {
                    expected.reverse();
                }
                let list = list_with_word(sort, descending, word, is_filtered);
                let found = first_ids(&reading, list, expected.len());
                expected.truncate(150);
                assert_eq!(found, expected, "{sort} {descending} {word} {is_filtered}");
            }
        }
    }
}

fn assert_ways_of_reading(connection: &Connection, reading: &Reading<'_>) {
    for (sort, descending, word, way) in [
        ("id", true, "everywhere", "SCAN s VIRTUAL TABLE"),
        ("id", false, "rarely", "SCAN s VIRTUAL TABLE"),
        ("name", false, "rarely", "SCAN s VIRTUAL TABLE"),
        ("name", false, "everywhere", "SCAN r USING INDEX hardware_by_name"),
        ("name", true, "last", "SCAN r USING INDEX hardware_by_name"),
        ("name", false, "last", "SCAN r USING INDEX hardware_by_name, LIST SUBQUERY"),
        ("id", false, "ev", "SCAN r"),
        ("name", false, "zz", "SCAN s VIRTUAL TABLE"),
    ] {
        for (sql, values) in records::statements(reading, &list_with_word(sort, descending, word, false)) {
            let steps = plan(connection, &sql, &values).join(", ");
            assert!(steps.starts_with(way), "{way} is expected for {sql}: {steps}");
            assert_eq!(way.contains("LIST"), steps.contains("LIST"), "{sql}: {steps}");
        }
    }
}

#[test]
fn hardware_of_a_customer_is_read_in_the_way_that_ends_first() {
    let (_folder, connection) = tenant_file();
    hardware_of_customers(&connection);
    let reading = Reading::new(&connection);
    for (customer, sort, descending, word, way) in [
        (Some(3), "id", false, "", "SEARCH r USING INDEX hardware_by_employee_id"),
        (Some(3), "name", true, "everywhere", "SEARCH r USING INDEX hardware_by_employee_id"),
        (Some(2), "id", false, "", "SEARCH r USING INDEX hardware_by_employee_id"),
        (Some(2), "name", false, "", "SCAN r USING INDEX hardware_by_name, CORRELATED"),
        (Some(1), "name", false, "", "SCAN r, LIST SUBQUERY"),
        (Some(1), "id", false, "", "SCAN r, LIST SUBQUERY"),
        (Some(2), "id", true, "", "SCAN r, CORRELATED"),
        (Some(2), "id", true, "everywhere", "SCAN r, CORRELATED"),
        (Some(1), "id", false, "everywhere", "VIRTUAL TABLE"),
        (None, "id", false, "", "SEARCH r USING INDEX hardware_by_employee_id"),
    ] {
        let list = list_of_customer(customer, sort, descending, word);
        for (sql, values) in records::statements(&reading, &list) {
            let steps = plan(&connection, &sql, &values).join(", ");
            assert!(steps.contains(way), "{way} is expected for {sql}: {steps}");
        }
    }
}
