-- A device belongs to a customer: while an employee has it, to the employee's customer.
ALTER TABLE hardware ADD COLUMN customer_id INTEGER REFERENCES customers (id);
UPDATE hardware SET customer_id = (SELECT customer_id FROM employees WHERE id = employee_id)
  WHERE employee_id IS NOT NULL;
CREATE INDEX hardware_by_customer_id ON hardware (customer_id);
