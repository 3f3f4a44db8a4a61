//! Schemas: creation, versions, migration, and comparison with the schema of a new database.
//! `migrations/README.md` says how to add a migration.
//!
//! A migration is one transaction. A crash in the middle leaves the old file. There are two kinds:
//!
//! - A step that only adds columns and indexes leaves the rows in place. Example: version 5 of a
//!   tenant adds `employee_number`. A tenant with 300,000 records takes less than 2 seconds.
//! - If the file's version is before `last_copy`, the tables are copied inside the file. The old
//!   tables get other names, new tables are created, and each column is copied by its name.
//!   Example: version 3 has `changes.former`. A statement renames the column to `before`, and the
//!   copy then finds `before` in both tables. It takes half a minute for 300,000 records, so new
//!   steps should only add columns and indexes.
//!
//! A step that adds refuses a file whose schema differs from a new one afterwards. A copy refuses a
//! file with a table or a column that it would lose. Example: an operator has added the column
//! `cost_center`. A copy would drop its values without a word.

use std::collections::BTreeMap;
use std::fs;
use std::process;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior, ffi};

use super::connection::{open_plain, version, version_in_file};
use super::{Database, Role, companion, replica, wal};
use crate::files;
use crate::store::error::OpenError;

/// The schema of one kind of database.
#[derive(Debug)]
pub(crate) struct Schema {
    /// Creates the schema in an empty database.
    pub(crate) sql: &'static str,
    /// The version of the schema, which each database has as its `user_version`.
    pub(crate) version: u32,
    /// The statements that lead to a version. A version whose copy needs none is left out.
    pub(crate) steps: &'static [(u32, &'static str)],
    /// The last version whose migration makes all tables anew and copies their rows. A later step
    /// only adds columns and indexes, so its statements are the whole migration.
    pub(crate) last_copy: u32,
    /// Columns that a copy leaves out.
    pub(crate) retired: &'static [&'static str],
}

impl Schema {
    /// Runs the statements of the versions after `found`, up to the version `last`.
    fn run_steps(&self, connection: &Connection, found: u32, last: u32) -> rusqlite::Result<()> {
        let versions = found + 1..=last;
        let steps = self.steps.iter().filter(|(version, _)| versions.contains(version));
        steps.map(|(_, sql)| sql).try_for_each(|sql| connection.execute_batch(sql))
    }
}

impl Database {
    /// Refuses a database of another version.
    pub(super) fn require_current(&self, connection: &Connection) -> Result<(), OpenError> {
        let (path, known) = (self.path.clone(), self.schema.version);
        match version(connection).map_err(|error| self.error(&error))? {
            0 => Err(OpenError::Damaged { path, cause: "it has no schema".to_owned() }),
            found if found < known => Err(OpenError::Older { path, found, known }),
            found if found > known => Err(OpenError::Newer { path, found, known }),
            _ => Ok(()),
        }
    }

    /// Creates the database, private to the owner. There must be none. The database gets its name
    /// when it is complete and synced, so a crash leaves the whole database or nothing.
    pub(crate) fn create(&self) -> Result<(), OpenError> {
        let partial = Database::new(
            companion(&self.path, format!(".partial-{}", process::id())),
            self.schema,
        );
        partial.remove();
        let placed = partial.write_schema().and_then(|()| {
            fs::hard_link(&partial.path, &self.path).map_err(|error| self.unusable(error))
        });
        partial.remove();
        placed?;
        files::sync_parent(&self.path).map_err(|error| {
            self.remove();
            self.unusable(error)
        })
    }

    fn write_schema(&self) -> Result<(), OpenError> {
        let file = files::create_private(&self.path).map_err(|error| self.unusable(error))?;
        let write = || -> rusqlite::Result<()> {
            let mut connection = open_plain(&self.path)?;
            // Nobody reads the file before it is complete, and it is synced once.
            connection.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF")?;
            let transaction = connection.transaction()?;
            transaction.execute_batch(self.schema.sql)?;
            transaction.pragma_update(None, "user_version", self.schema.version)?;
            transaction.commit()?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.close().map_err(|(_, error)| error)
        };
        write().map_err(|error| self.error(&error))?;
        file.sync_all().map_err(|error| self.unusable(error))
    }

