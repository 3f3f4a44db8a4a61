//! The check of all databases: integrity, foreign keys, schema version, columns, texts, journal, search tables, and that each tenant
//! has its file.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::connection::{OpenError, unusable};
use super::records;
use super::registry::{self, Registry};
use super::schema::{self, Schema};
use super::tenants;
use crate::model::ALL;

/// The result for one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its path in the data directory: `registry.db`, `tenants/1.db`.
    pub database: String,
    /// The problems, as texts for the operator. Empty for an intact database.
    pub problems: Vec<String>,
}

/// The limit for the problems of one database.
const MAX_PROBLEMS: usize = 20;

/// Checks all databases of a data directory. A server may run meanwhile.
///
/// # Errors
///
/// [`OpenError::Missing`] if there is no registry; [`OpenError::Unusable`] if the folder of tenants cannot be read.
pub fn check(data_dir: &Path) -> Result<Vec<Finding>, OpenError> {
    // Files are listed first: the row of a tenant that is created meanwhile is committed when the rows are read.
    let files = tenants::file_ids(data_dir).map_err(|error| unusable(&tenants::folder(data_dir), error))?;
    let (registry_finding, rows) = check_registry(data_dir)?;
    let mut findings = vec![registry_finding];
    let known: BTreeSet<i64> = rows.as_ref().map(|rows| rows.iter().copied().collect()).unwrap_or_default();
    let all: BTreeSet<i64> = known.iter().chain(&files).copied().collect();
    for id in all {
        let path = tenants::file(&tenants::folder(data_dir), id);
        let problems = if rows.is_some() && !known.contains(&id) {
            // The file is not opened, because SQLite could write to it.
            vec!["no tenant in the registry has this file; it is left as it is".to_owned()]
        } else {
            check_database(&path, &tenants::SCHEMA)
        };
        // A tenant that is deleted meanwhile is not a problem.
        if !problems.is_empty() && is_deleted(data_dir, id) {
            continue;
        }
        findings.push(Finding { database: format!("tenants/{id}.db"), problems });
    }
    Ok(findings)
}

/// Returns the finding for the registry, and the ids of its tenants if they can be read.
fn check_registry(data_dir: &Path) -> Result<(Finding, Option<BTreeSet<i64>>), OpenError> {
    let mut problems = Vec::new();
    let mut rows = None;
    match Registry::open(data_dir) {
        Err(missing @ OpenError::Missing(_)) => return Err(missing),
        Err(error) => problems.push(error.to_string()),
        Ok(registry) => {
            problems.extend(check_database(&data_dir.join(registry::FILE), &registry::SCHEMA));
            match registry.tenant_ids_locked() {
                Ok(ids) => rows = Some(ids.into_iter().collect()),
                Err(error) => problems.push(error.to_string()),
            }
        }
    }
    Ok((Finding { database: registry::FILE.to_owned(), problems }, rows))
}

fn is_deleted(data_dir: &Path, id: i64) -> bool {
    let has_row =
        Registry::open(data_dir).and_then(|registry| registry.tenant(id).map_err(|error| unusable(data_dir, error)));
    let has_file = tenants::file(&tenants::folder(data_dir), id).try_exists();
    matches!((has_row, has_file), (Ok(None), Ok(false)))
}

fn check_database(path: &Path, schema: &Schema) -> Vec<String> {
    match schema::open(path, schema) {
        Ok(connection) => {
            let mut problems = find_problems(&connection, schema);
            if problems.is_empty() && schema.name == tenants::SCHEMA.name {
                problems.extend(
                    journal_problems(&connection).unwrap_or_else(|error| vec![format!("the journal: {error}")]),
                );
                problems.extend(search_problems(&connection).unwrap_or_else(|error| vec![format!("search: {error}")]));
            }
            problems
        }
        Err(error) => vec![error.to_string()],
    }
}

/// Checks the integrity, the columns, the foreign keys and the texts of a database. Returns the first problem.
pub(super) fn first_problem(connection: &Connection, schema: &Schema) -> Option<String> {
    find_problems(connection, schema).into_iter().next()
}

/// Checks the integrity, the columns, the foreign keys and the texts of a database. Returns its problems.
fn find_problems(connection: &Connection, schema: &Schema) -> Vec<String> {
    let mut problems = Vec::new();
    for found in [
        integrity(connection),
        missing_columns(connection, schema),
        broken_foreign_keys(connection),
        invalid_texts(connection),
    ] {
        match found {
            Ok(found) => problems.extend(found),
            Err(error) => problems.push(error.to_string()),
        }
    }
    problems.truncate(MAX_PROBLEMS);
    problems
}

