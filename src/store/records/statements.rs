//! SQL whose text depends on the resource alone, built once from declared names.

use std::sync::LazyLock;

use crate::model::{ALL, Inclusion, Kind, Resource};

/// The statements of one resource.
#[derive(Debug)]
pub(super) struct Statements {
    /// One record by its id: `id`, the fields, the timestamps, which is the order of every answer,
    /// and the version.
    pub(super) one: String,
    /// Every record in the order of ids, with the columns of `one`.
    pub(super) all: String,
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
    /// The columns of `one`, qualified with the table alias `r`.
    pub(super) columns: String,
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
        let is_boolean =
            |name: &str| resource.field(name).is_some_and(|field| field.kind == Kind::Boolean);
        let record = format!("{}, r.version", qualified(resource, "r"));
        let prefix = |name: &str| (format!(",\"{name}\":"), is_boolean(name));
        Statements {
            one: format!("SELECT {record} FROM {table} AS r WHERE r.id = ?"),
            all: format!("SELECT {record} FROM {table} AS r ORDER BY r.id"),
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
            json_prefixes: columns(resource).map(prefix).collect(),
            columns: record,
        }
    }
}

/// The columns of a record in the order of a response.
fn columns(resource: &Resource) -> impl Iterator<Item = &'static str> {
    let fields = resource.fields.iter().map(|field| field.name);
    ["id"].into_iter().chain(fields).chain(["created_at", "updated_at"])
}

fn qualified(resource: &Resource, alias: &str) -> String {
    columns(resource).map(|name| format!("{alias}.{name}")).collect::<Vec<_>>().join(", ")
}

/// A statement for `rows`, a statement with the columns of [`Statements::one`], and the columns of
/// the records that they include. The alias of `rows` is `r`.
///
/// SQLite omits a join that nothing refers to. It reads `rows` first, so a page is complete before
/// anything is joined.
pub(super) fn including(resource: &Resource, include: &[&Inclusion], rows: &str) -> String {
    let columns: String =
        include.iter().map(|one| format!(", {}", qualified(one.resource, one.name()))).collect();
    let joins = resource.inclusions().iter().map(|one| {
        let (table, name) = (one.resource.plural, one.name());
        let (from, reference) = (one.through.unwrap_or("r"), one.reference.name);
        format!(" LEFT JOIN {table} AS {name} ON {name}.id = {from}.{reference}")
    });
    format!("SELECT r.*{columns} FROM ({rows}) AS r{}", joins.collect::<String>())
}
