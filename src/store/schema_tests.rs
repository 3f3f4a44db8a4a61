//! The schema has the declared columns, and every list is read in the order of an index.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::records;
use super::schema;
use super::tenants::SCHEMA;
use crate::api::list::sortable;
use crate::model::{ALL, Field, Kind, Resource, Value};
use crate::model::{KeysetPosition, ListQuery};

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
        .collect()
}

#[test]
fn the_schema_has_the_declared_columns() {
    let (_folder, connection) = tenant_file();
    for resource in ALL {
        assert_eq!(columns(&connection, resource.plural), declared(resource), "{}", resource.plural);
    }
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
                    for (sql, values) in records::statements(&list) {
                        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
                        let steps: Vec<String> = plan
                            .query_map(rusqlite::params_from_iter(values.iter()), |row| row.get(3))
                            .unwrap()
                            .map(Result::unwrap)
                            .collect();
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
