-- Version 2: the program keeps the search tables. The triggers that did so made each opening of a file slower.

DROP TRIGGER IF EXISTS customers_search_insert;
DROP TRIGGER IF EXISTS customers_search_update;
DROP TRIGGER IF EXISTS customers_search_delete;
DROP TRIGGER IF EXISTS employees_search_insert;
DROP TRIGGER IF EXISTS employees_search_update;
DROP TRIGGER IF EXISTS employees_search_delete;
DROP TRIGGER IF EXISTS hardware_search_insert;
DROP TRIGGER IF EXISTS hardware_search_update;
DROP TRIGGER IF EXISTS hardware_search_delete;
