-- A search that stopped at its bound of ranks says so.

ALTER TABLE findings ADD COLUMN IF NOT EXISTS `bounded` Nullable(Bool) AFTER coverage;
