-- Imports whose records are hidden until the last one is stored.

CREATE TABLE pending_imports (
  resource TEXT PRIMARY KEY,
  first_id INTEGER NOT NULL,
  last_id  INTEGER NOT NULL,
  stored   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
