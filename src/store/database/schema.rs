//! Schemas: creation, versions, migration, and comparison with what the program creates.
//! `migrations/README.md` says how to add a migration.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::process;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use super::connection::{open_plain, version, version_in_file};
use super::{Database, Role, companion, remove, wal};
use crate::files;
use crate::store::error::OpenError;

/// The schema of one kind of database.
#[derive(Debug)]
pub(crate) struct Schema {
    /// The kind of database, for messages: `registry`, `tenant`.
    pub(crate) name: &'static str,
    /// The version of `sql`. A database has its version in `user_version`.
    pub(crate) version: u32,
    /// Creates the schema in an empty database.
    pub(crate) sql: &'static str,
    /// `migrations[n]` turns version `n + 1` into version `n + 2`.
    pub(crate) migrations: &'static [Migration],
}

/// One step from a schema version to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    /// Runs first, without checks of foreign keys.
    pub(crate) sql: &'static str,
    /// What SQL cannot do.
    pub(crate) then: fn(&Connection) -> rusqlite::Result<()>,
}

impl Migration {
    pub(crate) const fn new(sql: &'static str) -> Migration {
        Migration { sql, then: |_| Ok(()) }
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

    /// Creates the database, private to the owner. There must be none. It is made under another
    /// name, synced and renamed: a crash leaves the whole database under its name, or nothing.
    pub(crate) fn create(&self) -> Result<(), OpenError> {
        let partial = Database::new(
            companion(&self.path, format!(".partial-{}", process::id())),
            self.schema,
        );
        partial.remove();
        let place = |partial: &Database| -> Result<(), OpenError> {
            partial.write_schema()?;
            let placed = fs::hard_link(&partial.path, &self.path)
                .and_then(|()| fs::remove_file(&partial.path))
                .and_then(|()| files::sync_parent(&self.path));
            placed.map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => self.unusable("it exists already"),
                _ => {
                    remove(&self.path);
                    self.unusable(error)
                }
            })
        };
        place(&partial).inspect_err(|_| partial.remove())
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

    /// Migrates the database if its schema is older. Returns the version that it had then. After
    /// an error the file is as it was.
    pub(crate) fn migrate(&self) -> Result<Option<u32>, OpenError> {
        // The version in the file is that of its WAL, too: nothing but a migration changes it.
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
        // Dropping and renaming of tables would check and rewrite references.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        wal::make_durable(&self.path)?;
        let completed = usize::try_from(found.saturating_sub(1)).unwrap_or(usize::MAX);
        for step in self.schema.migrations.iter().skip(completed) {
            transaction.execute_batch(step.sql)?;
            (step.then)(&transaction)?;
        }
        transaction.pragma_update(None, "user_version", self.schema.version)?;
        wal::commit(transaction)?;
        self.checkpoint(connection, true)
    }
}

/// Tables that Litestream keeps in a database.
pub(crate) const LITESTREAM_TABLES: [&str; 2] = ["_litestream_seq", "_litestream_lock"];

/// What the database has that the program would not create, and what it lacks. Litestream's own
/// tables do not count. No view and no trigger is evaluated.
pub(crate) fn differences(
    connection: &Connection,
    schema: &Schema,
) -> rusqlite::Result<Vec<String>> {
    let fresh = Connection::open_in_memory()?;
    fresh.execute_batch(schema.sql)?;
    let (expected, found) = (objects(&fresh)?, objects(connection)?);
    let is = |(_, name): &(String, String), what| format!("the schema's {name} {what}");
    let unknown = found.iter().filter(|(object, sql)| expected.get(object) != Some(sql));
    let missing = expected.keys().filter(|object| !found.contains_key(object));
    Ok(unknown
        .map(|(object, _)| is(object, "is not what this program makes"))
        .chain(missing.map(|object| is(object, "is missing")))
        .collect())
}

/// The kind and the name of each object, and its SQL.
fn objects(connection: &Connection) -> rusqlite::Result<BTreeMap<(String, String), String>> {
    let sql = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let sql = normalized_sql(&row.get::<_, String>(2)?);
        Ok(((row.get(0)?, row.get(1)?), sql))
    })?;
    let mut objects: BTreeMap<(String, String), String> = rows.collect::<rusqlite::Result<_>>()?;
    for table in LITESTREAM_TABLES {
        objects.remove(&("table".to_owned(), table.to_owned()));
    }
    Ok(objects)
}

/// The SQL with equal white space, without quotation marks of plain names, and with the columns of
/// a table in the order of their texts. A migration that renames a table or adds a column leaves
/// others than `schema.sql`.
pub(crate) fn normalized_sql(sql: &str) -> String {
    let words: Vec<&str> = sql.split_ascii_whitespace().map(without_quotation_marks).collect();
    let text = ["(", ")", ","].iter().fold(words.join(" "), |text, mark| {
        text.replace(&format!(" {mark}"), mark).replace(&format!("{mark} "), mark)
    });
    let columns = text.split_once('(').and_then(|(table, rest)| {
        let (columns, options) = rest.rsplit_once(')')?;
        Some((table, columns, options)).filter(|_| table.starts_with("CREATE TABLE "))
    });
    let Some((table, columns, options)) = columns else { return text };
    let mut columns: Vec<&str> = columns.split(',').collect();
    columns.sort_unstable();
    format!("{table}({}){options}", columns.join(","))
}

/// The name in quotation marks, if it would be the same name without them.
fn without_quotation_marks(word: &str) -> &str {
    let name = word.strip_prefix('"').and_then(|word| word.strip_suffix('"'));
    let is_plain = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    name.filter(is_plain).unwrap_or(word)
}
