-- Version 2: the end of a key, a rate limit of its own, and the events of both.

ALTER TABLE keys ADD COLUMN expires_at TEXT;
ALTER TABLE keys ADD COLUMN rate_limit INTEGER CHECK (rate_limit BETWEEN 1 AND 100000);

-- SQLite cannot change the constraint of a column, so the table is copied.
CREATE TABLE new_key_events (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id INTEGER NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
  at        TEXT NOT NULL,
  actor     TEXT NOT NULL CHECK (actor IN ('panel', 'command line')),
  action    TEXT NOT NULL CHECK (action IN ('created', 'replaced', 'limit changed', 'revoked', 'deleted', 'signed in',
                                            'password changed')),
  key_id    INTEGER,
  key_name  TEXT,
  prefix    TEXT
) STRICT;

INSERT INTO new_key_events (id, tenant_id, at, actor, action, key_id, key_name, prefix)
  SELECT id, tenant_id, at, actor, action, key_id, key_name, prefix FROM key_events;
DROP TABLE key_events;
ALTER TABLE new_key_events RENAME TO key_events;

CREATE INDEX key_events_by_tenant ON key_events (tenant_id, id);
