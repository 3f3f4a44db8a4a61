//! Schemas: creation, versions, migration, and comparison with the schema of a new database.
//!
//! `serve` and `restore` migrate a database of an older version. All its steps are one transaction,
//! so a crash in the middle leaves the old file. A step is an SQL file. It never copies a table, so
//! a million records take less than a minute. Afterwards, the database must have the schema of a
//! new one. If it has another table or column, somebody else has changed it, and the program
//! refuses it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::process;

use rusqlite::{Connection, TransactionBehavior, ffi};

use super::{Database, Role, Schema, open_plain, version, wal};
use crate::files::{self, companion};
use crate::store::error::{Result, StoreCode, StoreError};

impl Database {
    /// Refuses a database of another version.
    pub(super) fn require_current(&self, connection: &Connection) -> Result<()> {
        let known = self.schema.version();
        let found = version(connection).map_err(|error| self.error(error))?;
        let (writer, advice) = match found {
            0 => return Err(self.damaged("it has no schema")),
            _ if found == known => return Ok(()),
            _ if found < self.schema.first => (
                "a version of tenantdesk before 1.0.0",
                "let tenantdesk 1.0.0 serve the data directory once, or restore the backup with \
                 1.0.0; then this version can use the data",
            ),
            _ if found < known => (
                "an older version of tenantdesk",
                "start the service once, which migrates it; if the service has started already, \
                 its log says why the migration failed",
            ),
            _ => ("a newer version of tenantdesk", "use that version"),
        };
        let message = format!(
            "{} was written by {writer} (schema {found}, this binary needs {known}); {advice}",
            self.path.display()
        );
        Err(StoreError::new(StoreCode::OtherSchema, message))
    }

    /// Creates the database, private to the owner. There must be none. The database gets its name
    /// when it is complete and synced, so a crash leaves the whole database or nothing.
    pub(crate) fn create(&self) -> Result<()> {
        let partial = Database::new(
            companion(&self.path, format!(".partial-{}", process::id())),
            self.schema,
        );
        let _ = partial.remove();
        let placed = partial.write_schema().and_then(|()| {
            fs::hard_link(&partial.path, &self.path).map_err(|error| self.unusable(error))
        });
        let _ = partial.remove();
        placed?;
        files::sync_parent(&self.path).map_err(|error| {
            let _ = self.remove();
            self.unusable(error)
        })
    }

    fn write_schema(&self) -> Result<()> {
        let file = files::create_private(&self.path).map_err(|error| self.unusable(error))?;
        let write = || -> rusqlite::Result<()> {
            let mut connection = open_plain(&self.path)?;
            // Nobody reads the file before it is complete, and it is synced once.
            connection.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF")?;
            let transaction = connection.transaction()?;
            transaction.execute_batch(self.schema.sql)?;
            transaction.pragma_update(None, "user_version", self.schema.version())?;
            transaction.commit()?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.close().map_err(|(_, error)| error)
        };
        write().map_err(|error| self.error(error))?;
        file.sync_all().map_err(|error| self.unusable(error))
    }

    /// Whether the header of the file has the program's schema version. SQLite keeps it in the last
    /// 4 of the first 64 bytes. Only for the start, before this process has a connection to the
    /// file: to close the file here would end SQLite's locks on it.
    pub(crate) fn has_current_schema(&self) -> bool {
        let mut header = [0; 64];
        let read = File::open(&self.path).and_then(|mut file| file.read_exact(&mut header));
        read.is_ok() && header.ends_with(&self.schema.version().to_be_bytes())
    }

    /// Migrates the database if its schema is older, and returns the former version. After an error
    /// before the commit, the file is as it was.
    pub(crate) fn migrate(&self) -> Result<Option<u32>> {
        let known = self.schema.version();
        let mut connection = self.connect(Role::Bulk)?;
        let found = version(&connection).map_err(|error| self.error(error))?;
        if !(self.schema.first..known).contains(&found) {
            return self.require_current(&connection).map(|()| None);
        }
        self.run_steps(&mut connection).map_err(|error| {
            self.unusable(format!("migrating it from schema {found} to {known}: {error}"))
        })?;
        Ok(Some(found))
    }

    /// Runs the steps after the file's version, which another thread may have raised meanwhile.
    fn run_steps(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        wal::make_durable(&self.path)?;
        let found: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        for step in self.schema.steps.iter().skip((found - self.schema.first) as usize) {
            transaction.execute_batch(step)?;
        }
        if let Some(difference) = differences(&transaction, self.schema)?.into_iter().next() {
            let code = ffi::Error::new(ffi::SQLITE_SCHEMA);
            return Err(rusqlite::Error::SqliteFailure(code, Some(difference)));
        }
        transaction.pragma_update(None, "user_version", self.schema.version())?;
        wal::commit(transaction)?;
        self.checkpoint(connection, true).map(drop)
    }
}

/// The tables of Litestream in a database that it replicates. After a restore, the operator
/// restarts it (examples/standby).
const REPLICA_TABLES: [&str; 2] = ["_litestream_seq", "_litestream_lock"];

/// The differences between the database and a new one, as texts for the operator. The tables of a
/// replicator do not count. No view and no trigger is executed.
pub(crate) fn differences(
    connection: &Connection,
    schema: &Schema,
) -> rusqlite::Result<Vec<String>> {
    let fresh = Connection::open_in_memory()?;
    fresh.execute_batch(schema.sql)?;
    let (expected, found) = (objects(&fresh)?, objects(connection)?);
    let mut differences = Vec::new();
    for ((kind, name), parts) in &found {
        match expected.get(&(kind.clone(), name.clone())) {
            Some(own) if own == parts => {}
            Some(_) => {
                differences.push(format!("the {kind} {name} is not what this program makes"))
            }
            None => differences.push(format!(
                "it has an added {kind} {name}; run in sqlite3: DROP {} {}",
                kind.to_uppercase(),
                identifier(name)
            )),
        }
    }
    let missing = expected.keys().filter(|object| !found.contains_key(object));
    differences.extend(missing.map(|(kind, name)| format!("the {kind} {name} is missing")));
    Ok(differences)
}

fn identifier(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Kind and name of an object → the parts of its statement.
type Objects = BTreeMap<(String, String), Vec<String>>;

fn objects(connection: &Connection) -> rusqlite::Result<Objects> {
    // SQLite makes the indexes without a statement by itself, for constraints of a table.
    let sql = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let (kind, sql): (String, String) = (row.get(0)?, row.get(2)?);
        let definitions = parts_of_statement(&kind, &sql);
        Ok(((kind, row.get(1)?), definitions))
    })?;
    let mut objects: Objects = rows.collect::<rusqlite::Result<_>>()?;
    for table in REPLICA_TABLES {
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
