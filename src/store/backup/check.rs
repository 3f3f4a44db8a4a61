//! Faults of databases, in a data directory and in a backup (contract section 10).

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::ptr;

use rusqlite::Connection;

use super::{Staging, copy_database};
use crate::clock::Clock;
use crate::files;
use crate::model::{ALL, Resource, TenantId};
use crate::store::data_dir::{
    DataDir, TENANT, registry_database, tenant_database, tenant_file_ids,
};
use crate::store::database::{self, Database, Role, Schema, copy_pages};
use crate::store::error::{Result, StoreCode, StoreError};
use crate::store::records::Reading;
use crate::store::registry::TenantRow;

/// The result for one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// Its path in the data directory: `registry.db`, `tenants/1.db`.
    pub database: String,
    /// Texts for the operator; none for an intact database.
    pub problems: Vec<String>,
    /// Why the database was not examined: the disk has no room for its copy.
    pub unexamined: Option<String>,
    /// Whether no tenant in the registry has this file. It is not examined, and left as it is: a
    /// crash in the middle of the creation or deletion of a tenant leaves one. Ids are never used
    /// again, so it harms nobody.
    pub is_orphan: bool,
    /// What the operator should look at, although the database is intact.
    pub warnings: Vec<String>,
}

/// The problems of each kind that are listed for one database.
const MAX_PROBLEMS: usize = 20;

/// The directory in the data directory with the copy that is examined.
const EXAMINED: &str = ".examined";

/// Checks all databases of a data directory. A server may run meanwhile. Copies are examined: a
/// snapshot that is held for minutes would let the write-ahead log grow until writes are refused.
pub fn check(data_dir: &Path) -> Result<Vec<Finding>> {
    let _in_use = DataDir::open(data_dir)?;
    let staging = Staging::create(data_dir.join(EXAMINED))?;
    // Files are listed first: the row of a tenant that is created meanwhile is committed when the
    // rows are read.
    let files = tenant_file_ids(data_dir)?;
    let registry = registry_database(data_dir);
    let known = tenant_ids(&registry);
    let mut findings = vec![examine(&registry, &registry_database(&staging.path), data_dir)];
    for id in files.union(known.as_ref().unwrap_or(&files)) {
        let file = tenant_database(data_dir, *id);
        if known.as_ref().is_some_and(|known| !known.contains(id)) {
            let database = file.name_in(data_dir);
            findings.push(Finding { database, is_orphan: true, ..Finding::default() });
            continue;
        }
        let finding = examine(&file, &tenant_database(&staging.path, *id), data_dir);
        // A tenant that is deleted meanwhile, as at the end of a move, has no problems.
        let is_deleted = || tenant_ids(&registry).is_some_and(|ids| !ids.contains(id));
        if finding.problems.is_empty() || !is_deleted() {
            findings.push(finding);
        }
    }
    Ok(findings)
}

fn tenant_ids(registry: &Database) -> Option<BTreeSet<TenantId>> {
    let rows = tenants(&registry.open(Role::Bulk).ok()?).ok()?;
    Some(rows.into_iter().map(|tenant| tenant.id).collect())
}

fn examine(file: &Database, copy: &Database, data_dir: &Path) -> Finding {
    let mut finding = Finding { database: file.name_in(data_dir), ..Finding::default() };
    finding.unexamined = lack_of_space(file, data_dir);
    if finding.unexamined.is_some() {
        return finding;
    }
    match copy_database(file, copy) {
        Ok(copied) => {
            finding.problems = problems(&copied, file.schema);
            if finding.problems.is_empty() && ptr::eq(file.schema, &TENANT) {
                finding.warnings = listed(warnings(&copied));
            }
        }
        Err(error) => {
            let is_older = error.code == StoreCode::OtherSchema;
            let cause = is_older.then(|| why_not_migrated(file, copy)).flatten();
            finding.problems = vec![cause.unwrap_or(error.message)];
        }
    }
    let _ = copy.remove();
    finding
}

/// Why the service cannot migrate the file, as the migration of a copy says it.
fn why_not_migrated(file: &Database, copy: &Database) -> Option<String> {
    let source = file.connect(Role::Bulk).ok()?;
    files::create_private(copy.path()).ok()?;
    copy_pages(&source, copy.path()).ok()?.close().ok()?;
    let StoreError { message, .. } = copy.migrate().err()?;
    Some(message.replace(&*copy.path().to_string_lossy(), &file.path().to_string_lossy()))
}

fn warnings(connection: &Connection) -> Result<Vec<String>> {
    let mut warnings = repeated_numbers(connection)?;
    let now = Clock::system().now().timestamp();
    let ahead = Reading::new(connection).count_changes_ahead(now)?;
    if ahead > 0 {
        warnings.push(format!(
            "{ahead} of the entries of its change log are from the future: the clock was wrong, or is"
        ));
    }
    Ok(warnings)
}

/// The numbers that several records have (contract section 2). The upgrade from 1.0.0 makes such
/// numbers, because it trims them. Addresses are left out: several people may share one.
fn repeated_numbers(connection: &Connection) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for Resource { plural, natural_keys, .. } in ALL {
        for number in natural_keys.iter().filter(|field| **field != "email") {
            let sql = format!(
                "SELECT format('{plural}: %d records have the {number} %s, such as the ids %d and %d',
                               count(*), {number}, min(id), max(id))
                 FROM {plural} WHERE {number} IS NOT NULL
                 GROUP BY {number} HAVING count(*) > 1 LIMIT {MAX_PROBLEMS}"
            );
            found.extend(texts(connection, &sql)?);
        }
    }
    Ok(found)
}

/// The copy must leave the reserve of the disk free, or clients' writes would be refused while the
/// copy is there. If less is free already, they are refused anyway, and half of it is enough.
fn lack_of_space(file: &Database, data_dir: &Path) -> Option<String> {
    let free = match files::free_space(data_dir) {
        Ok((free, _)) => free,
        Err(error) => return Some(error.to_string()),
    };
    let needed = file.file_length() + file.wal_length() + files::RESERVE.min(free / 2);
    (free < needed).then(|| {
        let (free, needed) = (free >> 20, needed >> 20);
        format!("not examined: its copy needs {needed} MiB, and the disk has {free} MiB free")
    })
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

fn listed<E: fmt::Display>(found: std::result::Result<Vec<String>, E>) -> Vec<String> {
    let mut problems = found.unwrap_or_else(|error| vec![error.to_string()]);
    problems.truncate(MAX_PROBLEMS);
    problems
}

fn integrity_problems(connection: &Connection, _: &Schema) -> rusqlite::Result<Vec<String>> {
    let found = texts(connection, &format!("PRAGMA integrity_check({MAX_PROBLEMS})"))?;
    // One of the texts may have the problems of many pages.
    let lines = found.iter().flat_map(|text| text.lines()).filter(|line| *line != "ok");
    Ok(lines.map(str::to_owned).collect())
}

fn broken_foreign_keys(connection: &Connection, _: &Schema) -> rusqlite::Result<Vec<String>> {
    let sql = format!(
        r#"SELECT format('%s %d refers to a row of %s that does not exist', "table", rowid, parent)
           FROM pragma_foreign_key_check LIMIT {MAX_PROBLEMS}"#
    );
    texts(connection, &sql)
}

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
        "SELECT format('the change log''s last number is %d, but %d is used', last_seq, seq)
         FROM changes_state,
              (SELECT max(seq) AS seq FROM (SELECT max(seq) AS seq FROM changes UNION ALL {}))
         WHERE seq > last_seq",
        versions.join(" UNION ALL ")
    );
    texts(connection, &sql)
}
