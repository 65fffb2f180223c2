"""What is asked of the stored tables most: views, declared once.

The migrations of sinks/clickhouse make a store agree with this file, and a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.iterations import CLOCK_SET
from schemas.tables import TIME


@dataclass(frozen=True, slots=True)
class View:
    """A stored query. Its parameters, ``{name:Type}``, are all given where it is read: ``view(name = value)``."""

    name: str
    doc: str
    sql: str


_OPEN_INCIDENTS = View(
    "open_incidents",
    "The incidents that go on, each as its newest revision tells it.",
    """
SELECT
    job, id, revision, cause, level, ranks, devices.device AS devices, candidates, pattern,
    first_iteration, last_iteration, confidence, lost_ns, lost_gpu_seconds, stage, network, methods,
    explanation, opened_at, updated_at
FROM incidents FINAL
WHERE state = 'open'
""",
)
_DEVICE_RANKING = View(
    "device_ranking",
    "Devices by the evidence against them in a window of time, placed within each job (Holmes 4.4 and appendix D;"
    " diagnosis/ranking is the reference). Each active finding with culprits counts with its irregularity rate: the"
    " correlation of the series in its evidence, or the stored rate where it carries none; what is negative or not"
    " a number is 0. A device keeps the part `decay` of the rates against it, the less the more NICs are below it"
    " (epsilon = exp(1); the paper prints 1e-6); with coverage findings that name ToRs alone, or spines alone, count"
    " whole, and of the others the ToRs below a spine, and the NICs below all else,"
    " count for each that they name beside it, and a ToR keeps all of which no single NIC is in all findings of"
    " half of these iterations, and a spine if most of these are of iterations in which no ToR is in more than a third"
    " of them."
    " It gets the prior of its kind, which weighs as much as alpha"
    " irregularities. Devices that the same findings name and that are above as many NICs are one ambiguity set and"
    " share a place. A device that no finding names is not ranked, and those that are named only by findings which"
    " explain nothing come last. k is the last place to be told, 0 all.",
    f"""
WITH
    irregularities AS
    (
        SELECT
            job,
            id,
            ifNull(toString(iteration), id) AS irregularity,
            arrayDistinct(devices) AS implicated,
            if(length(evidence.operator_ns) = length(evidence.iteration_ns), length(evidence.operator_ns), 0) AS pairs,
            arrayFilter(
                pair -> isNotNull(pair.1) AND isNotNull(pair.2),
                arrayZip(arraySlice(evidence.operator_ns, 1, pairs), arraySlice(evidence.iteration_ns, 1, pairs))
            ) AS known,
            arrayMap(pair -> toFloat64(assumeNotNull(pair.1)), known) AS x,
            arrayMap(pair -> toFloat64(assumeNotNull(pair.2)), known) AS y,
            arrayAvg(x) AS mean_x,
            arrayAvg(y) AS mean_y,
            arrayMap(value -> value - mean_x, x) AS dx,
            arrayMap(value -> value - mean_y, y) AS dy,
            multiIf(
                pairs = 0, ifNotFinite(ifNull(evidence.irregularity_rate, 0), 0),
                length(known) < 3 OR arrayMin(x) = arrayMax(x) OR arrayMin(y) = arrayMax(y), 0,
                arrayDotProduct(dx, dy) / sqrt(arrayDotProduct(dx, dx) * arrayDotProduct(dy, dy))
            ) AS rate,
            toInt128(round(least(greatest(rate, 0), 1) * 1e12)) AS trillionths,
            arrayMap(nic -> nic.device, arrayFilter(device -> device.kind = 'nic', implicated)) AS nics,
            arrayFilter(device -> device.kind = 'tor', implicated) AS tors,
            arrayDistinct(arrayMap(device -> device.kind, implicated)) IN (['tor'], ['spine']) AS told_apart,
            arrayDistinct(arrayMap(tor -> tor.device, tors)) AS names_of_tors,
            arrayMax(arrayMap(tor -> ifNull(tor.downside_nics, 0), tors)) AS nics_of_a_tor
        FROM findings FINAL
        WHERE active AND notEmpty(ranks) AND found_at >= {{window_from:{TIME}}} AND found_at < {{window_to:{TIME}}}
    ),
    by_iteration AS
    (
        SELECT
            job,
            device.device AS name,
            device.kind AS device_kind,
            groupArray(id) AS ids,
            sum(trillionths) AS trillionths_here,
            sumIf(trillionths, told_apart) AS told_apart_here,
            max(ifNull(device.downside_nics, 0)) AS below_here,
            countIf(NOT told_apart) AS crossings_here,
            maxIf(nics_of_a_tor, NOT told_apart) AS nics_of_tor_here,
            groupUniqArrayArrayIf(nics, NOT told_apart) AS nics_here,
            groupUniqArrayArrayIf(names_of_tors, NOT told_apart) AS tors_here,
            countIf(NOT told_apart AND empty(nics)) = 0 AS with_nics,
            groupArrayIntersectIf(nics, NOT told_apart) AS explaining,
            arrayMax(sumMapIf(names_of_tors, arrayMap(tor -> 1, names_of_tors), NOT told_apart).2) AS most_of_a_tor,
            countIf(NOT told_apart AND empty(names_of_tors)) = 0 AND 3 * most_of_a_tor <= crossings_here AS spread
        FROM irregularities
        ARRAY JOIN implicated AS device
        GROUP BY job, name, device_kind, irregularity
    ),
    accumulated AS
    (
        SELECT
            job,
            name,
            device_kind,
            arraySort(groupArrayArray(ids)) AS implicating,
            sum(trillionths_here) / 1e12 AS rates,
            if({{coverage:Bool}} AND rates > 0, sum(told_apart_here) / sum(trillionths_here), 0) AS whole,
            max(below_here) AS below,
            max(nics_of_tor_here) AS nics_of_tor,
            arrayMax(sumMap(explaining, arrayMap(nic -> 1, explaining)).2) AS most_explained,
            multiIf(
                NOT {{coverage:Bool}}, below,
                device_kind = 'tor' AND min(with_nics) AND 2 * most_explained < countIf(crossings_here > 0), 1,
                device_kind = 'spine' AND 2 * sumIf(crossings_here, spread) > sum(crossings_here), 1,
                device_kind = 'spine' AND nics_of_tor > 0,
                greatest(1, below / nics_of_tor / length(groupUniqArrayArray(tors_here))),
                greatest(1, below / greatest(length(groupUniqArrayArray(nics_here)), 1))
            ) AS shared_by,
            log(shared_by + {{epsilon:Float64}} - 1) / shared_by AS crossing,
            if({{decay:Bool}} AND below > 0, whole + (1 - whole) * crossing, 1) AS kept,
            ['gpu', 'nic', 'link', 'nvlink', 'tor', 'spine', 'cpu'] AS kinds,
            transform(device_kind, kinds, [74, 23, 12, 12, 6, 6, 4], 7) / 126 AS share,
            if({{prior:Bool}}, {{alpha:Float64}} * share, 0) AS a,
            if({{prior:Bool}}, {{alpha:Float64}} * (1 - share), 0) AS b
        FROM by_iteration
        GROUP BY job, name, device_kind
    ),
    scored AS
    (
        SELECT
            *,
            sum(rates * kept) OVER (PARTITION BY job) + a + b AS weight,
            if(weight = 0, 0, (rates * kept + a) / weight) AS own_score
        FROM accumulated
    ),
    ambiguity_sets AS
    (
        SELECT
            job,
            groupArray((name, device_kind, own_score, length(implicating), rates, below, kept, a, b)) AS members,
            rank() OVER (PARTITION BY job ORDER BY max(rates > 0) DESC, max(own_score) DESC) AS set_place
        FROM scored
        GROUP BY job, implicating, greatest(below, 1)
    )
