-- Where no end is logged, the rank's next call bounds it.

ALTER TABLE comm_ops ADD COLUMN IF NOT EXISTS next_call_at Nullable(DateTime64(9, 'UTC')) AFTER end_at;
