CREATE TABLE customers (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, customer_number TEXT, email TEXT, phone TEXT, street TEXT, postal_code TEXT,
  city TEXT, country TEXT, status TEXT, customer_since TEXT, notes TEXT,
  created_at INTEGER NOT NULL DEFAULT (unixepoch()), updated_at INTEGER NOT NULL DEFAULT (unixepoch())
) STRICT;
