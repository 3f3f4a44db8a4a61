-- The change log keeps the version and the time that a change has replaced.
ALTER TABLE changes ADD COLUMN before_version INTEGER;
ALTER TABLE changes ADD COLUMN before_updated_at TEXT;
CREATE INDEX changes_of_deletions ON changes (resource) WHERE action = 'deleted';
ALTER TABLE hardware ADD COLUMN lease_until TEXT;
CREATE INDEX hardware_by_lease_until ON hardware (lease_until);
-- Caretakers and apprentices have no address.
ALTER TABLE employees ALTER COLUMN email DROP NOT NULL;
-- A search reads the column `search` of each record. SQLite drops the tables only with FTS5.
DROP TABLE customers_search;
DROP TABLE employees_search;
DROP TABLE hardware_search;
-- The number of entries is no limit any more, an entry is shown until it is removed, and commands
-- have no limit of size.
ALTER TABLE changes_state DROP COLUMN entries;
ALTER TABLE changes_state DROP COLUMN keep_seconds;
ALTER TABLE changes_state DROP COLUMN max_size;
-- 1.0.0 never dated an entry before the entry before it.
ALTER TABLE changes_state ADD COLUMN set_back INTEGER NOT NULL DEFAULT 0;

-- Texts of one line lose white space at both ends (contract section 2). The versions of the records
-- stay, and the change log keeps what it has. `search` keeps the white space until the next change.
UPDATE customers SET
  (name, customer_number, phone, street, postal_code, city, country) =
  (trimmed(name), trimmed(customer_number), trimmed(phone), trimmed(street), trimmed(postal_code),
   trimmed(city), trimmed(country))
  WHERE
  (name, customer_number, phone, street, postal_code, city, country) IS NOT
  (trimmed(name), trimmed(customer_number), trimmed(phone), trimmed(street), trimmed(postal_code),
   trimmed(city), trimmed(country));
UPDATE customers SET custom = (SELECT json_group_object(key, trimmed(value)) FROM json_each(custom))
  WHERE custom <> '{}'
    AND EXISTS (SELECT 1 FROM json_each(custom) WHERE value <> trimmed(value));
UPDATE employees SET
  (employee_number, first_name, last_name, phone, department, job_title) =
  (trimmed(employee_number), trimmed(first_name), trimmed(last_name), trimmed(phone),
   trimmed(department), trimmed(job_title))
  WHERE
  (employee_number, first_name, last_name, phone, department, job_title) IS NOT
  (trimmed(employee_number), trimmed(first_name), trimmed(last_name), trimmed(phone),
   trimmed(department), trimmed(job_title));
UPDATE employees SET custom = (SELECT json_group_object(key, trimmed(value)) FROM json_each(custom))
  WHERE custom <> '{}'
    AND EXISTS (SELECT 1 FROM json_each(custom) WHERE value <> trimmed(value));
UPDATE hardware SET
  (name, manufacturer, model, serial_number, asset_tag) =
  (trimmed(name), trimmed(manufacturer), trimmed(model), trimmed(serial_number),
   trimmed(asset_tag))
  WHERE
  (name, manufacturer, model, serial_number, asset_tag) IS NOT
  (trimmed(name), trimmed(manufacturer), trimmed(model), trimmed(serial_number),
   trimmed(asset_tag));
UPDATE hardware SET custom = (SELECT json_group_object(key, trimmed(value)) FROM json_each(custom))
  WHERE custom <> '{}'
    AND EXISTS (SELECT 1 FROM json_each(custom) WHERE value <> trimmed(value));
