-- Version 3: the client's address in events, and failed sign-ins. Names of actions say what was changed.

-- SQLite cannot change the constraint of a column, so the table is copied.
CREATE TABLE new_key_events (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id INTEGER NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
  at        TEXT NOT NULL,
  actor     TEXT NOT NULL CHECK (actor IN ('panel', 'command line')),
  action    TEXT NOT NULL CHECK (action IN ('key created', 'key replaced', 'key limit changed', 'key revoked', 'key deleted',
                                            'password changed', 'signed in', 'failed sign-in')),
  client    TEXT,
  key_id    INTEGER,
  key_name  TEXT,
  prefix    TEXT
) STRICT;

INSERT INTO new_key_events (id, tenant_id, at, actor, action, key_id, key_name, prefix)
  SELECT id, tenant_id, at, actor,
         iif(action IN ('created', 'replaced', 'limit changed', 'revoked', 'deleted'), 'key ', '') || action,
         key_id, key_name, prefix
  FROM key_events;
DROP TABLE key_events;
ALTER TABLE new_key_events RENAME TO key_events;

CREATE INDEX key_events_by_tenant ON key_events (tenant_id, id);
