//! The plans of lists, and what lists and searches find, compared with a look at every record.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::{Connection, ToSql};
use uuid::Uuid;

use super::list::{AccessPath, PageQuery, access};
use super::*;
use crate::api::list;
use crate::api::query;
use crate::clock::Timestamp;
use crate::model::{
    ALL, Bound, CUSTOMER, Field, ID, KeysetPosition, Kind, ListQuery, RecordId, Resource, Scopes,
    Value, Version,
};
use crate::store::backup::check::change_log_problems;
use crate::store::data_dir::TENANT;
use crate::store::database::{Database, Role};

fn tenant_file() -> (tempfile::TempDir, Connection) {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::new(directory.path().join("1.db"), &TENANT);
    database.create().unwrap();
    let connection = database.open(Role::Bulk).unwrap();
    connection.pragma_update(None, "synchronous", "OFF").unwrap();
    (directory, connection)
}

/// A column: name, type, whether it is NOT NULL, and the table that it refers to.
type Description = (String, String, bool, Option<String>);

fn columns(connection: &Connection, table: &str) -> BTreeSet<Description> {
    let sql = "SELECT c.name, c.type, c.\"notnull\", f.\"table\" FROM pragma_table_info(?1) c
               LEFT JOIN pragma_foreign_key_list(?1) f ON f.\"from\" = c.name";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement
        .query_map([table], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap();
    rows.map(Result::unwrap).collect()
}

fn declared(resource: &Resource) -> BTreeSet<Description> {
    let column = |field: &Field| {
        let kind = match field.kind {
            Kind::Integer | Kind::Boolean => "INTEGER",
            _ => "TEXT",
        };
        let target = field.references.map(|target| target.plural.to_owned());
        let is_never_null = field.required || field.default.is_some() || field.kind == Kind::Custom;
        (field.name.to_owned(), kind.to_owned(), is_never_null, target)
    };
    let plain = |name: &str, kind: &str, is_never_null| {
        (name.to_owned(), kind.to_owned(), is_never_null, None)
    };
    let own = [
        plain("id", "INTEGER", false),
        plain("created_at", "TEXT", true),
        plain("updated_at", "TEXT", true),
        plain("search", "TEXT", true),
        plain("version", "INTEGER", false),
    ];
    resource.fields.iter().map(column).chain(own).collect()
}

#[test]
fn the_schema_has_the_declared_columns() {
    let (_directory, connection) = tenant_file();
    for resource in ALL {
        let found = columns(&connection, resource.plural);
        assert_eq!(found, declared(resource), "{}", resource.plural);
    }
}

/// The steps of SQLite for a statement, in one line.
fn plan(connection: &Connection, sql: &str, values: &[impl ToSql]) -> Vec<String> {
    let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps =
        plan.query_map(rusqlite::params_from_iter(values.iter()), |row| row.get(3)).unwrap();
    steps.map(Result::unwrap).collect()
}

/// The plans of a page's statements, each with its SQL.
fn plans(reading: Reading<'_>, list: &ListQuery) -> Vec<(String, String)> {
    let connection = reading.connection();
    let query = PageQuery::new(reading, list, access(connection, list).unwrap());
    let plan_of = |stretch| {
        let (sql, values) = query.select(stretch, list.limit + 1);
        let steps = plan(connection, &sql, &values).join(", ");
        (sql, steps)
    };
    query.stretches().into_iter().map(plan_of).collect()
}

fn field(resource: &'static Resource, name: &str) -> &'static Field {
    resource.sortable_fields().find(|field| field.name == name).unwrap()
}

fn list_of(resource: &'static Resource, sort: &'static Field) -> ListQuery {
    let all =
        list::parse(resource, &query::Query::default(), Scopes::default(), Timestamp::from_unix(0));
    ListQuery { sort, ..all.unwrap() }
}

fn equals(field: &'static Field, text: &str) -> (&'static Field, Bound, Value) {
    (field, Bound::Equal, Value::of(text))
}

#[test]
fn every_sort_reads_in_the_order_of_an_index() {
    let (_directory, connection) = tenant_file();
    for resource in ALL {
        for sort in resource.sortable_fields() {
            for descending in [false, true] {
                let null = sort.is_nullable().then_some(Value::Null);
                for value in [None, null, Some(Value::Text("m".to_owned()))] {
                    let after = value.map(|value| KeysetPosition { value, id: RecordId(7) });
                    let list = ListQuery { descending, after, ..list_of(resource, sort) };
                    for (sql, steps) in plans(Reading::new(&connection), &list) {
                        assert!(!steps.contains("TEMP B-TREE"), "{sql}: {steps}");
                        let begins_at = list.after.is_none() || steps.starts_with("SEARCH");
                        assert!(begins_at, "{sql}: {steps}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_past_reads_the_records_that_kept_their_place_along_an_index() {
    let (_directory, connection) = tenant_file();
    for resource in ALL {
        for sort in resource.sortable_fields() {
            let past = Reading::new(&connection).after(Version(7));
            for (sql, steps) in plans(past, &list_of(resource, sort)) {
                let index = format!("{}_by_{}", resource.plural, sort.name);
                let is_along =
                    *sort == ID || steps.contains(&format!("SCAN r USING INDEX {index}"));
                assert!(is_along && steps.starts_with("MERGE (UNION ALL)"), "{sql}: {steps}");
            }
        }
    }
}

#[test]
fn every_filter_is_read_along_its_index_in_the_order_of_ids() {
    let (_directory, connection) = tenant_file();
    for resource in ALL {
        for filtered in resource.sortable_fields().filter(|field| **field != ID) {
            for after in [None, Some(KeysetPosition { value: Value::Null, id: RecordId(7) })] {
                let filters = vec![equals(filtered, "x")];
                let list = ListQuery { filters, after, ..list_of(resource, &ID) };
                for (sql, steps) in plans(Reading::new(&connection), &list) {
                    let index = format!("{}_by_{}", resource.plural, filtered.name);
                    let expected = format!("SEARCH r USING INDEX {index} ");
                    assert!(steps.starts_with(&expected), "{sql}: {steps}");
                    assert!(!steps.contains("TEMP B-TREE"), "{sql}: {steps}");
                }
            }
        }
    }
}

#[test]
fn a_narrow_filter_is_read_along_its_index_and_a_wide_one_in_the_order_of_the_list() {
    let (_directory, connection) = tenant_file();
    connection
        .execute_batch(
            "WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n LIMIT 10000)
             INSERT INTO customers (name, status, customer_since, created_at, updated_at, search,
                                    version)
             SELECT 'Name', 'active', date('2000-01-01', id || ' days'), '', '', '', 1 FROM n",
        )
        .unwrap();
    let since = field(&CUSTOMER, "customer_since");
    let active = equals(field(&CUSTOMER, "status"), "active");
    for name in ["id", "name"] {
        for value in [None, Some(Value::Text("m".to_owned()))] {
            let after = value.map(|value| KeysetPosition { value, id: RecordId(7) });
            for (from, is_narrow) in [("2000-03-01", false), ("2026-01-01", true)] {
                let from = (since, Bound::From, Value::of(from));
                let filters = vec![from, active.clone()];
                let list = list_of(&CUSTOMER, field(&CUSTOMER, name));
                let list = ListQuery { filters, after: after.clone(), ..list };
                for (sql, steps) in plans(Reading::new(&connection), &list) {
                    let is_along = steps.contains("customers_by_customer_since");
                    assert_eq!(is_along, is_narrow, "{sql}: {steps}");
                }
            }
        }
    }
}

/// Along the index of the sort column, every record would be a jump in the file.
#[test]
fn a_search_reads_the_records_in_the_order_of_ids() {
    let (_directory, connection) = tenant_file();
    let words = vec!["word".to_owned()];
    for after in [None, Some(KeysetPosition { value: Value::of("m"), id: RecordId(7) })] {
        let list = list_of(&CUSTOMER, field(&CUSTOMER, "name"));
        let list = ListQuery { words: words.clone(), after, ..list };
        let plans = plans(Reading::new(&connection), &list);
        assert!(plans.iter().all(|(_, steps)| steps.starts_with("SCAN r,")), "{plans:?}");
        assert_eq!(plans.len(), 1, "they are read once");
    }
}

#[test]
fn a_page_of_the_change_log_is_read_along_its_indexes() {
    let (_directory, connection) = tenant_file();
    for count in 1..=ALL.len() {
        for record in [None, Some(RecordId(3))] {
            let readable = ALL[..count].to_vec();
            let query = ChangesQuery {
                readable: readable.clone(),
                record,
                limit: 50,
                ..ChangesQuery::default()
            };
            let (sql, values) =
                Reading::new(&connection).select_entries(&query, &readable, Version(7)).unwrap();
            let steps = plan(&connection, &sql, &values);
            let reads: Vec<_> = steps.iter().filter(|step| step.contains(" changes ")).collect();
            assert!(reads.len() >= count, "{sql}: {steps:?}");
            assert!(reads.iter().all(|step| step.starts_with("SEARCH")), "{sql}: {steps:?}");
        }
    }
}

/// The ids of a page whose records are found along a path.
fn ids_along(connection: &Connection, list: &ListQuery, path: AccessPath) -> Vec<i64> {
    let query = PageQuery::new(Reading::new(connection), list, path);
    let mut ids = Vec::new();
    for stretch in query.stretches() {
        let (sql, values) = query.select(stretch, list.limit);
        let mut page = connection.prepare(&sql).unwrap();
        let id = |row: &rusqlite::Row<'_>| row.get::<_, i64>("id");
        let rows = page.query_map(rusqlite::params_from_iter(&values), id).unwrap();
        ids.extend(rows.map(Result::unwrap));
    }
    ids.truncate(list.limit);
    ids
}

#[test]
fn a_list_finds_the_same_however_its_records_are_found() {
    let (_directory, connection) = tenant_file();
    connection
        .execute_batch(
            "WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n LIMIT 300)
             INSERT INTO customers (name, city, status, created_at, updated_at, search, version)
             SELECT printf('Name %d', id % 7), iif(id % 5, printf('City %d', id % 3), NULL),
                    iif(id % 2, 'active', 'inactive'), '', '', printf('word %d', id % 4), 1 FROM n",
        )
        .unwrap();
    let [name, city, status] = ["name", "city", "status"].map(|name| field(&CUSTOMER, name));
    let filters = [
        equals(status, "active"),
        equals(city, "City 1"),
        (city, Bound::Equal, Value::Null),
        (name, Bound::From, Value::of("Name 2")),
    ];
    for (filtered, bound, value) in filters {
        for sort in [&ID, name, city] {
            for (descending, word) in [(false, "word"), (true, "word"), (false, "3"), (true, "3")] {
                for after in [None, Some(Value::Null), Some(Value::of("City 1"))] {
                    let after = after.map(|value| KeysetPosition { value, id: RecordId(70) });
                    let filters = vec![(filtered, bound, value.clone())];
                    let list = ListQuery {
                        filters,
                        descending,
                        words: vec![word.to_owned()],
                        after,
                        ..list_of(&CUSTOMER, sort)
                    };
                    let found = ids_along(&connection, &list, AccessPath::InOrder);
                    assert!(!found.is_empty() || list.after.is_some(), "{list:?}");
                    for path in [AccessPath::Filter(filtered), AccessPath::Scan] {
                        assert_eq!(ids_along(&connection, &list, path), found, "{list:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_in_an_intact_file_is_found() {
    let (_directory, connection) = tenant_file();
    assert_eq!(change_log_problems(&connection, &TENANT).unwrap(), [""; 0]);
    let sql = "INSERT INTO changes (seq, at, resource, record_id, action, fields, by_name)
               SELECT last_seq + 1, '', 'customers', 1, 'created', '[]', 'import' FROM changes_state";
    connection.execute_batch(sql).unwrap();
    assert_eq!(change_log_problems(&connection, &TENANT).unwrap().len(), 1);
}

/// The clock was wrong: in 2099, or back in 2020.
#[test]
fn an_entry_with_a_wrong_time_is_kept_as_long_as_the_entries_beside_it() {
    let (old, new, ahead) = ("2026-01-01", "2026-09-01", "2099-01-01");
    for (dates, kept) in [
        (&[ahead, ahead, new, new] as &[&str], 4),
        (&[ahead, ahead, old, ahead, new], 2),
        (&[old, new, old, ahead, new], 4),
        (&[ahead, ahead], 2),
        (&[old, ahead], 1),
    ] {
        let (_directory, mut connection) = tenant_file();
        let transaction = connection.transaction().unwrap();
        for date in dates {
            let sql = "INSERT INTO changes (at, resource, record_id, action, fields, by_name)
                       VALUES (? || 'T00:00:00Z', 'customers', 1, 'updated', '[]', 'import')";
            transaction.execute(sql, [date]).unwrap();
        }
        let now = "2026-10-01T00:00:00Z".parse().unwrap();
        let keep = Duration::from_hours(24 * 90);
        let removed = remove_old_entries(&transaction, now, keep, 2).unwrap();
        assert_eq!(removed, dates.len() - kept, "{dates:?}");
        let sql = "SELECT max(at) FROM changes_removed";
        let gone: Option<String> = transaction.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(gone, (removed > 0).then(|| format!("{old}T00:00:00Z")), "{dates:?}");
    }
}

/// Counts the steps of SQLite's machine from now on, in thousands.
fn count_steps(connection: &Connection) -> Arc<AtomicUsize> {
    let thousands = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&thousands);
    let count = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        false
    };
    connection.progress_handler(1_000, Some(count)).unwrap();
    thousands
}

#[test]
fn an_undo_reads_only_the_entries_of_each_record() {
    const RECORDS: usize = 2_000;
    let (_directory, mut connection) = tenant_file();
    connection
        .execute_batch(&format!(
            "WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n LIMIT {RECORDS})
             INSERT INTO customers (id, name, status, custom, search, created_at, updated_at, version)
             SELECT id, 'New', 'active', '{{}}', '', '2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z', id
             FROM n;
             INSERT INTO changes (seq, at, resource, record_id, action, fields, before, by_name)
             SELECT id, '2026-01-02T00:00:00Z', 'customers', id, 'updated', '[\"name\"]',
               '{{\"name\": \"Old\"}}', 'import' FROM customers;
             UPDATE changes_state SET last_seq = {RECORDS}"
        ))
        .unwrap();
    let transaction = connection.transaction().unwrap();
    let actor = Actor::Command { name: "undo".to_owned(), run: Uuid::from_bytes([1; 16]) };
    let context = ChangeContext { at: Timestamp::from_unix(1_767_400_000), actor };
    let writing = Writing::new(&transaction, &context);
    let since = Some("2026-01-02T00:00:00Z".to_owned());
    let selection = Selection { since, until: None, key: None, request: None };
    let thousands_of_steps = count_steps(&transaction);
    let leave = &mut |_: &Resource, _, _: Option<&str>, reason: &Reason| panic!("{reason}");
    let undone = Undo { writing: &writing, selection: &selection, leave }.run().unwrap();
    assert_eq!(undone.changed.values().sum::<u64>(), RECORDS as u64);
    // Some hundred steps for each record.
    assert!(thousands_of_steps.load(Ordering::Relaxed) < RECORDS);
}

#[test]
fn entries_are_removed_without_reading_those_that_are_kept() {
    let (_directory, mut connection) = tenant_file();
    connection
        .execute_batch(
            "WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n LIMIT 100000)
             INSERT INTO changes (seq, at, resource, record_id, action, fields, by_name)
             SELECT seq, iif(seq <= 10, '2020-01-01T00:00:00Z', '2026-01-01T00:00:00Z'),
                    'customers', seq, 'created', '[]', 'import' FROM n;
             UPDATE changes_state SET last_seq = 100000",
        )
        .unwrap();
    let thousands_of_steps = count_steps(&connection);
    let transaction = connection.transaction().unwrap();
    let now = Timestamp::from_unix(1_767_312_000);
    let keep = Duration::from_hours(24 * 90);
    assert_eq!(remove_old_entries(&transaction, now, keep, 1_000).unwrap(), 10);
    assert!(thousands_of_steps.load(Ordering::Relaxed) < 100);
}
