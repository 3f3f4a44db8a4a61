-- The schema of the registry: tenants, their keys, the panel's sessions, and events.
--
-- Dates are YYYY-MM-DD, timestamps RFC 3339 in UTC and whole seconds, except in sessions: seconds
-- since the Unix epoch. A tenant that is `moving` is `suspended`, too. AUTOINCREMENT ensures that
-- the id of a deleted row is not used again.

CREATE TABLE tenants (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  name          TEXT NOT NULL UNIQUE,
  suspended     INTEGER NOT NULL DEFAULT 0 CHECK (suspended IN (0, 1)),
  moving        INTEGER NOT NULL DEFAULT 0 CHECK (moving IN (0, 1)),
  trial_until   TEXT,
  password_hash TEXT NOT NULL,
  created_at    TEXT NOT NULL
) STRICT;

-- `hash` is the SHA-256 of the whole key, which is not stored; `scopes` holds the names of the
-- scopes, separated by spaces. `expires_at` is the second from which on the key is expired; NULL
-- for a key without an end. `rate_limit` is the key's own number of requests a minute; NULL for the
-- server's.
CREATE TABLE keys (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id    INTEGER NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
  name         TEXT NOT NULL,
  hash         BLOB NOT NULL UNIQUE,
  prefix       TEXT NOT NULL,
  scopes       TEXT NOT NULL,
  created_at   TEXT NOT NULL,
  last_used_at TEXT,
  revoked_at   TEXT,
  expires_at   TEXT,
  rate_limit   INTEGER CHECK (rate_limit BETWEEN 1 AND 100000)
) STRICT;

CREATE INDEX keys_by_tenant ON keys (tenant_id);

-- `hash` is the SHA-256 of the session's token, which is not stored.
CREATE TABLE sessions (
  id         INTEGER PRIMARY KEY,
  tenant_id  INTEGER NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
  hash       BLOB NOT NULL UNIQUE,
  expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_by_tenant ON sessions (tenant_id);
CREATE INDEX sessions_by_expires_at ON sessions (expires_at);

-- Sign-ins, failed ones too, and changes of keys and the password, with the interface that was used
-- and, for the panel, the client's address. The key's name and prefix are copied, because the key
-- may be deleted; they are NULL for an event without a key. Of each tenant the last 1,000 sign-ins
-- and the last 1,000 changes are kept.
CREATE TABLE key_events (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id INTEGER NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
  at        TEXT NOT NULL,
  actor     TEXT NOT NULL CHECK (actor IN ('panel', 'command line')),
  action    TEXT NOT NULL CHECK (action IN ('key created', 'key replaced', 'key renamed', 'key expiry changed', 'key limit changed',
                                            'key revoked', 'key deleted', 'password changed', 'signed in', 'failed sign-in')),
  client    TEXT,
  key_id    INTEGER,
  key_name  TEXT,
  prefix    TEXT
) STRICT;

CREATE INDEX key_events_by_tenant ON key_events (tenant_id, id);
