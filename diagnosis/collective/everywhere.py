"""Whether all machines compute for longer than they did (Pulse, section 9: it takes a past to tell).

Where every GPU is as slow as the others, no rank starts late beside any other, and no operator takes longer. What shows
it is how long each machine computes of itself, for the same work, against what it usually does: one that is slow alone
keeps others waiting, not computing, and at most the other stages of its pipeline seem to. A step beyond the paper,
which compares ranks with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from diagnosis.collective.chronological import computing
from diagnosis.collective.grid import Grid, Work
from diagnosis.collective.own_lateness import computed_of_itself
from diagnosis.collective.participation import Participation
from diagnosis.collective.pipelines import Pipelines, Stages, common_moment
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
    hosts: dict[str, list[float]] = {}
    for host, ns in each:
        hosts.setdefault(host, []).append(ns)
    ranks = _ranks(job)
    rows = {host: np.isin(table.rank, ranks[host]) for host in hosts}
    sized = np.where(table.custom & (not pipelines), 0, table.expected)  # exchanges of experts are never alike
    return {
        (host, int(np.count_nonzero(rows[host])), int(sized[rows[host]].sum())): float(np.median(values))
        for host, values in hosts.items()
    }


def all_computing_longer(
    computed: Mapping[Work, float],
    usual: Mapping[Work, float],
    job: Job,
    lasted_ns: float,
    expected_ns: float,
    iterations: int = 1,
) -> list[Verdict]:
    """The answer that all ranks compute too long, if most hosts do for the same work, and it is why an iteration
    ``lasted_ns`` instead of ``expected_ns``.

    ``computed`` is of as many ``iterations``. A host that was not seen, now or before, does not count as slow.
    """
    hosts = {job.clock(rank) for rank in job.ranks}
    grown = np.array([(computed[work] - usual[work]) / iterations for work in computed.keys() & usual.keys()])
    longer = float(np.count_nonzero(grown >= _LONGER * expected_ns)) / max(len(hosts), 1)
    if (
        len(hosts) < _LEAST_HOSTS
        or not longer > _MOST
        or float(np.median(grown)) < _EXPLAINED * (lasted_ns - expected_ns)
    ):
        return []
    evidence = {"hosts": longer, "lost_ns": float(np.median(grown)), "expected_ns": expected_ns}
    return [Verdict("compute_slow", "group", tuple(sorted(job.ranks)), "computing_everywhere", evidence=evidence)]


def _of_ranks(table: Participation, own: Sequence[Grid], job: Job) -> Iterable[tuple[str, float]]:
    before = computing(table, own, job)
    for rank in sorted(set(table.rank[~np.isnan(before)].tolist()) & set(job.ranks)):
        yield job.clock(rank), float(np.nansum(before[table.rank == rank]))


def _of_stages(
    table: Participation, own: Sequence[Grid], job: Job, pipelines: Sequence[Stages]
) -> Iterable[tuple[str, float]]:
    """What passes between sends, less what these take themselves."""
    sends = Pipelines.of(table, job, pipelines, common_moment(own, table, job))
    lasting = np.where(table.direct & (table.end_ns > table.start_ns), table.duration_ns, 0)
    ranks = _ranks(job)
    for host, ns in zip(sends.host, computed_of_itself(sends).tolist(), strict=True):
        yield host, ns - float(np.median([lasting[table.rank == rank].sum() for rank in ranks[host]]))


def _ranks(job: Job) -> dict[str, list[int]]:
    """The ranks of each host; of a rank whose host is not known, it alone."""
    found: dict[str, list[int]] = {}
    for rank in job.ranks:
        found.setdefault(job.clock(rank), []).append(rank)
    return found
