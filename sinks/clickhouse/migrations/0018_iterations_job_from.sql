-- Iterations say which was the first of their job: where a job goes on, the numbers do not begin at 0.

ALTER TABLE iterations ADD COLUMN IF NOT EXISTS `job_from` Nullable(Int32) AFTER `last`;
