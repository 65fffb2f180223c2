"""What comparing like ranks found in a job's first iterations, as rows of analysis.findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnosis.irregularity.beginning import Compared, Standing
from diagnosis.irregularity.like_ranks import Slow
from diagnosis.irregularity.run import DEGRADATION
from diagnosis.job import Job
from streams.doubling import is_doubled
from streams.findings import cleared, device_rows, shared_evidence
from streams.identity import identity

METHOD = "like_ranks"


def found(job: Job, compared: Compared, now_ns: int) -> list[dict[str, Any]]:
    """A row for each that has been slow for long enough, now and again, and one for each that no longer is."""
    rows = [
        {
            "id": identity(job.job, METHOD, f"slow {ordinal}", compared.iteration),
            "method": METHOD,
            "active": True,
            "iteration": compared.iteration,
            "iteration_ns": compared.duration_ns,
            "expected_ns": max(compared.duration_ns - slow.excess_ns, 0),
            "excess_ns": slow.excess_ns,
            "coverage": compared.coverage,
            "waits": [],
            "found_ns": now_ns,
            **_run(standing),
            **_named(job, slow, compared),
        }
        for ordinal, (slow, standing) in enumerate(compared.slow)
        if _is_due(standing)
    ]
    return rows + [over(job.job, compared.iteration, standing, now_ns) for standing in compared.over]


def _is_due(standing: Standing) -> bool:
    """In its first two iterations, as an incident opens once two agree, and in the 4th, 8th, 16th and so on since."""
    return is_doubled(standing.count - standing.needed + 1)


def over(job: str, iteration: int, standing: Standing, now_ns: int) -> dict[str, Any]:
    """The row that ends what was said of some ranks."""
    ranks = list(standing.ranks)
    of_ranks = {"iteration": iteration, "found_ns": now_ns, "cause": standing.cause, "ranks": ranks}
    return cleared(job, METHOD, f"over {standing.communicator or ''} {ranks}", of_ranks | _run(standing))


def ended(job: str, iteration: int, now_ns: int) -> dict[str, Any]:
    """The row that says that the job has ended."""
    return cleared(job, METHOD, "end", {"iteration": iteration, "found_ns": now_ns, "last": True})


def _run(standing: Standing) -> dict[str, Any]:
    return {
        "pattern": DEGRADATION,
        "first_iteration": standing.first,
        "last_iteration": standing.last,
        "run_excess_ns": standing.excess_ns,
    }


def _named(job: Job, slow: Slow, compared: Compared) -> Mapping[str, Any]:
    stage = job.layout.pipeline_stage(slow.ranks[0]) if job.layout and len(slow.ranks) == 1 else None
    return {
        "cause": slow.cause,
        "level": slow.level,
        "ranks": list(slow.ranks),
        "candidates": [list(ranks) for ranks in slow.candidates],
        "devices": device_rows(slow.devices),
        "root_operator": None if slow.communicator is None else {"communicator": slow.communicator},
        "stage": {"pipeline_stage": stage},
        "evidence": shared_evidence(slow.excess_ns / compared.cost_ns, compared.coverage, len(slow.devices)),
    }
