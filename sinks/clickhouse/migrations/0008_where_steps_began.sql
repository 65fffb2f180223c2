-- Iterations that are longer still than their run say since when, and what they lost; so do the findings on them.

ALTER TABLE iterations ADD COLUMN IF NOT EXISTS `step_from` Nullable(Int32) AFTER step_ordinal;
ALTER TABLE iterations ADD COLUMN IF NOT EXISTS `step_excess_ns` Nullable(Int64) AFTER excess_ns;
ALTER TABLE findings ADD COLUMN IF NOT EXISTS `step_from` Nullable(Int32) AFTER last_iteration;
ALTER TABLE findings ADD COLUMN IF NOT EXISTS `step_excess_ns` Nullable(Int64) AFTER run_excess_ns;
