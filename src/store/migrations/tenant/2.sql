-- FTS5 merges no segments inside a commit (src/store/records/segments.rs).
INSERT INTO customers_search (customers_search, rank) VALUES ('automerge', 0), ('crisismerge', 1900), ('usermerge', 16);
INSERT INTO employees_search (employees_search, rank) VALUES ('automerge', 0), ('crisismerge', 1900), ('usermerge', 16);
INSERT INTO hardware_search (hardware_search, rank) VALUES ('automerge', 0), ('crisismerge', 1900), ('usermerge', 16);
