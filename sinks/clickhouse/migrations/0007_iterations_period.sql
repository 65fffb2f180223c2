-- A fluctuation has a period.

ALTER TABLE iterations ADD COLUMN IF NOT EXISTS `period` Nullable(Float64) AFTER pattern_to;