fn integrity(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({MAX_PROBLEMS})"))?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    lines.filter(|line| !line.as_ref().is_ok_and(|line| line == "ok")).collect()
}

/// Returns at most 20 references to rows that do not exist.
///
/// # Errors
///
/// Those of SQLite.
pub(super) fn broken_foreign_keys(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let rows = statement.query_map([], |row| {
        let (table, id, parent): (String, Option<i64>, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let row = id.map_or_else(String::new, |id| format!(" {id}"));
        Ok(format!("{table}{row} refers to a row of {parent} that does not exist"))
    })?;
    rows.take(MAX_PROBLEMS).collect()
}

/// Returns the columns of `schema` that the database does not have, unless it is of another version. SQLite accepts any names.
fn missing_columns(connection: &Connection, schema: &Schema) -> rusqlite::Result<Vec<String>> {
    if schema::version(connection)? != schema.version {
        return Ok(Vec::new());
    }
    let intact = Connection::open_in_memory()?;
    intact.execute_batch(schema.sql)?;
    let columns = |connection: &Connection| -> rusqlite::Result<BTreeSet<(String, String)>> {
        let sql = "SELECT t.name, c.name FROM pragma_table_list AS t, pragma_table_info(t.name) AS c
                   WHERE t.schema = 'main' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
        connection.prepare(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    };
    let (expected, found) = (columns(&intact)?, columns(connection)?);
    Ok(expected.difference(&found).map(|(table, column)| format!("{table} has no column {column}")).collect())
}

/// Returns the tables with a text that is not UTF-8. SQLite does not check that.
fn invalid_texts(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'";
    let tables: Vec<String> = connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut invalid = Vec::new();
    for table in tables {
        let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\""))?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let is_invalid =
                |column| matches!(row.get_ref(column), Ok(ValueRef::Text(text)) if str::from_utf8(text).is_err());
            if (0..columns).any(is_invalid) {
                invalid.push(format!("{table} has a text that is not UTF-8"));
                break;
            }
        }
    }
    Ok(invalid)
}

/// Compares the journal's counts with its entries and with the versions of the records.
fn journal_problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let versions = ALL
        .map(|resource| {
            let (table, visible) = (resource.plural, records::is_visible(resource.plural, "id"));
            format!("SELECT max(version) AS seq FROM {table} WHERE {visible}")
        })
        .join(" UNION ALL ");
    // One statement reads one state of the file. An import that has not ended has records and entries of its own.
    let pending = "(SELECT min(first_seq) FROM pending_imports)";
    let sql = format!(
        "SELECT entries, (SELECT count(*) FROM changes WHERE seq <= last_seq), last_seq,
                (SELECT max(seq) FROM (SELECT max(seq) AS seq FROM changes WHERE seq < coalesce({pending}, seq + 1)
                                       UNION ALL {versions})) FROM journal"
    );
    let (counted, entries, last, highest): (i64, i64, i64, Option<i64>) =
        connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let mut problems = Vec::new();
    if counted != entries {
        problems.push(format!("the journal has {entries} entries but counts {counted}"));
    }
    if let Some(highest) = highest.filter(|highest| *highest > last) {
        problems.push(format!("the journal's last number is {last}, but {highest} is used"));
    }
    Ok(problems)
}

