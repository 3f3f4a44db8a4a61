//! The schema has the declared columns, and every list is read in the order of an index.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::records::{self, Reading};
use super::schema;
use super::tenants::SCHEMA;
use crate::api::list::sortable;
use crate::model::{ALL, CUSTOMER, Field, KeysetPosition, Kind, ListQuery, Predicate, Resource, Value};

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
