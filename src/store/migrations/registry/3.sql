-- Version 3: names of actions say what was changed.

-- The new names break the constraint of the old table.
PRAGMA ignore_check_constraints = ON;
UPDATE key_events SET action = 'key ' || action
  WHERE action IN ('created', 'replaced', 'limit changed', 'revoked', 'deleted');
PRAGMA ignore_check_constraints = OFF;
