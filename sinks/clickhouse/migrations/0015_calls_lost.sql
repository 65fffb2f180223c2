-- How many calls telemetry has lost up to an operator.

ALTER TABLE traffic_metrics ADD COLUMN IF NOT EXISTS `calls_lost` Nullable(Int64) AFTER `clock_error_ns`;