    /// Migrates the database if its schema is older, and returns the former version. After an error
    /// before the commit, the file is as it was.
    pub(crate) fn migrate(&self) -> Result<Option<u32>, OpenError> {
        self.require_file()?;
        // The file without its WAL is enough: `recover` has copied the WAL into it.
        let known = self.schema.version;
        if version_in_file(&self.path).is_ok_and(|found| found == known) {
            return Ok(None);
        }
        let mut connection = self.connect(Role::Bulk)?;
        let found = match self.require_current(&connection) {
            Err(OpenError::Older { found, .. }) => found,
            other => return other.map(|()| None),
        };
        let migrated = self.run_migrations(&mut connection, found);
        migrated.map_err(|error| {
            self.unusable(format!("migrating it from schema {found} to {known}: {error}"))
        })?;
        Ok(Some(found))
    }

    fn run_migrations(&self, connection: &mut Connection, found: u32) -> rusqlite::Result<()> {
        // A copy drops tables to which other tables refer.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        wal::make_durable(&self.path)?;
        if found < self.schema.last_copy {
            copy_into_new_tables(&transaction, self.schema, found)?;
        } else {
            run_adding_steps(&transaction, self.schema, found)?;
        }
        transaction.pragma_update(None, "user_version", self.schema.version)?;
        wal::commit(transaction)?;
        self.checkpoint(connection, true)
    }
}

/// Adds columns and indexes. The rows stay as they are, and so do the search tables: a new column
/// is null, or has its default, and is no part of a row's search text.
fn run_adding_steps(connection: &Connection, schema: &Schema, found: u32) -> rusqlite::Result<()> {
    schema.run_steps(connection, found, schema.version)?;
    match differences(connection, schema)?.into_iter().next() {
        None => Ok(()),
        Some(difference) => Err(schema_error(difference)),
    }
}

/// The error of a database that the program has not made.
fn schema_error(cause: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_SCHEMA), Some(cause))
}

/// Makes all tables anew and copies the rows of the old ones, column by column of the same name.
/// The steps before the copy change the old tables.
fn copy_into_new_tables(
    connection: &Connection,
    schema: &Schema,
    found: u32,
) -> rusqlite::Result<()> {
    execute_each(
        connection,
        r#"SELECT format('DROP %s "%w"', type, name) FROM sqlite_schema
           WHERE type IN ('trigger', 'view') OR type = 'index' AND sql IS NOT NULL
              OR type = 'table' AND sql LIKE 'CREATE VIRTUAL %'"#,
    )?;
    schema.run_steps(connection, found, schema.last_copy)?;
    execute_each(
        connection,
        &format!(
            r#"SELECT format('ALTER TABLE "%w" RENAME TO "old_%w"', name, name) FROM sqlite_schema
               WHERE type = 'table' AND name NOT GLOB 'sqlite_*' AND name NOT IN ('{}')"#,
            replica::TABLES.join("', '")
        ),
    )?;
    connection.execute_batch(schema.sql)?;
    refuse_unknown(connection, schema)?;
    execute_each(
        connection,
        r#"SELECT format('DELETE FROM "%w"; INSERT INTO "%w" (%s) SELECT %s FROM "old_%w"',
                         name, name, columns, columns, name)
           FROM (SELECT new.name, group_concat(format('"%w"', kept.name)) AS columns
                 FROM sqlite_schema AS new
                   JOIN pragma_table_info(new.name) AS kept
                   JOIN pragma_table_info('old_' || new.name) AS old ON old.name = kept.name
                 WHERE new.type = 'table' GROUP BY new.name)"#,
    )?;
    connection.execute_batch(
        "DELETE FROM sqlite_sequence WHERE name NOT GLOB 'old_*';
         UPDATE sqlite_sequence SET name = substr(name, 5)",
    )?;
    execute_each(
        connection,
        r#"SELECT format('DROP TABLE "%w"', name) FROM sqlite_schema
           WHERE type = 'table' AND name GLOB 'old_*'"#,
    )?;
    execute_each(
        connection,
        r#"SELECT format('INSERT INTO "%w" ("%w") VALUES (''rebuild'')', name, name)
           FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL %'"#,
    )
}

