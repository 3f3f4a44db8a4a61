// What many would write: Express and better-sqlite3, one table, prepared statements, WAL, every commit synced.
const express = require("express");
const Database = require("better-sqlite3");

const database = new Database(process.env.PEER_FILE);
database.pragma("journal_mode = WAL");
database.pragma("synchronous = FULL");
database.exec(`CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL,
  customer_number TEXT, email TEXT, phone TEXT, street TEXT, postal_code TEXT, city TEXT, country TEXT, status TEXT,
  customer_since TEXT, notes TEXT, created_at TEXT, updated_at TEXT)`);
const FIELDS = ["name", "customer_number", "email", "phone", "street", "postal_code", "city", "country", "status",
  "customer_since", "notes", "created_at", "updated_at"];
const one = database.prepare("SELECT * FROM customers WHERE id = ?");
const page = database.prepare("SELECT * FROM customers ORDER BY id LIMIT 50");
const insert = database.prepare(
  `INSERT INTO customers (${FIELDS.join(", ")}) VALUES (${FIELDS.map(() => "?").join(", ")})`);

const app = express();
app.use(express.json());
app.get("/customers", (request, response) => response.json({ data: page.all() }));
app.get("/customers/:id", (request, response) => {
  const found = one.get(request.params.id);
  found ? response.json(found) : response.status(404).json({ error: "not found" });
});
app.post("/customers", (request, response) => {
  const now = new Date().toISOString();
  const record = { ...request.body, created_at: now, updated_at: now };
  const { lastInsertRowid } = insert.run(FIELDS.map((field) => record[field] ?? null));
  response.status(201).json({ id: Number(lastInsertRowid), ...record });
});
app.listen(Number(process.env.PEER_PORT), "127.0.0.1");
