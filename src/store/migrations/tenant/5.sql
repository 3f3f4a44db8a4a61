-- Version 5: the shop's own number of an employee, and the shop's own fields.

ALTER TABLE employees ADD COLUMN employee_number TEXT;
CREATE INDEX employees_by_employee_number ON employees (employee_number);

ALTER TABLE customers ADD COLUMN custom TEXT NOT NULL DEFAULT '{}';
ALTER TABLE employees ADD COLUMN custom TEXT NOT NULL DEFAULT '{}';
ALTER TABLE hardware ADD COLUMN custom TEXT NOT NULL DEFAULT '{}';