/// An error if an old table has a column that the copy would lose.
fn refuse_unknown(connection: &Connection, schema: &Schema) -> rusqlite::Result<()> {
    let sql = "SELECT substr(tables.name, 5), columns.name
               FROM sqlite_schema AS tables JOIN pragma_table_info(tables.name) AS columns
               WHERE tables.type = 'table' AND tables.name GLOB 'old_*' AND columns.name NOT IN
                   (SELECT name FROM pragma_table_info(substr(tables.name, 5)))";
    let mut select = connection.prepare(sql)?;
    let lost = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let lost: Vec<(String, String)> = lost.collect::<rusqlite::Result<_>>()?;
    match lost.iter().find(|(_, column)| !schema.retired.contains(&column.as_str())) {
        None => Ok(()),
        Some((table, column)) => Err(schema_error(format!(
            "the program does not know the column {column:?} of {table:?}"
        ))),
    }
}

/// Executes the statements that `sql` selects.
fn execute_each(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    let mut select = connection.prepare(sql)?;
    let rows = select.query_map([], |row| row.get(0))?;
    let statements: Vec<String> = rows.collect::<rusqlite::Result<_>>()?;
    statements.iter().try_for_each(|statement| connection.execute_batch(statement))
}

/// The differences between the database and a new one, as texts for the operator. The tables of a
/// replicator do not count. No view and no trigger is executed.
pub(crate) fn differences(
    connection: &Connection,
    schema: &Schema,
) -> rusqlite::Result<Vec<String>> {
    let fresh = Connection::open_in_memory()?;
    fresh.execute_batch(schema.sql)?;
    let (expected, found) = (objects(&fresh)?, objects(connection)?);
    let describe = |(_, name): &(String, String), what| format!("the schema's {name} {what}");
    let unexpected = found.iter().filter(|(object, sql)| expected.get(object) != Some(sql));
    let missing = expected.keys().filter(|object| !found.contains_key(object));
    Ok(unexpected
        .map(|(object, _)| describe(object, "is not what this program makes"))
        .chain(missing.map(|object| describe(object, "is missing")))
        .collect())
}

/// Kind and name of an object → the parts of its statement.
type Objects = BTreeMap<(String, String), Vec<String>>;

fn objects(connection: &Connection) -> rusqlite::Result<Objects> {
    let sql = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let (kind, sql): (String, String) = (row.get(0)?, row.get(2)?);
        let definitions = parts_of_statement(&kind, &sql);
        Ok(((kind, row.get(1)?), definitions))
    })?;
    let mut objects: Objects = rows.collect::<rusqlite::Result<_>>()?;
    for table in replica::TABLES {
        objects.remove(&("table".to_owned(), table.to_owned()));
    }
    Ok(objects)
}

/// Splits the statement of an object at its outer commas and parentheses. The definitions of a
/// table's columns are sorted, because `ALTER TABLE` puts a new column last. White space does not
/// count.
///
/// `PRAGMA table_info` would not do: it says nothing of `CHECK`, `COLLATE` and `ON CONFLICT`.
fn parts_of_statement(kind: &str, sql: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let is_border = |character: char| match character {
        '(' => {
            depth = depth.saturating_add(1);
            depth == 1
        }
        ')' => {
            depth = depth.saturating_sub(1);
            depth == 0
        }
        _ => character == ',' && depth == 1,
    };
    let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut definitions: Vec<String> = sql.split(is_border).map(words).collect();
    if kind == "table" {
        definitions.sort_unstable();
    }
    definitions
}
