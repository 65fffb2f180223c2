-- How many calls telemetry has lost right before an operator.

ALTER TABLE traffic_metrics ADD COLUMN IF NOT EXISTS `calls_lost` Nullable(Int32) AFTER `clock_error_ns`;
