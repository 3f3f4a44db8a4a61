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
    /// A new record: its id, or null for the next, its fields, both timestamps, its search text, its last word, its version.
    pub insert: String,
    /// Removes a record.
    pub delete: String,
    /// The search text and the last word of a record.
    pub search: String,
    /// Merges segments of the search table: at most the number of pages that is bound.
    pub merge: String,
    /// Adds a record's terms to the search table: its id, the terms.
    pub index: String,
    /// Removes them. The terms must be those that were added.
    pub unindex: String,
    /// The structure of the search table, which lists its segments.
    pub structure: String,
    /// The search text of a few records, the oldest and the newest, hidden ones too: they only tell which parts of words are frequent.
    pub samples: String,
    /// The id, the search text and the last word of the records from one id to another, hidden ones too, in the order of ids.
    pub texts: String,
    /// The search texts of the last records up to an id: the id, the number of texts.
    pub texts_up_to: String,
    /// The search texts of records at even distances: their number.
    pub texts_everywhere: String,
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
                "INSERT INTO {table} (id, {}, created_at, updated_at, search, last_word, version) VALUES (?, {}?, ?, ?, ?, ?)",
                fields.join(", "),
                "?, ".repeat(fields.len())
            ),
            delete: format!("DELETE FROM {table} WHERE id = ?"),
            search: format!("SELECT search, last_word FROM {table} WHERE id = ?1 AND {is_visible}"),
            index: format!("INSERT INTO {table}_search (rowid, terms) VALUES (?, ?)"),
            unindex: format!("INSERT INTO {table}_search ({table}_search, rowid, terms) VALUES ('delete', ?, ?)"),
            merge: format!("INSERT INTO {table}_search ({table}_search, rank) VALUES ('merge', ?)"),
            structure: format!("SELECT block FROM {table}_search_data WHERE id = 10"),
            samples: ["ASC", "DESC"]
                .map(|order| format!("SELECT * FROM (SELECT search FROM {table} ORDER BY id {order} LIMIT 8)"))
                .join(" UNION ALL "),
            texts: format!("SELECT id, search, last_word FROM {table} WHERE id BETWEEN ? AND ? ORDER BY id"),
            texts_up_to: format!("SELECT search FROM {table} WHERE id <= ? ORDER BY id DESC LIMIT ?"),
            texts_everywhere: format!(
                "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < ?1)
                 SELECT search FROM {table} WHERE id IN (
                   SELECT (SELECT id FROM {table} WHERE id >= low + n * (high - low) / ?1 ORDER BY id LIMIT 1)
                   FROM n, (SELECT min(id) AS low, max(id) AS high FROM {table}))"
            ),
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