/// Compares the search tables with the records.
fn search_problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let problem = |resource| format!("the search table of {resource} does not fit the records");
    Ok(records::damaged_search(connection)?.into_iter().map(problem).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::clock::Clock;

    fn data_with_two_tenants() -> (tempfile::TempDir, Registry) {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::create(folder.path()).unwrap();
        for name in ["one", "two"] {
            registry.create_tenant(name, None, "$phc", Clock::system().now()).unwrap();
        }
        (folder, registry)
    }

    fn problems(folder: &Path) -> Vec<(String, String)> {
        let findings = check(folder).unwrap();
        findings.into_iter().flat_map(|f| f.problems.into_iter().map(move |p| (f.database.clone(), p))).collect()
    }

    #[test]
    fn intact_databases_have_no_problems() {
        let (folder, _registry) = data_with_two_tenants();
        let names: Vec<String> = check(folder.path()).unwrap().into_iter().map(|f| f.database).collect();
        assert_eq!(names, ["registry.db", "tenants/1.db", "tenants/2.db"]);
        assert_eq!(problems(folder.path()), []);
    }

    #[test]
    fn a_tenant_without_a_file_and_a_file_without_a_tenant_are_found() {
        let (folder, registry) = data_with_two_tenants();
        fs::copy(folder.path().join("tenants/2.db"), folder.path().join("tenants/9.db")).unwrap();
        tenants::remove_file(folder.path(), 1).unwrap();
        let found = problems(folder.path());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].0 == "tenants/1.db" && found[0].1.ends_with("does not exist"), "{found:?}");
        assert!(found[1].0 == "tenants/9.db" && found[1].1.starts_with("no tenant"), "{found:?}");
        assert!(folder.path().join("tenants/9.db").exists());
        drop(registry);
    }

    #[test]
    fn a_text_that_is_not_utf_8_is_found() {
        let (folder, _registry) = data_with_two_tenants();
        let one = schema::open(&folder.path().join("tenants/1.db"), &tenants::SCHEMA).unwrap();
        one.execute(
            "INSERT INTO customers (name, status, created_at, updated_at, search)
             VALUES (CAST(x'4eff' AS TEXT), 'active', '', '', '')",
            [],
        )
        .unwrap();
        let found = ("tenants/1.db".to_owned(), "customers has a text that is not UTF-8".to_owned());
        assert_eq!(problems(folder.path()), [found]);
    }

    #[test]
    fn a_column_with_another_name_is_found() {
        let (folder, _registry) = data_with_two_tenants();
        let one = schema::open(&folder.path().join("tenants/1.db"), &tenants::SCHEMA).unwrap();
        one.execute_batch("ALTER TABLE hardware RENAME COLUMN notes TO nmtes").unwrap();
        let found = ("tenants/1.db".to_owned(), "hardware has no column notes".to_owned());
        assert_eq!(problems(folder.path()), [found]);
    }

    #[test]
    fn damage_newer_schemas_and_broken_references_are_found() {
        let (folder, registry) = data_with_two_tenants();
        let file = fs::OpenOptions::new().write(true).open(folder.path().join("tenants/1.db")).unwrap();
        file.write_all_at(b"garbage, not SQLite", 0).unwrap();
        let two = schema::open(&folder.path().join("tenants/2.db"), &tenants::SCHEMA).unwrap();
        two.pragma_update(None, "user_version", 99).unwrap();
        drop(two);
        registry
            .create_tenant("three", None, "$phc", Clock::system().now())
            .and_then(|three| {
                let path = tenants::file(&tenants::folder(folder.path()), three.id);
                let three = schema::open(&path, &tenants::SCHEMA).unwrap();
                three.pragma_update(None, "foreign_keys", false)?;
                three.execute(
                    "INSERT INTO employees (customer_id, email, is_active, created_at, updated_at, search)
                     VALUES (7, 'a@b.c', 1, '', '', '')",
                    [],
                )?;
                Ok(())
            })
            .unwrap();
        let found = problems(folder.path());
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].1.contains("damaged"), "{found:?}");
        assert!(found[1].1.contains("newer version"), "{found:?}");
        assert_eq!(found[2].1, "employees 1 refers to a row of customers that does not exist");
    }

    #[test]
    fn a_journal_that_does_not_fit_the_records_is_found() {
        let (folder, _registry) = data_with_two_tenants();
        let tenant = |id| schema::open(&folder.path().join(format!("tenants/{id}.db")), &tenants::SCHEMA).unwrap();
        tenant(1).execute("UPDATE journal SET entries = 7", []).unwrap();
        tenant(2)
            .execute_batch(
                "INSERT INTO customers (name, status, created_at, updated_at, search, version)
                 SELECT 'Name', 'active', '', '', '', last_seq + 1 FROM journal",
            )
            .unwrap();
        let found = problems(folder.path());
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].1, "the journal has 0 entries but counts 7");
        assert!(found[1].1.starts_with("the journal's last number is "), "{found:?}");
    }

    #[test]
    fn a_damaged_registry_is_a_finding_and_a_missing_one_an_error() {
        let (folder, registry) = data_with_two_tenants();
        drop(registry);
        fs::write(folder.path().join("registry.db"), "garbage, not SQLite at all, and long enough for a header ……")
            .unwrap();
        let found = problems(folder.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "registry.db");
        fs::remove_file(folder.path().join("registry.db")).unwrap();
        assert!(matches!(check(folder.path()), Err(OpenError::Missing(_))));
    }
}
