-- A suspended tenant can be on its way to another machine (contract section 9). Its clients wait then.
ALTER TABLE tenants ADD COLUMN moving INTEGER NOT NULL DEFAULT 0 CHECK (moving IN (0, 1));
