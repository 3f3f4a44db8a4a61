-- The schema of a tenant's file. It is compiled into the program. A test compares its
-- columns with the declarations in src/model. CONTRIBUTING.md says how to change it.
--
-- Dates are YYYY-MM-DD, timestamps RFC 3339 in UTC and whole seconds, booleans 0 and 1.
-- AUTOINCREMENT ensures that the id of a deleted record is not used again.
--
-- Every field by which a list can be sorted or filtered has an index. SQLite appends the row's id
-- to each entry, so the index also orders equal values, and a page begins where the last one ended.
--
-- `custom` is a JSON object of the shop's own fields, whose values are texts.
--
-- `version` is the `seq` of the record's last entry in `changes`, and never null (the column was
-- added to a table that had rows, so SQLite cannot say so). `search` is the case-folded text of all
-- text, e-mail and custom fields, one on each line. A search reads it in each record.

CREATE TABLE customers (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  name            TEXT NOT NULL,
  customer_number TEXT,
  email           TEXT,
  phone           TEXT,
  street          TEXT,
  postal_code     TEXT,
  city            TEXT,
  country         TEXT,
  status          TEXT NOT NULL,
  customer_since  TEXT,
  notes           TEXT,
  custom          TEXT NOT NULL DEFAULT '{}',
  created_at      TEXT NOT NULL,
  updated_at      TEXT NOT NULL,
  search          TEXT NOT NULL,
  version         INTEGER
) STRICT;

CREATE INDEX customers_by_name ON customers (name);
CREATE INDEX customers_by_customer_number ON customers (customer_number);
CREATE INDEX customers_by_email ON customers (email);
CREATE INDEX customers_by_phone ON customers (phone);
CREATE INDEX customers_by_street ON customers (street);
CREATE INDEX customers_by_postal_code ON customers (postal_code);
CREATE INDEX customers_by_city ON customers (city);
CREATE INDEX customers_by_country ON customers (country);
CREATE INDEX customers_by_status ON customers (status);
CREATE INDEX customers_by_customer_since ON customers (customer_since);
CREATE INDEX customers_by_created_at ON customers (created_at);
CREATE INDEX customers_by_updated_at ON customers (updated_at);

CREATE TABLE employees (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  customer_id     INTEGER NOT NULL REFERENCES customers (id),
  employee_number TEXT,
  email           TEXT,
  first_name      TEXT,
  last_name       TEXT,
  phone           TEXT,
  department      TEXT,
  job_title       TEXT,
  is_active       INTEGER NOT NULL,
  start_date      TEXT,
  end_date        TEXT,
  notes           TEXT,
  custom          TEXT NOT NULL DEFAULT '{}',
  created_at      TEXT NOT NULL,
  updated_at      TEXT NOT NULL,
  search          TEXT NOT NULL,
  version         INTEGER
) STRICT;

CREATE INDEX employees_by_customer_id ON employees (customer_id);
CREATE INDEX employees_by_employee_number ON employees (employee_number);
CREATE INDEX employees_by_email ON employees (email);
CREATE INDEX employees_by_first_name ON employees (first_name);
CREATE INDEX employees_by_last_name ON employees (last_name);
CREATE INDEX employees_by_phone ON employees (phone);
CREATE INDEX employees_by_department ON employees (department);
CREATE INDEX employees_by_job_title ON employees (job_title);
CREATE INDEX employees_by_is_active ON employees (is_active);
CREATE INDEX employees_by_start_date ON employees (start_date);
CREATE INDEX employees_by_end_date ON employees (end_date);
CREATE INDEX employees_by_created_at ON employees (created_at);
CREATE INDEX employees_by_updated_at ON employees (updated_at);

CREATE TABLE hardware (
  id                  INTEGER PRIMARY KEY AUTOINCREMENT,
  name                TEXT NOT NULL,
  employee_id         INTEGER REFERENCES employees (id),
  customer_id         INTEGER REFERENCES customers (id),
  type                TEXT NOT NULL,
  manufacturer        TEXT,
  model               TEXT,
  serial_number       TEXT,
  asset_tag           TEXT,
  status              TEXT NOT NULL,
  purchase_date       TEXT,
  warranty_until      TEXT,
  purchase_cost_cents INTEGER,
  is_leased           INTEGER NOT NULL,
  lease_until         TEXT,
  notes               TEXT,
  custom              TEXT NOT NULL DEFAULT '{}',
  created_at          TEXT NOT NULL,
  updated_at          TEXT NOT NULL,
  search              TEXT NOT NULL,
  version             INTEGER
) STRICT;

