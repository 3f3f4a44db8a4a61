//! What many would write to be fast: axum and rusqlite, one table, cached statements, WAL, every
//! commit synced.
//!
//! One record is read where its request arrives: that takes microseconds, less than a hand-over to
//! a blocking thread. A page goes to one. Both were measured the other way round, and slower. One
//! thread writes, since SQLite lets one write at a time.

use std::cell::OnceCell;
use std::sync::mpsc;
use std::time::SystemTime;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

type Failure = (StatusCode, String);

#[derive(Deserialize, Serialize)]
struct Customer {
    #[serde(default)]
    id: i64,
    name: String,
    customer_number: Option<String>,
    email: Option<String>,
    phone: Option<String>,
    street: Option<String>,
    postal_code: Option<String>,
    city: Option<String>,
    country: Option<String>,
    status: Option<String>,
    customer_since: Option<String>,
    notes: Option<String>,
    #[serde(default)]
    created_at: i64,
    #[serde(default)]
    updated_at: i64,
}

impl Customer {
    fn read(row: &Row) -> rusqlite::Result<Customer> {
        Ok(Customer {
            id: row.get(0)?,
            name: row.get(1)?,
            customer_number: row.get(2)?,
            email: row.get(3)?,
            phone: row.get(4)?,
            street: row.get(5)?,
            postal_code: row.get(6)?,
            city: row.get(7)?,
            country: row.get(8)?,
            status: row.get(9)?,
            customer_since: row.get(10)?,
            notes: row.get(11)?,
            created_at: row.get(12)?,
            updated_at: row.get(13)?,
        })
    }
}

#[derive(Serialize)]
struct Page {
    data: Vec<Customer>,
}

/// A customer to be written, and where the answer waits for it.
type Write = (Customer, oneshot::Sender<rusqlite::Result<Customer>>);

const PAGE: &str = "SELECT * FROM customers ORDER BY id LIMIT 50";
const ONE: &str = "SELECT * FROM customers WHERE id = ?";
const INSERT: &str = "INSERT INTO customers VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

fn open() -> rusqlite::Result<Connection> {
    let connection = Connection::open(std::env::var("PEER_FILE").expect("PEER_FILE"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// Runs `read` on this thread's own connection.
fn with_reader<T>(read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Failure> {
    thread_local! { static READER: OnceCell<Connection> = const { OnceCell::new() } }
    READER.with(|reader| {
        if reader.get().is_none() {
            let _ = reader.set(open().map_err(failed)?);
        }
        reader.get().map_or_else(|| Err(failed("no connection")), |connection| read(connection).map_err(failed))
    })
}

async fn page() -> Result<Json<Page>, Failure> {
    let read = || {
        let data = with_reader(|connection| connection.prepare_cached(PAGE)?.query_map([], Customer::read)?.collect())?;
        Ok(Json(Page { data }))
    };
    tokio::task::spawn_blocking(read).await.map_err(failed)?
}

async fn one(Path(id): Path<i64>) -> Result<Json<Customer>, Failure> {
    let found = with_reader(|connection| connection.prepare_cached(ONE)?.query_row([id], Customer::read).optional())?;
    found.map(Json).ok_or_else(|| (StatusCode::NOT_FOUND, "not found".to_owned()))
}

async fn create(
    State(writer): State<mpsc::Sender<Write>>,
    Json(customer): Json<Customer>,
) -> Result<(StatusCode, Json<Customer>), Failure> {
    let (written, wait) = oneshot::channel();
    writer.send((customer, written)).map_err(failed)?;
    let customer = wait.await.map_err(failed)?.map_err(failed)?;
    Ok((StatusCode::CREATED, Json(customer)))
}

fn insert(connection: &Connection, mut customer: Customer) -> rusqlite::Result<Customer> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64);
    (customer.created_at, customer.updated_at) = (now, now);
    connection.prepare_cached(INSERT)?.execute(params![
        customer.name,
        customer.customer_number,
        customer.email,
        customer.phone,
        customer.street,
        customer.postal_code,
        customer.city,
        customer.country,
        customer.status,
        customer.customer_since,
        customer.notes,
        customer.created_at,
        customer.updated_at,
    ])?;
    customer.id = connection.last_insert_rowid();
    Ok(customer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let connection = open()?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL,
           customer_number TEXT, email TEXT, phone TEXT, street TEXT, postal_code TEXT, city TEXT, country TEXT, status TEXT,
           customer_since TEXT, notes TEXT, created_at INTEGER, updated_at INTEGER)",
    )?;
    let (writer, writes) = mpsc::channel::<Write>();
    std::thread::spawn(move || {
        for (customer, written) in writes {
            let _ = written.send(insert(&connection, customer));
        }
    });
    let routes =
        Router::new().route("/customers", get(page).post(create)).route("/customers/{id}", get(one)).with_state(writer);
    let address = format!("127.0.0.1:{}", std::env::var("PEER_PORT")?);
    axum::serve(tokio::net::TcpListener::bind(address).await?, routes).await?;
    Ok(())
}
