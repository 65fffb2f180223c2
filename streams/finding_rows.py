"""What a search found, as rows of analysis.findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diagnosis.causes import GOES_ON_LATE
from diagnosis.job import Job
from diagnosis.operator_graph.culprits import Culprit
from diagnosis.operator_graph.locate import Irregularity, Location
from streams.findings import device_rows
from streams.identity import identity

METHOD = "operator_graph"


def located(
    job: Job, irregularity: Irregularity, location: Location, columns: Mapping[str, Any], fetched_bytes: int
) -> list[dict[str, Any]]:
    """A row a culprit; one row without ranks where nobody could be named. ``columns`` are the iteration's own."""
    return [
        {
            **_common(job, irregularity, ordinal),
            **columns,
            **_named(job, culprit),
            "evidence": _evidence(culprit, location, columns, fetched_bytes),
            "waits": _waits(location),
            "coverage": location.coverage,
            "bounded": location.bounded,
            "last_record_ns": location.last_record_ns,
        }
        for ordinal, culprit in enumerate(location.culprits or (None,))
    ]


def _common(job: Job, irregularity: Irregularity, ordinal: int) -> dict[str, Any]:
    pivot = irregularity.pivots[0]
    return {
        "id": identity(job.job, METHOD, irregularity.iteration, pivot, ordinal),
        "method": METHOD,
        "active": True,
        "iteration": irregularity.iteration,
        "pivot": pivot,
    }


def _named(job: Job, culprit: Culprit | None) -> dict[str, Any]:
    if culprit is None:
        return {"ranks": [], "candidates": [], "devices": []}
    operator = culprit.operator
    stage = job.layout.pipeline_stage(culprit.ranks[0]) if job.layout and len(culprit.ranks) == 1 else None
    return {
        "pivot": culprit.path[0],
        "cause": culprit.cause,
        "level": culprit.level,
        "ranks": list(culprit.ranks),
        "candidates": [list(ranks) for ranks in culprit.candidates],
        "devices": device_rows(culprit.devices),
        "root_operator": {
            "rank": operator.rank,
            "communicator": operator.communicator,
            "position": operator.position,
            "op": operator.op,
        },
        "stage": {
            "phase": operator.phase,
            "pipeline_stage": stage,
            "microbatch": operator.microbatch,
            "op": operator.op,
        },
        "excess_ns": culprit.excess_ns,
        "rule": GOES_ON_LATE if culprit.goes_on_late and culprit.cause == "compute_slow" else None,
    }


def _evidence(
    culprit: Culprit | None, location: Location, columns: Mapping[str, Any], fetched_bytes: int
) -> dict[str, Any]:
    told = {
        "delta": columns["iteration_ns"] / columns["expected_ns"],
        "clock_error_ns": location.clock_error_ns,
        "fetched_bytes": fetched_bytes,
        "path": list(location.visited),
    }
    if culprit is None:
        return told
    return told | {
        "irregularity_rate": culprit.irregularity_rate,
        "share": culprit.share,
        "operator_ns": list(culprit.operator_ns),
        "iteration_ns": list(culprit.iteration_ns),
        "path": list(culprit.path),
    }


def _waits(location: Location) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "waiting_rank": wait.waiting_rank,
            "awaited_rank": wait.awaited_rank,
            "communicator": wait.communicator,
            "op": wait.op,
        }
        for wait in location.waits
    ]