SELECT
    job,
    set_place AS place,
    member.1 AS device,
    member.2 AS kind,
    member.3 AS score,
    member.4 AS findings,
    member.5 AS irregularity_rate,
    member.6 AS downside_nics,
    member.7 AS decay,
    member.8 AS prior_a,
    member.9 AS prior_b,
    arraySort(members.1) AS ambiguity_set
FROM ambiguity_sets
ARRAY JOIN members AS member
WHERE {{k:UInt32}} = 0 OR place <= {{k:UInt32}}
""",
)
_TIME_LOST_BY_DEVICE = View(
    "time_lost_by_device",
    "What the incidents that name a device have cost. An incident counts in full for each of its devices, so the"
    " rows of a job do not add up: its own sum is in time_lost_by_job.",
    """
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
GROUP BY job, device, kind
""",
)
_TIME_LOST_BY_JOB = View(
    "time_lost_by_job",
    "What its incidents have cost each job.",
    """
SELECT
    job,
    count() AS incidents,
    countIf(state = 'open') AS open_incidents,
    sum(incident.lost_ns) AS lost_ns,
    sum(incident.lost_gpu_seconds) AS lost_gpu_seconds,
    min(incident.opened_at) AS first_opened_at,
    max(incident.updated_at) AS last_updated_at
FROM incidents AS incident FINAL
GROUP BY job
""",
)
_ITERATION_HISTORY = View(
    "iteration_history",
    "How long each iteration took, what was expected, and whether it was irregular (null: none could say). It lasted"
    " as long as it is judged by (streams/monitor.py): the median of what its pivots say, the lower of two in the"
    " middle, without what all of them paused after it beyond the usual; not known where one of them says more than"
    " three times that, as its clock was set. excess_ns is what an irregular iteration lasted beyond what was"
    " expected.",
    f"""
WITH quantileExactLow(0.5)(seen.duration_ns) AS median_ns
SELECT
    job,
    iteration,
    min(seen.start_at) AS start_at,
    if(max(seen.duration_ns) > {CLOCK_SET} * median_ns, NULL, median_ns - ifNull(max(seen.pause_ns), 0)) AS duration_ns,
    max(seen.expected_ns) AS expected_ns,
    max(seen.irregular) AS irregular,
    arraySort(groupUniqArray(seen.pattern)) AS patterns,
    if(irregular, duration_ns - expected_ns, NULL) AS excess_ns,
    countIf(seen.irregular) AS irregular_pivots,
    count() AS pivots
FROM iterations AS seen FINAL
GROUP BY job, iteration
""",
)

_DATA_PARALLEL_TIME = View(
    "data_parallel_time",
    "How long data parallelism communicated on each rank, iteration by iteration (Pulse 5.2): at least one of its"
    " operators ran. Traffic carries no iterations: one ends with a pause of half the length that pauses usually have,"
    " by the time that is spent in them. They are numbered from the first one stored; the first and the last may be"
    " cut.",
    """
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
GROUP BY job, rank, ordinal
""",
)
_MICROBATCH_TIME = View(
    "microbatch_time",
    "How long a microbatch takes on each rank of a pipeline, minute by minute (Pulse 5.2): the median time between its"
    " sends to the same stage. While the pipeline is full, a stage sends one microbatch forward and one backward in"
    " turn.",
    """
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
GROUP BY job, rank, minute
""",
)

VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        _OPEN_INCIDENTS,
        _DEVICE_RANKING,
        _TIME_LOST_BY_DEVICE,
        _TIME_LOST_BY_JOB,
        _ITERATION_HISTORY,
        _DATA_PARALLEL_TIME,
        _MICROBATCH_TIME,
    )
}
