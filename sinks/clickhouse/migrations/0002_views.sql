-- What people ask most; docs/sql.md shows how.

CREATE OR REPLACE VIEW open_incidents AS
SELECT
    job, id, revision, cause, level, ranks, devices.device AS devices, candidates, pattern,
    first_iteration, last_iteration, confidence, lost_ns, lost_gpu_seconds, stage, network, methods,
    explanation, opened_at, updated_at
FROM incidents FINAL
WHERE state = 'open';

CREATE OR REPLACE VIEW device_ranking AS
SELECT
    job,
    device.device AS device,
    device.kind AS kind,
    count() AS findings,
    round(sum(rate), 6) AS irregularity_rate,
    rank() OVER (PARTITION BY job ORDER BY irregularity_rate DESC, findings DESC) AS place
FROM
(
    SELECT
        job,
        arrayJoin(devices) AS device,
        greatest(ifNotFinite(ifNull(evidence.irregularity_rate, 0), 0), 0) AS rate
    FROM findings FINAL
    WHERE active AND notEmpty(ranks) AND found_at >= {window_from:DateTime64(9, 'UTC')} AND found_at < {window_to:DateTime64(9, 'UTC')}
)
GROUP BY job, device, kind;

CREATE OR REPLACE VIEW time_lost_by_device AS
SELECT
    job,
    device.device AS device,
    device.kind AS kind,
    count() AS incidents,
    countIf(state = 'open') AS open_incidents,
    sum(incident.lost_ns) AS lost_ns,
    sum(incident.lost_gpu_seconds) AS lost_gpu_seconds,
    min(incident.opened_at) AS first_opened_at,
    max(incident.updated_at) AS last_updated_at
FROM incidents AS incident FINAL
ARRAY JOIN devices AS device
GROUP BY job, device, kind;

CREATE OR REPLACE VIEW time_lost_by_job AS
SELECT
    job,
    count() AS incidents,
    countIf(state = 'open') AS open_incidents,
    sum(incident.lost_ns) AS lost_ns,
    sum(incident.lost_gpu_seconds) AS lost_gpu_seconds,
    min(incident.opened_at) AS first_opened_at,
    max(incident.updated_at) AS last_updated_at
FROM incidents AS incident FINAL
GROUP BY job;

CREATE OR REPLACE VIEW iteration_history AS
SELECT
    job,
    iteration,
    min(seen.start_at) AS start_at,
    max(seen.duration_ns) AS duration_ns,
    max(seen.expected_ns) AS expected_ns,
    max(seen.irregular) AS irregular,
    arraySort(groupUniqArray(seen.pattern)) AS patterns,
    maxIf(seen.duration_ns - seen.expected_ns, seen.irregular) AS excess_ns,
    countIf(seen.irregular) AS irregular_pivots,
    count() AS pivots
FROM iterations AS seen FINAL
GROUP BY job, iteration;
