-- The change log keeps the version and the time that a change has replaced.
ALTER TABLE changes ADD COLUMN before_version INTEGER;
ALTER TABLE changes ADD COLUMN before_updated_at TEXT;
ALTER TABLE hardware ADD COLUMN lease_until TEXT;
CREATE INDEX hardware_by_lease_until ON hardware (lease_until);
-- Caretakers and apprentices have no address.
ALTER TABLE employees ALTER COLUMN email DROP NOT NULL;
-- A search reads the column `search` of each record. SQLite drops the tables only with FTS5.
DROP TABLE customers_search;
DROP TABLE employees_search;
DROP TABLE hardware_search;
-- The number of entries is no limit any more, and an entry is shown until it is removed.
ALTER TABLE changes_state DROP COLUMN entries;
ALTER TABLE changes_state DROP COLUMN keep_seconds;

-- Texts of one line lose white space at both ends (contract section 2). The versions of the records
-- stay, and the change log keeps what it has. `search` keeps the white space until the next change.
CREATE TEMP TABLE white (space TEXT);
INSERT INTO temp.white VALUES (char(9, 10, 11, 12, 13, 32, 133, 160, 5760, 8192, 8193, 8194, 8195,
  8196, 8197, 8198, 8199, 8200, 8201, 8202, 8232, 8233, 8239, 8287, 12288));
UPDATE customers SET
  name = trim(name, (SELECT space FROM temp.white)),
  customer_number = trim(customer_number, (SELECT space FROM temp.white)),
  phone = trim(phone, (SELECT space FROM temp.white)),
  street = trim(street, (SELECT space FROM temp.white)),
  postal_code = trim(postal_code, (SELECT space FROM temp.white)),
  city = trim(city, (SELECT space FROM temp.white)),
  country = trim(country, (SELECT space FROM temp.white))
  WHERE name <> trim(name, (SELECT space FROM temp.white))
    OR customer_number <> trim(customer_number, (SELECT space FROM temp.white))
    OR phone <> trim(phone, (SELECT space FROM temp.white))
    OR street <> trim(street, (SELECT space FROM temp.white))
    OR postal_code <> trim(postal_code, (SELECT space FROM temp.white))
    OR city <> trim(city, (SELECT space FROM temp.white))
    OR country <> trim(country, (SELECT space FROM temp.white));
UPDATE customers SET custom =
    (SELECT json_group_object(key, trim(value, (SELECT space FROM temp.white))) FROM json_each(custom))
  WHERE custom <> '{}' AND EXISTS (SELECT 1 FROM json_each(custom)
    WHERE value <> trim(value, (SELECT space FROM temp.white)));
UPDATE employees SET
  employee_number = trim(employee_number, (SELECT space FROM temp.white)),
  first_name = trim(first_name, (SELECT space FROM temp.white)),
  last_name = trim(last_name, (SELECT space FROM temp.white)),
  phone = trim(phone, (SELECT space FROM temp.white)),
  department = trim(department, (SELECT space FROM temp.white)),
  job_title = trim(job_title, (SELECT space FROM temp.white))
  WHERE employee_number <> trim(employee_number, (SELECT space FROM temp.white))
    OR first_name <> trim(first_name, (SELECT space FROM temp.white))
    OR last_name <> trim(last_name, (SELECT space FROM temp.white))
    OR phone <> trim(phone, (SELECT space FROM temp.white))
    OR department <> trim(department, (SELECT space FROM temp.white))
    OR job_title <> trim(job_title, (SELECT space FROM temp.white));
UPDATE employees SET custom =
    (SELECT json_group_object(key, trim(value, (SELECT space FROM temp.white))) FROM json_each(custom))
  WHERE custom <> '{}' AND EXISTS (SELECT 1 FROM json_each(custom)
    WHERE value <> trim(value, (SELECT space FROM temp.white)));
UPDATE hardware SET
  name = trim(name, (SELECT space FROM temp.white)),
  manufacturer = trim(manufacturer, (SELECT space FROM temp.white)),
  model = trim(model, (SELECT space FROM temp.white)),
  serial_number = trim(serial_number, (SELECT space FROM temp.white)),
  asset_tag = trim(asset_tag, (SELECT space FROM temp.white))
  WHERE name <> trim(name, (SELECT space FROM temp.white))
    OR manufacturer <> trim(manufacturer, (SELECT space FROM temp.white))
    OR model <> trim(model, (SELECT space FROM temp.white))
    OR serial_number <> trim(serial_number, (SELECT space FROM temp.white))
    OR asset_tag <> trim(asset_tag, (SELECT space FROM temp.white));
UPDATE hardware SET custom =
    (SELECT json_group_object(key, trim(value, (SELECT space FROM temp.white))) FROM json_each(custom))
  WHERE custom <> '{}' AND EXISTS (SELECT 1 FROM json_each(custom)
    WHERE value <> trim(value, (SELECT space FROM temp.white)));
DROP TABLE temp.white;
