"""What comparing like ranks found in a job's first iterations, as rows of analysis.findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnosis.incidents.joining import DEGRADATION
from diagnosis.irregularity.beginning import Compared, Standing
from diagnosis.irregularity.like_ranks import Slow
from diagnosis.job import Job
from streams.identity import identity

METHOD = "like_ranks"


def found(job: Job, compared: Compared, in_a_row: int, now_ns: int) -> list[dict[str, Any]]:
    """A row for each that has been slow in ``in_a_row`` iterations, or in 4, 8, 16 and so on beyond these, and one for
    each that no longer is.
    """
    rows = []
    most = sum(slow.excess_ns for slow, _ in compared.slow)
    for ordinal, (slow, standing) in enumerate(compared.slow):
        if standing.count == in_a_row or standing.count & (standing.count - 1) == 0 or standing.count == in_a_row + 1:
            row = _row(job.job, f"slow {ordinal}", compared.iteration, now_ns)
            named = _named(job, slow, slow.excess_ns / most, compared.coverage)
            measured = {
                "iteration_ns": compared.duration_ns,
                "expected_ns": max(compared.duration_ns - slow.excess_ns, 0),
                "excess_ns": slow.excess_ns,
                "coverage": compared.coverage,
            }
            rows.append({**row, "active": True, **named, **measured, **_run(standing)})
    rows += [over(job.job, compared.iteration, standing, now_ns) for standing in compared.over]
    return rows


def over(job: str, iteration: int, standing: Standing, now_ns: int) -> dict[str, Any]:
    """The row that ends what was said of somebody."""
    return {**_row(job, f"over {standing.first}", iteration, now_ns), **_run(standing)}


def ended(job: str, iteration: int, now_ns: int) -> dict[str, Any]:
    """The row that says that the job has ended."""
    return {**_row(job, "end", iteration, now_ns), "last": True}


def _row(job: str, what: str, iteration: int, now_ns: int) -> dict[str, Any]:
    return {
        "id": identity(job, METHOD, what, iteration),
        "method": METHOD,
        "active": False,
        "iteration": iteration,
        "ranks": [],
        "candidates": [],
        "devices": [],
        "waits": [],
        "found_ns": now_ns,
    }


def _run(standing: Standing) -> dict[str, Any]:
    return {
        "pattern": DEGRADATION,
        "first_iteration": standing.first,
        "last_iteration": standing.last,
        "run_excess_ns": standing.excess_ns,
    }


def _named(job: Job, slow: Slow, share: float, coverage: float) -> Mapping[str, Any]:
    stage = job.layout.pipeline_stage(slow.ranks[0]) if job.layout and len(slow.ranks) == 1 else None
    # no series of durations says how much of the iteration is due to a device: one of these is at fault, as far as seen
    rate = share * coverage / len(slow.devices) if slow.devices else None
    return {
        "cause": slow.cause,
        "level": slow.level,
        "ranks": list(slow.ranks),
        "candidates": [list(ranks) for ranks in slow.candidates],
        "devices": [{"device": d.device, "kind": d.kind, "downside_nics": d.downside_nics} for d in slow.devices],
        "root_operator": None if slow.communicator is None else {"communicator": slow.communicator},
        "stage": {"pipeline_stage": stage},
        "evidence": {"share": share, "irregularity_rate": rate},
    }
