-- After how many iterations a fluctuation comes again, in what is found and in what people are told.

ALTER TABLE findings ADD COLUMN IF NOT EXISTS `period` Nullable(Float64) AFTER pattern;
ALTER TABLE incidents ADD COLUMN IF NOT EXISTS `period` Nullable(Float64) AFTER pattern;
