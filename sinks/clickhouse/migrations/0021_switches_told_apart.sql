-- Findings that name switches of one kind alone count whole against these: a search has told them from what is below.

CREATE OR REPLACE VIEW device_ranking AS
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
        WHERE active AND notEmpty(ranks) AND found_at >= {window_from:DateTime64(9, 'UTC')} AND found_at < {window_to:DateTime64(9, 'UTC')}
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
            if({coverage:Bool} AND rates > 0, sum(told_apart_here) / sum(trillionths_here), 0) AS whole,
            max(below_here) AS below,
            max(nics_of_tor_here) AS nics_of_tor,
            arrayMax(sumMap(explaining, arrayMap(nic -> 1, explaining)).2) AS most_explained,
            multiIf(
                NOT {coverage:Bool}, below,
                device_kind = 'tor' AND min(with_nics) AND 2 * most_explained < countIf(crossings_here > 0), 1,
                device_kind = 'spine' AND 2 * sumIf(crossings_here, spread) > sum(crossings_here), 1,
                device_kind = 'spine' AND nics_of_tor > 0,
                greatest(1, below / nics_of_tor / length(groupUniqArrayArray(tors_here))),
                greatest(1, below / greatest(length(groupUniqArrayArray(nics_here)), 1))
            ) AS shared_by,
            log(shared_by + {epsilon:Float64} - 1) / shared_by AS crossing,
            if({decay:Bool} AND below > 0, whole + (1 - whole) * crossing, 1) AS kept,
            ['gpu', 'nic', 'link', 'nvlink', 'tor', 'spine', 'cpu'] AS kinds,
            transform(device_kind, kinds, [74, 23, 12, 12, 6, 6, 4], 7) / 126 AS share,
            if({prior:Bool}, {alpha:Float64} * share, 0) AS a,
            if({prior:Bool}, {alpha:Float64} * (1 - share), 0) AS b
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
WHERE {k:UInt32} = 0 OR place <= {k:UInt32};
