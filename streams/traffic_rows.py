"""What comparing ranks found, as rows of analysis.findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diagnosis.collective.comparing import Compared
from diagnosis.collective.verdict import Verdict
from diagnosis.incidents.evidence import hangs
from diagnosis.irregularity.run import Run
from diagnosis.job import Job
from diagnosis.topology import Device
from streams.findings import device_rows, shared_evidence
from streams.identity import identity

METHOD = "traffic"

_OF_GPUS = {"compute_slow", "hang_not_entered"}
_OF_NICS = {"communication_slow", "hang_hardware"}


def found(
    job: Job, iteration: int, verdicts: Sequence[Verdict], columns: Mapping[str, Any], what: str = "slow"
) -> list[dict[str, Any]]:
    """A row a verdict; one row without ranks where nobody could be named. ``columns`` are the iteration's own.

    Whose fault it is the comparison tells, not how much of it: what was lost is shared equally, by those who only have
    more to do where nobody is at fault. Of what hangs nothing is to be shared: each verdict stands for itself.
    """
    sharing = [verdict for verdict in verdicts if verdict.cause != "imbalance"] or verdicts
    return [
        {
            "id": identity(job.job, METHOD, what, iteration, ordinal),
            "method": METHOD,
            "active": True,
            "iteration": iteration,
            "waits": [],
            **columns,
            **_named(job, verdict, _share(verdict, sharing)),
        }
        for ordinal, verdict in enumerate(verdicts or (None,))
    ]


def _share(verdict: Verdict | None, sharing: Sequence[Verdict]) -> float:
    if verdict is not None and hangs(verdict.cause):
        return 1.0
    return 1.0 / len(sharing) if verdict in sharing else 0.0


def columns_of(compared: Compared, found_ns: int) -> dict[str, Any]:
    """What a slow iteration's rows have in common."""
    judgement, number = compared.judgement, compared.iteration.number
    run = judgement.run
    columns: dict[str, Any] = {
        "iteration_ns": compared.iteration.duration_ns,
        "expected_ns": judgement.expected_ns,
        "scatter_ns": judgement.scatter_ns,
        "first_iteration": number,
        "last_iteration": number,
        "found_ns": found_ns,
    }
    return columns if run is None else columns | of_run(run)


def of_run(run: Run) -> dict[str, Any]:
    """What a run of slow iterations has come to."""
    return {
        "pattern": run.pattern,
        "period": run.comes_every,
        "first_iteration": run.first,
        "last_iteration": run.last,
        "step_from": run.step_from,
        "run_excess_ns": run.excess_ns,
        "step_excess_ns": run.step_excess_ns,
    }


def _named(job: Job, verdict: Verdict | None, share: float) -> dict[str, Any]:
    if verdict is None:
        return {"ranks": [], "candidates": [], "devices": []}
    operator = {"communicator": verdict.communicator} if verdict.communicator is not None else None
    devices = _devices(job, verdict)
    return {
        "cause": verdict.cause,
        "level": verdict.level,
        "ranks": list(verdict.ranks),
        "candidates": [list(ranks) for ranks in verdict.candidates],
        "devices": device_rows(devices),
        "root_operator": operator,
        "evidence": shared_evidence(share, verdict.coverage, len(devices)),
        "rule": verdict.method,
        "measures": [{"name": name, "value": value} for name, value in sorted(verdict.evidence.items())],
        "coverage": verdict.coverage,
    }


def _devices(job: Job, verdict: Verdict) -> Sequence[Device]:
    if verdict.cause in _OF_GPUS:
        return [job.gpu(rank) for rank in verdict.ranks]
    if verdict.cause in _OF_NICS:
        members = job.members.get(verdict.communicator or "", ())
        # what NICs send goes from host to host, also where nothing tells with whom the culprits communicated
        known = members and not job.on_one_host(members)
        return job.carriers(members if known else job.ranks, verdict.ranks)
    if verdict.cause == "host_slow":
        return list(dict.fromkeys(job.cpu(rank) for rank in verdict.ranks))
    return []
