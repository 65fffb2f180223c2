"""Findings made by hand."""

from typing import Any

from diagnosis.incidents.evidence import Evidence, Stage
from diagnosis.irregularity.run import DEGRADATION, SPIKE
from diagnosis.topology import Device

SECOND = 1_000_000_000


def found(iteration: int, *ranks: int, **fields: Any) -> Evidence:
    """A finding on one spike that explains all of it."""
    cause = fields.get("cause", "compute_slow")
    kind = "nic" if cause == "communication_slow" else "gpu"
    alone = len(ranks) == 1
    plain: dict[str, Any] = {
        "id": f"{iteration}/{ranks}",
        "method": "operator_graph",
        "active": True,
        "iteration": iteration,
        "pattern": SPIKE,
        "first_iteration": iteration,
        "last_iteration": iteration,
        "cause": cause if ranks else None,
        "level": ("device" if alone else "group") if ranks else None,
        "ranks": ranks,
        "candidates": () if alone or not ranks else tuple((rank,) for rank in ranks),
        "devices": tuple(Device(f"{kind}:h{rank}/0", kind, 0) for rank in ranks),
        "stage": Stage("forward", None, 1, "all_reduce"),
        "run_excess_ns": 2 * SECOND,
        "share": 1.0,
        "coverage": 1.0,
        "found_ns": iteration * SECOND,
    }
    return Evidence(**{**plain, **fields})


def in_run(iteration: int, first: int, *ranks: int, pattern: str = DEGRADATION, **fields: Any) -> Evidence:
    """A finding on an iteration of a run that began with ``first``."""
    run = {"first_iteration": first, "pattern": pattern, "run_excess_ns": 2 * SECOND * (iteration - first + 1)}
    return found(iteration, *ranks, **{**run, **fields})


def on_step(iteration: int, first: int, step: int, *ranks: int, **fields: Any) -> Evidence:
    """The same where the run loses 6 s an iteration, rather than 2, from ``step`` on."""
    since = 6 * SECOND * (iteration - step + 1)
    excess = 2 * SECOND * (step - first) + since
    told = {"last_iteration": iteration, "step_from": step, "step_excess_ns": since, "run_excess_ns": excess}
    return in_run(iteration, first, *ranks, **{**told, **fields})


def run_over(iteration: int, first: int, last: int, pattern: str = DEGRADATION) -> Evidence:
    """What a method says of a run that is over."""
    excess = 2 * SECOND * (last - first + 1)
    run = {"first_iteration": first, "last_iteration": last, "pattern": pattern, "run_excess_ns": excess}
    return found(iteration, **run, id=f"{iteration}/run", active=False)


def all_over(iteration: int) -> Evidence:
    """What a method says when nothing goes on any more."""
    none = {"first_iteration": None, "last_iteration": None, "pattern": None, "run_excess_ns": 0}
    return found(iteration, **none, id=f"{iteration}/quiet", active=False)
