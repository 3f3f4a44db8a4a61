//! Temporary data directories: tenants by the thousand, records by the million, made without the
//! service.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use tenantdesk::secret;
use tenantdesk::store::NewDataDir;

/// A data directory with its tenants' keys; tenant `n` has the id `n + 1`.
#[derive(Debug)]
pub(crate) struct Data {
    pub dir: PathBuf,
    pub keys: Vec<String>,
}

const CITIES: [&str; 8] =
    ["Leipzig", "Kassel", "Zürich", "Graz", "Bremen", "Lyon", "Oslo", "Porto"];
const TRADES: [&str; 8] =
    ["Bakery", "Garage", "Pharmacy", "Bookshop", "Brewery", "Nursery", "Foundry", "Press"];
const NAMES: [&str; 16] = [
    "Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Gorse", "Hazel", "Ivy", "Juniper",
    "Larch", "Maple", "Oak", "Pine", "Rowan", "Spruce",
];

/// One customer as the bench writes it, the same for every way of writing.
#[derive(Clone, Debug)]
pub(crate) struct Customer {
    pub name: String,
    pub number: String,
    pub email: String,
    pub phone: String,
    pub street: String,
    pub postal_code: String,
    pub city: &'static str,
    pub country: &'static str,
    pub status: &'static str,
    pub since: String,
}

impl Customer {
    /// The `n`th of an endless row of customers.
    pub(crate) fn nth(n: u64) -> Customer {
        let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let pick = |from: u64, count: usize| (mixed >> from) as usize % count;
        let (city, trade, name) = (CITIES[pick(0, 8)], TRADES[pick(3, 8)], NAMES[pick(6, 16)]);
        Customer {
            name: format!("{name} {trade} {city}"),
            number: format!("C-{n:07}"),
            email: format!("{}.{n}@{}.example", name.to_lowercase(), trade.to_lowercase()),
            phone: format!("+49 341 {:07}", mixed % 10_000_000),
            street: format!("{name}weg {}", pick(10, 200)),
            postal_code: format!("{:05}", pick(12, 100_000)),
            city,
            country: ["DE", "CH", "AT", "FR"][pick(18, 4)],
            status: ["prospect", "active", "active", "inactive"][pick(21, 4)],
            since: format!("20{:02}-{:02}-{:02}", pick(23, 26), pick(24, 12) + 1, pick(25, 28) + 1),
        }
    }

    /// As the API takes it.
    pub(crate) fn json(&self) -> String {
        format!(
            r#"{{"name":"{}","customer_number":"{}","email":"{}","phone":"{}","street":"{}","postal_code":"{}","city":"{}","country":"{}","status":"{}","customer_since":"{}"}}"#,
            self.name,
            self.number,
            self.email,
            self.phone,
            self.street,
            self.postal_code,
            self.city,
            self.country,
            self.status,
            self.since
        )
    }

    /// The folded text that search works on.
    fn search(&self) -> String {
        [
            &self.name,
            &self.number,
            &self.email,
            &self.phone,
            &self.street,
            &self.postal_code,
            self.city,
            self.country,
        ]
        .iter()
        .map(|text: &&str| text.to_lowercase() + "\n")
        .collect()
    }

    /// Writes the row without its search entry, as version 1 of the record.
    pub(crate) fn insert(&self, connection: &Connection, now: &str) -> rusqlite::Result<i64> {
        let search = self.search();
        connection
            .prepare_cached(
                "INSERT INTO customers (name, customer_number, email, phone, street, postal_code, city, country, status,
                   customer_since, notes, created_at, updated_at, search, version)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, NULL, ?11, ?11, ?12, 1)",
            )?
            .execute(params![
                self.name, self.number, self.email, self.phone, self.street, self.postal_code, self.city, self.country,
                self.status, self.since, now, search
            ])?;
        Ok(connection.last_insert_rowid())
    }
}

/// A key for the `n`th write that lies as scattered as a client's random one.
pub(crate) fn idempotency_key(n: u64) -> [u8; 16] {
    u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_be_bytes()
}

impl Data {
    /// `count` tenants of `records` customers each: the first is written, the others are copies of
    /// its file.
    pub(crate) fn make(dir: &Path, count: usize, records: u64) -> io::Result<Data> {
        NewDataDir::create(dir).map_err(io::Error::other)?.keep();
        let first = tenant_file(dir, 1);
        create(&first).map_err(io::Error::other)?;
        fill(&first, 0, records).map_err(io::Error::other)?;
        for id in 2..=count {
            fs::copy(&first, tenant_file(dir, id))?;
        }
        let keys = register(dir, count).map_err(io::Error::other)?;
        Ok(Data { dir: dir.to_owned(), keys })
    }
}

