"""Whether all machines compute for longer than they did (Pulse, section 9: it takes a past to tell).

Where every GPU is as slow as the others, no rank starts late beside any other, and no operator takes longer. What shows
it is how long each machine computes of itself, against what it usually does: one that is slow alone keeps others
waiting, not computing, and at most the other stages of its pipeline seem to. A step beyond the paper, which compares
ranks with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from diagnosis.collective.chronological import computing
from diagnosis.collective.grid import Grid
from diagnosis.collective.own_lateness import computed_of_itself
from diagnosis.collective.participation import Participation
from diagnosis.collective.pipelines import Pipelines, Stages, common_moment
from diagnosis.collective.verdict import Verdict
from diagnosis.job import Job

_LONGER = 1.1
"""From here on a host computes longer than usual: what all ranks vary by together is less."""

_MOST = 2 / 3
"""More hosts than this part have to: a stage that is paced by the next one does not show it, and of two pipelines the
stages of the one with a slow machine may all seem to."""


def computed_by_host(
    table: Participation, own: Sequence[Grid], job: Job, pipelines: Sequence[Stages]
) -> dict[tuple[str], float]:
    """Nanoseconds that each host computed in an iteration: what its ranks did, or its stages of ``pipelines``, which
    wait for each other in between.

    ``own``: the grids of the table. A host of which nothing was seen is left out, and nothing is said of a pipeline
    that has none beside it: there a slow stage may make all of them seem to compute longer.
    """
    each: dict[tuple[str], list[float]] = {}
    if pipelines and len({job.clock(stages[0]) for stages in pipelines}) < 2:
        return {}
    if pipelines:
        sends = Pipelines.of(table, job, pipelines, common_moment(own, table, job))
        machines = zip(sends.host, computed_of_itself(sends).tolist(), strict=True)
    else:
        before = computing(table, own, job)
        ranks = np.unique(table.rank[~np.isnan(before)]).tolist()
        machines = zip(map(job.clock, ranks), (float(np.nansum(before[table.rank == r])) for r in ranks), strict=True)
    for host, ns in machines:
        if ns > 0:
            each.setdefault((host,), []).append(ns)
    return {host: float(np.median(values)) for host, values in each.items()}


def all_computing_longer(
    computed: Mapping[tuple[str], float], usual: Mapping[tuple[str], float], job: Job, iterations: int = 1
) -> list[Verdict]:
    """The answer that all ranks compute too long, if most hosts do; of as many ``iterations``.

    Nothing where a host of the job was not seen, now or before.
    """
    hosts = {(job.clock(rank),) for rank in job.ranks}
    if len(hosts) < 2 or not hosts <= computed.keys() & usual.keys():
        return []
    now, before = (np.array([of[host] for host in sorted(hosts)]) for of in (computed, usual))
    longer = float(np.mean(now / before >= _LONGER))
    if not longer > _MOST:
        return []
    evidence = {
        "ratio": float(np.median(now / before)),
        "hosts": longer,
        "lost_ns": float(np.median(now - before)) / iterations,
    }
    return [Verdict("compute_slow", "group", tuple(sorted(job.ranks)), "computing_everywhere", evidence=evidence)]
