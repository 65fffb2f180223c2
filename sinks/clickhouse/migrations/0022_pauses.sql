-- What all ranks pause after an iteration is no part of it as it is judged.

ALTER TABLE iterations ADD COLUMN IF NOT EXISTS `pause_ns` Nullable(Int64) AFTER duration_ns;
ALTER TABLE iterations ADD COLUMN IF NOT EXISTS `pause_before_ns` Nullable(Int64) AFTER pause_ns;

CREATE OR REPLACE VIEW iteration_history AS
WITH quantileExactLow(0.5)(seen.duration_ns) AS median_ns
SELECT
    job,
    iteration,
    min(seen.start_at) AS start_at,
    if(max(seen.duration_ns) > 3 * median_ns, NULL, median_ns - ifNull(max(seen.pause_ns), 0)) AS duration_ns,
    max(seen.expected_ns) AS expected_ns,
    max(seen.irregular) AS irregular,
    arraySort(groupUniqArray(seen.pattern)) AS patterns,
    if(irregular, duration_ns - expected_ns, NULL) AS excess_ns,
    countIf(seen.irregular) AS irregular_pivots,
    count() AS pivots
FROM iterations AS seen FINAL
GROUP BY job, iteration;
