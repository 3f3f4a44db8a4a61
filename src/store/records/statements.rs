//! SQL whose text depends on the resource alone, built once from declared names.

use std::sync::LazyLock;

use crate::model::{ALL, Kind, Resource};

/// The statements of one resource.
#[derive(Debug)]
pub(in crate::store) struct Statements {
    /// One record by its id: `id`, the fields, the timestamps, which is the order of every answer, and the version.
    pub one: String,
    /// The columns of `one`.
    pub columns: String,
    /// Whether an id has a record.
    pub exists: String,
    /// The version of a record.
    pub version: String,
    /// A new record: its id, or null for the next, its fields, both timestamps, its search text, its version.
    pub insert: String,
    /// Removes a record.
    pub delete: String,
    /// The search text of a record.
    pub search: String,
    /// Merges segments of the search table: at most the number of pages that is bound.
    pub merge: String,
    /// Adds a record's search text to the search table: its id, the text.
    pub index: String,
    /// Removes it. The text must be the one that was added.
    pub unindex: String,
    /// The structure of the search table, which lists its segments.
    pub structure: String,
    /// The search text of a few records, the oldest and the newest, hidden ones too: they only tell which trigrams are frequent.
    pub samples: String,
    /// The columns of `one` without the version, qualified with the table alias `r`.
    pub qualified_columns: String,
    /// What precedes each column's value in JSON, `,"name":`, and whether the value is a boolean.
    pub json_prefixes: Vec<(String, bool)>,
}

/// A record's version: the journal's base where the record has none of its own.
const VERSION: &str = "coalesce(version, (SELECT base FROM journal))";

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
        let columns_of_record = format!("{}, {VERSION}", columns.join(", "));
        Statements {
            one: format!("SELECT {columns_of_record} FROM {table} WHERE id = ?1 AND {is_visible}"),
            exists: format!("SELECT 1 FROM {table} WHERE id = ?1 AND {is_visible}"),
            version: format!("SELECT {VERSION} FROM {table} WHERE id = ?1 AND {is_visible}"),
            insert: format!(
                "INSERT INTO {table} (id, {}, created_at, updated_at, search, version) VALUES (?, {}?, ?, ?, ?)",
                fields.join(", "),
                "?, ".repeat(fields.len())
            ),
            delete: format!("DELETE FROM {table} WHERE id = ?"),
            search: format!("SELECT search FROM {table} WHERE id = ?1 AND {is_visible}"),
            index: format!("INSERT INTO {table}_search (rowid, search) VALUES (?, ?)"),
            unindex: format!("INSERT INTO {table}_search ({table}_search, rowid, search) VALUES ('delete', ?, ?)"),
            merge: format!("INSERT INTO {table}_search ({table}_search, rank) VALUES ('merge', ?)"),
            structure: format!("SELECT block FROM {table}_search_data WHERE id = 10"),
            samples: ["ASC", "DESC"]
                .map(|order| format!("SELECT * FROM (SELECT search FROM {table} ORDER BY id {order} LIMIT 8)"))
                .join(" UNION ALL "),
            columns: columns_of_record,
            qualified_columns: columns.iter().map(|name| format!("r.{name}")).collect::<Vec<_>>().join(", "),
            json_prefixes: columns.iter().map(|name| (format!(",\"{name}\":"), is_boolean(name))).collect(),
        }
    }
}

/// Returns the SQL condition that `id` is not the id of a hidden record of `table`.
pub(in crate::store) fn is_visible(table: &str, id: &str) -> String {
    format!(
        "NOT EXISTS (SELECT 1 FROM pending_imports WHERE resource = '{table}' AND {id} BETWEEN first_id AND last_id)"
    )
}
