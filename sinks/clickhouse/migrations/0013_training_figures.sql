-- What follows once it is known what communicators serve: how long gradients are synchronised, and microbatches take.

CREATE OR REPLACE VIEW data_parallel_time AS
WITH
    ran AS
    (
        SELECT
            job,
            rank,
            toUnixTimestamp64Nano(assumeNotNull(start_at)) AS start_ns,
            toUnixTimestamp64Nano(assumeNotNull(end_at)) AS end_ns,
            max(end_ns) OVER (
                PARTITION BY job, rank ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS before_ns
        FROM traffic_metrics FINAL
        WHERE parallelism = 'dp' AND start_at IS NOT NULL AND end_at IS NOT NULL
    ),
    paused AS
    (
        SELECT *, if(before_ns = 0, 0, greatest(start_ns - before_ns, 0)) AS pause_ns FROM ran
    ),
    measured AS
    (
        SELECT
            *,
            quantileExactWeighted(0.5)(pause_ns, toUInt64(pause_ns)) OVER (PARTITION BY job, rank) AS usual_ns
        FROM paused
    ),
    numbered AS
    (
        SELECT
            *,
            sum(pause_ns > usual_ns / 2) OVER (
                PARTITION BY job, rank ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS ordinal
        FROM measured
    )
SELECT
    job,
    rank,
    toInt64(ordinal) AS iteration,
    fromUnixTimestamp64Nano(min(start_ns), 'UTC') AS start_at,
    fromUnixTimestamp64Nano(max(end_ns), 'UTC') AS end_at,
    sum(greatest(end_ns - greatest(start_ns, before_ns), 0)) AS communicating_ns,
    count() AS operators
FROM numbered
GROUP BY job, rank, ordinal;

CREATE OR REPLACE VIEW microbatch_time AS
WITH
    sent AS
    (
        SELECT
            job,
            rank,
            communicator,
            peer,
            seq,
            min(toUnixTimestamp64Nano(assumeNotNull(start_at))) AS start_ns
        FROM traffic_metrics FINAL
        ARRAY JOIN peers AS peer
        WHERE parallelism = 'pp' AND start_at IS NOT NULL
        GROUP BY job, rank, communicator, peer, seq
    ),
    followed AS
    (
        SELECT
            *,
            lagInFrame(start_ns, 1, 0) OVER (
                PARTITION BY job, rank, communicator, peer ORDER BY start_ns ROWS BETWEEN 1 PRECEDING AND CURRENT ROW
            ) AS before_ns
        FROM sent
    )
SELECT
    job,
    rank,
    toStartOfMinute(fromUnixTimestamp64Nano(start_ns, 'UTC')) AS minute,
    quantileExactLow(0.5)(start_ns - before_ns) AS microbatch_ns,
    count() AS sends
FROM followed
WHERE before_ns > 0
GROUP BY job, rank, minute;
