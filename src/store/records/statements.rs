//! SQL whose text depends on the resource alone, built once from declared names.

use std::sync::LazyLock;

use super::pending_imports::is_visible;
use crate::model::{ALL, Kind, Resource};

/// The statements of one resource.
#[derive(Debug)]
pub(in crate::store) struct Statements {
    /// One record by its id: `id`, the fields, the timestamps, which is the order of every answer.
    pub one: String,
    /// Whether an id has a record.
    pub exists: String,
    /// A new record: its id, or null for the next, its fields, both timestamps, its search text.
    pub insert: String,
    /// The search text of a record.
    pub search: String,
    /// Merges segments of the search table: at most the number of pages that is bound.
    pub merge: String,
    /// Adds a record's search text to the search table: its id, the text.
    pub index: String,
    /// Removes it. The text must be the one that was added.
    pub unindex: String,
    /// The search text of a few records, the oldest and the newest, hidden ones too: they only tell which trigrams are frequent.
    pub samples: String,
    /// The columns of `one`.
    pub columns: String,
    /// The columns of `one`, qualified with the table alias `r`.
    pub qualified_columns: String,
    /// What precedes each column's value in JSON, `,"name":`, and whether the value is a boolean.
    pub json_prefixes: Vec<(String, bool)>,
}

static OF_EACH: LazyLock<[Statements; ALL.len()]> = LazyLock::new(|| ALL.map(Statements::new));

impl Statements {
    /// The statements of a declared resource; every resource is.
    pub fn of(resource: &Resource) -> &'static Statements {
        resource.by_resource(&OF_EACH)
    }

    fn new(resource: &Resource) -> Statements {
        let table = resource.plural;
        let fields: Vec<&str> = resource.fields.iter().map(|field| field.name).collect();
        let columns: Vec<&str> = ["id"].into_iter().chain(fields.clone()).chain(["created_at", "updated_at"]).collect();
        let is_boolean =
            |name: &str| resource.fields.iter().any(|field| field.name == name && field.kind == Kind::Boolean);
        let is_visible = is_visible(table, "?1");
        Statements {
            one: format!("SELECT {} FROM {table} WHERE id = ?1 AND {is_visible}", columns.join(", ")),
            exists: format!("SELECT 1 FROM {table} WHERE id = ?1 AND {is_visible}"),
            insert: format!(
                "INSERT INTO {table} (id, {}, created_at, updated_at, search) VALUES (?, {}?, ?, ?)",
                fields.join(", "),
                "?, ".repeat(fields.len())
            ),
            search: format!("SELECT search FROM {table} WHERE id = ?1 AND {is_visible}"),
            merge: format!("INSERT INTO {table}_search ({table}_search, rank) VALUES ('merge', ?)"),
            index: format!("INSERT INTO {table}_search (rowid, search) VALUES (?, ?)"),
            unindex: format!("INSERT INTO {table}_search ({table}_search, rowid, search) VALUES ('delete', ?, ?)"),
            samples: ["ASC", "DESC"]
                .map(|order| format!("SELECT * FROM (SELECT search FROM {table} ORDER BY id {order} LIMIT 8)"))
                .join(" UNION ALL "),
            columns: columns.join(", "),
            qualified_columns: columns.iter().map(|name| format!("r.{name}")).collect::<Vec<_>>().join(", "),
            json_prefixes: columns.iter().map(|name| (format!(",\"{name}\":"), is_boolean(name))).collect(),
        }
    }
}