/// Tenants and keys by SQL, in one transaction: the command line would hash a password for each.
fn register(dir: &Path, count: usize) -> rusqlite::Result<Vec<String>> {
    let mut registry = open(&dir.join("registry.db"))?;
    let transaction = registry.transaction()?;
    let scopes = "customers:read customers:write employees:read employees:write hardware:read hardware:write";
    let mut keys = Vec::with_capacity(count);
    for id in 1..=count {
        let key = secret::generate_key().map_err(|_| rusqlite::Error::InvalidQuery)?;
        transaction.execute(
            "INSERT INTO tenants (id, name, password_hash, created_at) VALUES (?, ?, 'none', '2026-01-01T00:00:00Z')",
            params![id as i64, format!("tenant-{id}")],
        )?;
        transaction.execute(
            "INSERT INTO keys (tenant_id, name, hash, prefix, scopes, created_at)
             VALUES (?, 'bench', ?, ?, ?, '2026-01-01T00:00:00Z')",
            params![id as i64, secret::hash(&key), &key[..8], scopes],
        )?;
        keys.push(key);
    }
    transaction.commit()?;
    Ok(keys)
}

/// Adds the customers `from..to`, leaving no write-ahead log behind.
pub(crate) fn fill(file: &Path, from: u64, to: u64) -> rusqlite::Result<()> {
    let mut connection = open(file)?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "cache_size", -200_000)?;
    let transaction = connection.transaction()?;
    for n in from..to {
        let customer = Customer::nth(n);
        customer
            .insert(&transaction, &format!("2026-{:02}-{:02}T08:00:00Z", n % 12 + 1, n % 28 + 1))?;
    }
    if from == 0 {
        transaction
            .execute_batch("INSERT INTO customers_search (customers_search) VALUES ('rebuild')")?;
    } else {
        index(&transaction, "customers", from as i64 + 1, to as i64)?;
    }
    transaction.commit()
}

/// The file of the tenant `id`.
pub(crate) fn tenant_file(dir: &Path, id: usize) -> PathBuf {
    dir.join("tenants").join(format!("{id}.db"))
}

/// A tenant's file without records.
fn create(file: &Path) -> rusqlite::Result<()> {
    let connection = open(file)?;
    connection.execute_batch(include_str!("../../schema.sql"))?;
    connection.pragma_update(None, "user_version", 4)
}

/// Adds the search entries of the records `from..=to`.
pub(crate) fn index(
    connection: &Connection,
    table: &str,
    from: i64,
    to: i64,
) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT INTO {table}_search (rowid, search) SELECT id, search FROM {table} WHERE id BETWEEN ? AND ?"
    );
    connection.prepare_cached(&sql)?.execute([from, to]).map(drop)
}

/// A connection with the durability of the service's own.
#[expect(clippy::disallowed_methods, reason = "the bench is another program")]
pub(crate) fn open(file: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON",
    )?;
    Ok(connection)
}

/// Employees and hardware, as many of each as there are customers; a customer has 100 employees, an
/// employee 10 pieces.
pub(crate) fn fill_others(file: &Path, count: u64) -> rusqlite::Result<()> {
    let mut connection = open(file)?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "cache_size", -200_000)?;
    let transaction = connection.transaction()?;
    for n in 0..count {
        transaction
            .prepare_cached(
                "INSERT INTO employees (customer_id, email, last_name, is_active, created_at, updated_at, search, version)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?2 || char(10) || lower(?3) || char(10), 1)",
            )?
            .execute(params![
                (n % (count / 100) + 1) as i64,
                format!("{n}@desk.example"),
                NAMES[n as usize % 16],
                n % 3 > 0,
                "2026-01-01T08:00:00Z"
            ])?;
        transaction
            .prepare_cached(
                "INSERT INTO hardware (name, employee_id, type, status, is_leased, created_at, updated_at, search, version)
                 VALUES (?1, ?2, 'laptop', ?3, 0, ?4, ?4, lower(?1) || char(10), 1)",
            )?
            .execute(params![
                format!("Laptop {n}"),
                (n % (count / 10).max(1) + 1) as i64,
                ["in_use", "in_stock"][n as usize % 2],
                "2026-01-01T08:00:00Z"
            ])?;
    }
    for table in ["employees", "hardware"] {
        index(&transaction, table, 1, count as i64)?;
    }
    transaction.commit()
}
