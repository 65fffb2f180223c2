"""Whether all machines compute for longer than they did (Pulse, section 9: it takes a past to tell).

Where every GPU is as slow as the others, no rank starts late beside any other, and no operator takes longer. What shows
it is how long each machine computes of itself, for the same work, against what it usually does: one that is slow alone
keeps others waiting, not computing, and at most the other stages of its pipeline seem to. A step beyond the paper,
which compares ranks with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Floats
from diagnosis.collective.chronological import computing
from diagnosis.collective.grid import Grid, Work
from diagnosis.collective.moments import common_moment
from diagnosis.collective.own_lateness import computed_of_itself
from diagnosis.collective.participation import Participation
from diagnosis.collective.pipelines import Pipelines
from diagnosis.collective.stages import Stages
from diagnosis.collective.verdict import Verdict
from diagnosis.job import Job

_LONGER = 0.1
"""Part of an iteration by which a host computes longer, at least: what all ranks vary by together is less."""

_MOST = 2 / 3
"""More hosts than this part have to: a stage that is paced by the next one does not show it, and of two pipelines the
stages of the one with a slow machine may all seem to."""

_LEAST_HOSTS = 3
"""Of two, the one that waits for the other to receive would seem slow as well."""

_EXPLAINED = 0.5
"""Part of what an iteration has lost that they account for at least."""


def computed_by_host(
    table: Participation, own: Sequence[Grid], job: Job, pipelines: Sequence[Stages]
) -> dict[Work, float]:
    """Nanoseconds that each host computed, up to what clocks of stages are apart: what its ranks did, or its stages of
    ``pipelines``, which wait for each other in between.

    ``own``: the grids of the table. Nothing is said of a pipeline that has none beside it: there a slow stage may make
    all of them seem to compute longer.
    """
    if pipelines and len({job.clock(stages[0]) for stages in pipelines}) < 2:
        return {}
    each = _of_stages(table, own, job, pipelines) if pipelines else _of_ranks(table, own, job)
    sized = np.where(table.custom & (not pipelines), 0, table.expected)  # exchanges of experts are never alike
    rows, size = _by_rank(table, job, np.ones(len(table))), _by_rank(table, job, sized)
    return {
        (host, int(rows[ranks].sum()), int(size[ranks].sum())): float(np.median(each[host]))
        for host, ranks in ((host, list(job.ranks_of_clock[host])) for host in each)
    }


def all_computing_longer(
    computed: Mapping[Work, float],
    usual: Mapping[Work, float],
    job: Job,
    lasted_ns: float,
    expected_ns: float,
    iterations: int = 1,
    communicated_ns: float = 0.0,
) -> list[Verdict]:
    """The answer that all ranks compute too long, if most hosts do for the same work, and it is why an iteration
    ``lasted_ns`` instead of ``expected_ns``.

    ``computed`` is of as many ``iterations``, and so is ``communicated_ns``, what communication has lost: where that is
    why, ranks that wait for others of their host seem to compute. A host that was not seen, now or before, does not
    count as slow.
    """
    hosts = len(job.ranks_of_clock)
    grown = np.array([(computed[work] - usual[work]) / iterations for work in computed.keys() & usual.keys()])
    longer = float(np.count_nonzero(grown >= _LONGER * expected_ns)) / max(hosts, 1)
    least_ns = _EXPLAINED * (lasted_ns - expected_ns)
    if hosts < _LEAST_HOSTS or longer <= _MOST or np.median(grown) < least_ns:
        return []
    if communicated_ns / iterations >= least_ns:
        return []
    evidence = {"hosts": longer, "lost_ns": float(np.median(grown)), "expected_ns": expected_ns}
    return [Verdict("compute_slow", "group", job.ranks, "computing_everywhere", evidence=evidence)]


def _of_ranks(table: Participation, own: Sequence[Grid], job: Job) -> dict[str, list[float]]:
    """What each rank computed before its operators, by host; of those of which it was seen."""
    before = computing(table, own, job)
    known, total = (_by_rank(table, job, values) for values in (~np.isnan(before), np.nan_to_num(before)))
    each: dict[str, list[float]] = {}
    for rank in job.ranks:
        if known[rank]:
            each.setdefault(job.clock(rank), []).append(float(total[rank]))
    return each


def _of_stages(
    table: Participation, own: Sequence[Grid], job: Job, pipelines: Sequence[Stages]
) -> dict[str, list[float]]:
    """What passes between the sends of each stage, less what these take themselves, by host."""
    sends = Pipelines.of(table, job, pipelines, common_moment(own, table, job))
    seen = table.direct & (table.end_ns > table.start_ns)
    lasting = _by_rank(table, job, np.where(seen, table.duration_ns, 0))
    each: dict[str, list[float]] = {}
    for host, ns in zip(sends.host, computed_of_itself(sends).tolist(), strict=True):
        if host in job.ranks_of_clock:  # a layout may tell of more than the job does
            each.setdefault(host, []).append(ns - float(np.median(lasting[list(job.ranks_of_clock[host])])))
    return each


def _by_rank(table: Participation, job: Job, values: npt.NDArray[Any]) -> Floats:
    """Sums of values of the table's rows; shape (ranks,), by their numbers."""
    return np.asarray(np.bincount(table.rank, weights=values, minlength=max(job.ranks, default=-1) + 1))
