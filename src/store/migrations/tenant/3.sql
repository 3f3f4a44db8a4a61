-- Version 3: versions of records and the journal.

ALTER TABLE customers ADD COLUMN version INTEGER;
ALTER TABLE employees ADD COLUMN version INTEGER;
ALTER TABLE hardware ADD COLUMN version INTEGER;

CREATE TABLE changes (seq INTEGER, former TEXT);
CREATE TABLE removed_changes (resource TEXT, seq INTEGER);
CREATE TABLE pending_imports (resource TEXT, first_id INTEGER, last_id INTEGER);
CREATE TABLE journal (
  id INTEGER, lineage BLOB, base INTEGER, last_seq INTEGER, entries INTEGER, keep_seconds INTEGER
);
INSERT INTO journal (id, lineage, base, keep_seconds)
  VALUES (1, randomblob(16), abs(random() % 17592186044416), 7776000);
UPDATE journal SET last_seq = base;
