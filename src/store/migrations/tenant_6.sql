-- A device belongs to a customer: while an employee has it, to the employee's customer.
ALTER TABLE hardware ADD COLUMN customer_id INTEGER REFERENCES customers (id);
UPDATE hardware SET customer_id = (SELECT customer_id FROM employees WHERE id = employee_id)
  WHERE employee_id IS NOT NULL;
CREATE INDEX hardware_by_customer_id ON hardware (customer_id);
-- The time of the last removed entry tells from when on the change log is complete. A shorter change
-- log than the largest has lost entries only by their age.
ALTER TABLE changes_removed ADD COLUMN at TEXT;
UPDATE changes_removed SET at = (
  SELECT iif(entries < 1000000, strftime('%Y-%m-%dT%H:%M:%SZ', 'now', -keep_seconds || ' seconds'),
    (SELECT at FROM changes ORDER BY seq LIMIT 1)) FROM changes_state);
ALTER TABLE changes_state ADD COLUMN max_size INTEGER;
-- Before, a device without an employee belonged to nobody. An undo gives it this former state back.
UPDATE changes SET fields = json_insert(fields, '$[#]', 'customer_id'),
    before = json_set(before, '$.customer_id', NULL)
  WHERE resource = 'hardware' AND action = 'updated' AND json_type(before, '$.employee_id') = 'null';
