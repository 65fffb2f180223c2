-- Iterations that are longer still than the run that they belong to are counted.

ALTER TABLE iterations ADD COLUMN IF NOT EXISTS `step_ordinal` Nullable(Int32) AFTER pattern_ordinal;
