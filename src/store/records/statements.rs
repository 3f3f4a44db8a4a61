//! SQL whose text depends on the resource alone, built once from declared names.

use std::sync::LazyLock;

use crate::model::{ALL, Kind, Resource};

/// The statements of one resource.
#[derive(Debug)]
pub(super) struct Statements {
    /// One record by its id: `id`, the fields, the timestamps, which is the order of every answer,
    /// and the version.
    pub(super) one: String,
    /// Every record in the order of ids, with the columns of `one`.
    pub(super) all: String,
    pub(super) exists: String,
    pub(super) version: String,
    /// A new record: its id or null for the next, its fields, both timestamps, search, version.
    pub(super) insert: String,
    pub(super) delete: String,
    /// The search text of a record.
    pub(super) search: String,
    /// Adds a record's text to the search table: its id, the text.
    pub(super) index: String,
    /// Removes it. The text must be the one that was added.
    pub(super) unindex: String,
    /// Merges segments of the search table: at most the number of pages that is bound.
    pub(super) merge: String,
    /// The columns of `one` without the version, qualified with the table alias `r`.
    pub(super) qualified_columns: String,
    /// What precedes each column's value in JSON, `,"name":`, and whether the value is a boolean.
    pub(super) json_prefixes: Vec<(String, bool)>,
}

static OF_EACH: LazyLock<[Statements; ALL.len()]> = LazyLock::new(|| ALL.map(Statements::new));

impl Statements {
    pub(super) fn of(resource: &Resource) -> &'static Statements {
        resource.by_resource(&OF_EACH)
    }

    fn new(resource: &Resource) -> Statements {
        let table = resource.plural;
        let fields: Vec<&str> = resource.fields.iter().map(|field| field.name).collect();
        let timestamps = ["created_at", "updated_at"];
        let columns: Vec<&str> =
            ["id"].into_iter().chain(fields.clone()).chain(timestamps).collect();
        let is_boolean =
            |name: &str| resource.field(name).is_some_and(|field| field.kind == Kind::Boolean);
        let record = format!("{}, version", columns.join(", "));
        let qualified: Vec<String> = columns.iter().map(|name| format!("r.{name}")).collect();
        let prefix = |name: &&str| (format!(",\"{name}\":"), is_boolean(name));
        Statements {
            one: format!("SELECT {record} FROM {table} WHERE id = ?"),
            all: format!("SELECT {record} FROM {table} ORDER BY id"),
            exists: format!("SELECT 1 FROM {table} WHERE id = ?"),
            version: format!("SELECT version FROM {table} WHERE id = ?"),
            insert: format!(
                "INSERT INTO {table} (id, {}, created_at, updated_at, search, version)
                 VALUES (?, {}?, ?, ?, ?)",
                fields.join(", "),
                "?, ".repeat(fields.len())
            ),
            delete: format!("DELETE FROM {table} WHERE id = ?"),
            search: format!("SELECT search FROM {table} WHERE id = ?"),
            index: format!("INSERT INTO {table}_search (rowid, search) VALUES (?, ?)"),
            unindex: format!(
                "INSERT INTO {table}_search ({table}_search, rowid, search)
                 VALUES ('delete', ?, ?)"
            ),
            merge: format!("INSERT INTO {table}_search ({table}_search, rank) VALUES ('merge', ?)"),
            qualified_columns: qualified.join(", "),
            json_prefixes: columns.iter().map(prefix).collect(),
        }
    }
}
