-- A job's end is told in-band of findings too.

ALTER TABLE findings ADD COLUMN IF NOT EXISTS `last` Nullable(Bool) AFTER found_at;
