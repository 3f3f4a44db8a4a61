//! Faults of databases, in a data directory and in a backup (contract section 10).

use std::collections::BTreeSet;
use std::path::Path;
use std::ptr;

use rusqlite::Connection;

use crate::model::{ALL, TenantId};
use crate::store::data_dir::{
    DataDir, TENANT, registry_database, tenant_database, tenant_file_ids,
};
use crate::store::database::{self, Database, Role, SQL_CURE, Schema};
use crate::store::error::OpenError;
use crate::store::registry::TenantRow;

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
    /// Whether each problem says what to do, so that no backup is needed.
    pub names_cure: bool,
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
    let files = tenant_file_ids(data_dir)?;
    let registry = registry_database(data_dir);
    let tenant_ids = || -> Option<BTreeSet<TenantId>> {
        let rows = tenants(&registry.open(Role::Bulk).ok()?).ok()?;
        Some(rows.into_iter().map(|tenant| tenant.id).collect())
    };
    let known = tenant_ids();
    let finding = |file: &Database, is_orphan: bool| {
        let database = file.name_in(data_dir);
        let (problems, names_cure) = match file.open(Role::Bulk) {
            _ if is_orphan => (Vec::new(), false),
            Ok(opened) => {
                let found = problems(&opened, file.schema);
                let names_cure = found.iter().all(|problem| problem.contains(SQL_CURE));
                (found, names_cure)
            }
            Err(error) => {
                let is_old = matches!(error, OpenError::Older { .. } | OpenError::TooOld { .. });
                (vec![error.to_string()], is_old)
            }
        };
        Finding { database, problems, is_orphan, names_cure }
    };
    let ids = files.union(known.as_ref().unwrap_or(&files));
    let of_tenant = |id: &TenantId| {
        let is_orphan = known.as_ref().is_some_and(|known| !known.contains(id));
        let finding = finding(&tenant_database(data_dir, *id), is_orphan);
        // A tenant that is deleted meanwhile, as at the end of a move, has no problems.
        let is_deleted = || tenant_ids().is_some_and(|ids| !ids.contains(id));
        (finding.problems.is_empty() || !is_deleted()).then_some(finding)
    };
    Ok([finding(&registry, false)].into_iter().chain(ids.filter_map(of_tenant)).collect())
}

/// Finds problems of one kind.
type Check = fn(&Connection, &Schema) -> rusqlite::Result<Vec<String>>;

/// Each relies on those before it: a schema that is not the program's may have views, and a damaged
/// table may have no end.
const CHECKS: [Check; 4] =
    [database::differences, integrity_problems, broken_foreign_keys, change_log_problems];

/// The problems that the first check finds which finds any. A backup and a restore refuse a file
/// with problems.
pub(super) fn problems(connection: &Connection, schema: &Schema) -> Vec<String> {
    for check in CHECKS {
        let problems = listed(check(connection, schema));
        if !problems.is_empty() {
            return problems;
        }
    }
    Vec::new()
}

fn listed(found: rusqlite::Result<Vec<String>>) -> Vec<String> {
    let mut problems = found.unwrap_or_else(|error| vec![error.to_string()]);
    problems.truncate(MAX_PROBLEMS);
    problems
}

fn integrity_problems(connection: &Connection, _: &Schema) -> rusqlite::Result<Vec<String>> {
    let mut lines = texts(connection, &format!("PRAGMA integrity_check({MAX_PROBLEMS})"))?;
    lines.retain(|line| line != "ok");
    Ok(lines)
}

/// References to rows that do not exist.
fn broken_foreign_keys(connection: &Connection, _: &Schema) -> rusqlite::Result<Vec<String>> {
    let sql = format!(
        r#"SELECT format('%s %d refers to a row of %s that does not exist', "table", rowid, parent)
           FROM pragma_foreign_key_check LIMIT {MAX_PROBLEMS}"#
    );
    texts(connection, &sql)
}

/// The rows of a statement with one text each.
fn texts(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<String>> {
    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

/// The tenants of a registry that is not opened as one.
pub(super) fn tenants(registry: &Connection) -> rusqlite::Result<Vec<TenantRow>> {
    let sql = "SELECT * FROM tenants ORDER BY id";
    registry.prepare(sql)?.query_map([], TenantRow::read)?.collect()
}

/// The counters of the change log that do not fit its entries and the records.
pub(in crate::store) fn change_log_problems(
    connection: &Connection,
    schema: &Schema,
) -> rusqlite::Result<Vec<String>> {
    if !ptr::eq(schema, &TENANT) {
        return Ok(Vec::new());
    }
    let versions = ALL.map(|resource| format!("SELECT max(version) FROM {}", resource.plural));
    let sql = format!(
        "WITH present (entries, seq) AS
           (SELECT (SELECT count(*) FROM changes), max(seq)
            FROM (SELECT max(seq) AS seq FROM changes UNION ALL {}))
         SELECT format('the change log has %d entries but counts %d',
                       present.entries, state.entries)
         FROM changes_state AS state, present WHERE present.entries <> state.entries
         UNION ALL
         SELECT format('the change log''s last number is %d, but %d is used', last_seq, seq)
         FROM changes_state, present WHERE seq > last_seq",
        versions.join(" UNION ALL ")
    );
    texts(connection, &sql)
}
