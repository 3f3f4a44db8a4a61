-- Version 3: versions of records and the journal. A new column takes no rewriting of the rows.

ALTER TABLE customers ADD COLUMN version INTEGER;
ALTER TABLE employees ADD COLUMN version INTEGER;
ALTER TABLE hardware ADD COLUMN version INTEGER;
ALTER TABLE idempotency ADD COLUMN etag TEXT;

CREATE TABLE changes (
  seq        INTEGER PRIMARY KEY,
  at         TEXT NOT NULL,
  resource   TEXT NOT NULL,
  record_id  INTEGER NOT NULL,
  action     TEXT NOT NULL,
  fields     TEXT NOT NULL,
  former     TEXT,
  by_key     INTEGER,
  by_name    TEXT NOT NULL,
  by_prefix  TEXT,
  request_id BLOB
) STRICT;

CREATE INDEX changes_by_resource ON changes (resource);
CREATE INDEX changes_by_record ON changes (resource, record_id);

CREATE TABLE removed_changes (
  resource TEXT PRIMARY KEY,
  seq      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE journal (
  id           INTEGER PRIMARY KEY CHECK (id = 1),
  lineage      BLOB NOT NULL,
  base         INTEGER NOT NULL,
  last_seq     INTEGER NOT NULL,
  entries      INTEGER NOT NULL,
  keep_seconds INTEGER NOT NULL
) STRICT;

INSERT INTO journal (id, lineage, base, last_seq, entries, keep_seconds)
  VALUES (1, randomblob(16), abs(random() % 17592186044416), 0, 0, 7776000);
UPDATE journal SET last_seq = base;

-- The search tables. The program fills them (src/store/records/search_index.rs). FTS5 merges no segments inside a commit
-- (src/store/records/segments.rs).
ALTER TABLE customers ADD COLUMN last_word INTEGER NOT NULL DEFAULT 0;
ALTER TABLE employees ADD COLUMN last_word INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hardware ADD COLUMN last_word INTEGER NOT NULL DEFAULT 0;

CREATE TABLE frequent_words (
  id       INTEGER PRIMARY KEY,
  resource TEXT NOT NULL,
  word     TEXT NOT NULL,
  UNIQUE (resource, word)
) STRICT;

DROP TABLE customers_search;
CREATE VIRTUAL TABLE customers_search USING fts5 (
  terms, content = '', detail = none, columnsize = 0, tokenize = 'ascii'
);
INSERT INTO customers_search (customers_search, rank) VALUES ('automerge', 0), ('crisismerge', 1900), ('usermerge', 16);

DROP TABLE employees_search;
CREATE VIRTUAL TABLE employees_search USING fts5 (
  terms, content = '', detail = none, columnsize = 0, tokenize = 'ascii'
);
INSERT INTO employees_search (employees_search, rank) VALUES ('automerge', 0), ('crisismerge', 1900), ('usermerge', 16);

DROP TABLE hardware_search;
CREATE VIRTUAL TABLE hardware_search USING fts5 (
  terms, content = '', detail = none, columnsize = 0, tokenize = 'ascii'
);
INSERT INTO hardware_search (hardware_search, rank) VALUES ('automerge', 0), ('crisismerge', 1900), ('usermerge', 16);

-- Imports whose records are hidden until the last one is stored.
CREATE TABLE pending_imports (
  resource  TEXT PRIMARY KEY,
  first_id  INTEGER NOT NULL,
  last_id   INTEGER NOT NULL,
  stored    INTEGER NOT NULL,
  first_seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
