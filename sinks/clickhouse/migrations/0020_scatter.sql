-- How much a job's regular iterations scatter, beside the irregular ones.

ALTER TABLE iterations ADD COLUMN IF NOT EXISTS `scatter_ns` Nullable(Int64) AFTER step_excess_ns;
ALTER TABLE findings ADD COLUMN IF NOT EXISTS `scatter_ns` Nullable(Int64) AFTER expected_ns;