CREATE INDEX hardware_by_name ON hardware (name);
CREATE INDEX hardware_by_employee_id ON hardware (employee_id);
CREATE INDEX hardware_by_customer_id ON hardware (customer_id);
CREATE INDEX hardware_by_type ON hardware (type);
CREATE INDEX hardware_by_manufacturer ON hardware (manufacturer);
CREATE INDEX hardware_by_model ON hardware (model);
CREATE INDEX hardware_by_serial_number ON hardware (serial_number);
CREATE INDEX hardware_by_asset_tag ON hardware (asset_tag);
CREATE INDEX hardware_by_status ON hardware (status);
CREATE INDEX hardware_by_purchase_date ON hardware (purchase_date);
CREATE INDEX hardware_by_warranty_until ON hardware (warranty_until);
CREATE INDEX hardware_by_purchase_cost_cents ON hardware (purchase_cost_cents);
CREATE INDEX hardware_by_is_leased ON hardware (is_leased);
CREATE INDEX hardware_by_lease_until ON hardware (lease_until);
CREATE INDEX hardware_by_created_at ON hardware (created_at);
CREATE INDEX hardware_by_updated_at ON hardware (updated_at);

-- The responses to successful requests with an Idempotency-Key, kept for 24 hours. `request` is the
-- SHA-256 of the parts in which a repeated request must be equal; `created_at` is in seconds since
-- the Unix epoch.
CREATE TABLE idempotency (
  id         INTEGER PRIMARY KEY,
  key        BLOB NOT NULL UNIQUE,
  request    BLOB NOT NULL,
  status     INTEGER NOT NULL,
  location   TEXT,
  etag       TEXT,
  body       BLOB NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX idempotency_by_created_at ON idempotency (created_at);

-- The change log: one entry for each change of a record, in the order of the commits. `fields` is a
-- JSON array of names, `before` a JSON object of the values before the change. `before_version` and
-- `before_updated_at` are those of the record before the change; 1.0.0 did not write them. `by_name`
-- and `by_prefix` are those of the key `by_key` at that time. Without a prefix, `by_name` is a command.
-- A restore into another data directory removes `by_key`.
-- Each index ends with `seq`, so a page of one resource, or of one record, is read in its order.
CREATE TABLE changes (
  seq               INTEGER PRIMARY KEY,
  at                TEXT NOT NULL,
  resource          TEXT NOT NULL,
  record_id         INTEGER NOT NULL,
  action            TEXT NOT NULL,
  fields            TEXT NOT NULL,
  before            TEXT,
  before_version    INTEGER,
  before_updated_at TEXT,
  by_key            INTEGER,
  by_name           TEXT NOT NULL,
  by_prefix         TEXT,
  request_id        BLOB
) STRICT;

CREATE INDEX changes_by_resource ON changes (resource);
CREATE INDEX changes_by_record ON changes (resource, record_id);
CREATE INDEX changes_of_deletions ON changes (resource) WHERE action = 'deleted';

-- The last entry of each resource that was removed because of its age.
CREATE TABLE changes_removed (
  resource TEXT PRIMARY KEY,
  seq      INTEGER NOT NULL,
  at       TEXT
) STRICT, WITHOUT ROWID;

-- One row. A restore renews `lineage`: a cursor of another lineage is not valid. `last_seq` is the
-- highest `seq` that was ever used. `set_back` is the `seq` of the last entry that is dated before the
-- entry before it, because the clock was set back.
CREATE TABLE changes_state (
  id           INTEGER PRIMARY KEY CHECK (id = 1),
  lineage      BLOB NOT NULL,
  last_seq     INTEGER NOT NULL,
  set_back     INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The numbers begin at random, so that two files that were made from one do not give the same
-- number to different states.
INSERT INTO changes_state (id, lineage, last_seq)
  VALUES (1, randomblob(16), abs(random() % 17592186044416));
