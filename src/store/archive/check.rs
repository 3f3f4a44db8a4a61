//! The faults of databases (contract section 10): of all in a data directory, or of one.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::model::TenantId;
use crate::store::data_dir::{
    DataDir, registry_database, tenant_database, tenant_file_ids, tenants_dir,
};
use crate::store::database::{self, Database, Role, Schema};
use crate::store::error::OpenError;
use crate::store::registry::{self, Registry};
use crate::store::{records, tenant};

/// The result for one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its path in the data directory: `registry.db`, `tenants/1.db`.
    pub database: String,
    /// Texts for the operator; none for an intact database.
    pub problems: Vec<String>,
    /// Whether no tenant in the registry has this file. It is not examined, and left as it is: a
    /// crash in the middle of the creation or deletion of a tenant leaves one. Ids are never used
    /// again, so it harms nobody.
    pub is_orphan: bool,
}

/// The problems of each kind that are listed for one database.
const MAX_PROBLEMS: usize = 20;

/// Checks all databases of a data directory. A server may run meanwhile.
///
/// # Errors
///
/// [`OpenError::Missing`] if there is no registry; [`OpenError::Unusable`] if the tenants' files
/// cannot be listed.
pub fn check(data_dir: &Path) -> Result<Vec<Finding>, OpenError> {
    let _in_use = DataDir::open(data_dir)?;
    // Files are listed first: the row of a tenant that is created meanwhile is committed when the
    // rows are read.
    let files = tenant_file_ids(data_dir)
        .map_err(|error| OpenError::unusable(&tenants_dir(data_dir), error))?;
    let (registry_finding, rows) = check_registry(data_dir);
    let mut findings = vec![registry_finding];
    let known = rows.clone().unwrap_or_default();
    for id in known.union(&files).copied() {
        let database = tenant_database(data_dir, id);
        let is_orphan = rows.is_some() && !known.contains(&id);
        let problems = if is_orphan { Vec::new() } else { problems(&database, &tenant::SCHEMA) };
        // A tenant that is deleted meanwhile is not a problem.
        if problems.is_empty() || !is_deleted(data_dir, &database, id) {
            let database = format!("tenants/{id}.db");
            findings.push(Finding { database, problems, is_orphan });
        }
    }
    Ok(findings)
}

/// The finding for the registry, and the ids of its tenants if they can be read.
fn check_registry(data_dir: &Path) -> (Finding, Option<BTreeSet<TenantId>>) {
    let mut problems = problems(&registry_database(data_dir), &registry::SCHEMA);
    let tenants = Registry::open(data_dir)
        .map_err(|error| error.to_string())
        .and_then(|registry| registry.list_tenants().map_err(|error| error.to_string()));
    let ids = match tenants {
        Ok(rows) => Some(rows.into_iter().map(|(tenant, _)| tenant.id).collect()),
        Err(error) if problems.contains(&error) => None,
        Err(error) => {
            problems.push(error);
            None
        }
    };
    (Finding { database: registry::FILE.to_owned(), problems, is_orphan: false }, ids)
}

fn is_deleted(data_dir: &Path, database: &Database, id: TenantId) -> bool {
    let has_no_row = || Registry::open(data_dir).ok()?.tenant(id).ok().map(|row| row.is_none());
    matches!(database.path().try_exists(), Ok(false)) && has_no_row() == Some(true)
}

fn problems(database: &Database, schema: &Schema) -> Vec<String> {
    let connection = match database.open(Role::Bulk) {
        Ok(connection) => connection,
        Err(error) => return vec![error.to_string()],
    };
    let mut problems = faults(&connection, schema);
    if problems.is_empty() && schema.name == tenant::SCHEMA.name {
        problems.extend(listed(records::problems(&connection)));
    }
    problems
}

/// The faults of a database. Each check relies on those before it: a schema that is not the
/// program's may have views, and a damaged table may have no end.
pub(super) fn faults(connection: &Connection, schema: &Schema) -> Vec<String> {
    let mut problems = listed(database::differences(connection, schema));
    for check in [integrity_problems, broken_foreign_keys, invalid_texts] {
        if problems.is_empty() {
            problems = listed(check(connection));
        }
    }
    problems
}

fn listed(found: rusqlite::Result<Vec<String>>) -> Vec<String> {
    let problems = found.unwrap_or_else(|error| vec![error.to_string()]).into_iter();
    // They may quote the file.
    problems.take(MAX_PROBLEMS).map(|text| text.replace(char::is_control, " ")).collect()
}

pub(super) fn integrity_problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({MAX_PROBLEMS})"))?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    lines.filter(|line| !line.as_ref().is_ok_and(|line| line == "ok")).collect()
}

/// References to rows that do not exist.
fn broken_foreign_keys(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let rows = statement.query_map([], |row| {
        let table: String = row.get(0)?;
        let (id, parent): (Option<i64>, String) = (row.get(1)?, row.get(2)?);
        let row = id.map_or_else(String::new, |id| format!(" {id}"));
        Ok(format!("{table}{row} refers to a row of {parent} that does not exist"))
    })?;
    rows.take(MAX_PROBLEMS).collect()
}

/// The tables with a text that is not UTF-8. SQLite does not check that.
fn invalid_texts(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'";
    let mut statement = connection.prepare(sql)?;
    let names = statement.query_map([], |row| row.get(0))?;
    let tables: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
    let mut invalid = Vec::new();
    for table in tables {
        let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\""))?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let is_invalid = |column| {
                let value = row.get_ref(column);
                matches!(value, Ok(ValueRef::Text(text)) if str::from_utf8(text).is_err())
            };
            if (0..columns).any(is_invalid) {
                invalid.push(format!("{table} has a text that is not UTF-8"));
                break;
            }
        }
    }
    Ok(invalid)
}
