-- The change log keeps the version and the time that a change has replaced.
ALTER TABLE changes ADD COLUMN before_version INTEGER;
ALTER TABLE changes ADD COLUMN before_updated_at TEXT;
ALTER TABLE hardware ADD COLUMN lease_until TEXT;
CREATE INDEX hardware_by_lease_until ON hardware (lease_until);
-- A search reads the column `search` of each record. SQLite drops the tables only with FTS5.
DROP TABLE customers_search;
DROP TABLE employees_search;
DROP TABLE hardware_search;
-- The number of entries is no limit any more, and an entry is shown until it is removed.
ALTER TABLE changes_state DROP COLUMN entries;
ALTER TABLE changes_state DROP COLUMN keep_seconds;
