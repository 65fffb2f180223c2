"""What the diagnosis makes of a run's records, beside what its ranks logged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from benchmarks.real_traffic.plan import STRETCHED
from benchmarks.real_traffic.telemetry import Recorded, job_of, messages
from diagnosis.collective.grid import ComparisonRules
from diagnosis.collective.localise import localise_slow
from diagnosis.collective.participation import Participation
from diagnosis.collective.verdict import Verdict
from diagnosis.traffic.host import StepRules
from diagnosis.traffic.segmentation import SegmentationRules
from schemas.catalogue import TRAFFIC_METRICS
from schemas.message import Message, decode
from streams.segment import Segment

BOUNDARY_EPOCHS = 2
"""How far a boundary may be off."""

_STEPS = StepRules(step_ns=StepRules().step_ns * STRETCHED)
_RULES = ComparisonRules(late_ns=ComparisonRules().late_ns * STRETCHED)
"""A step has as many epochs as it has elsewhere, and a start is late by as many."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """An operator of a rank: how far off its boundaries were found, in epochs; None where they were not.

    ``apart``: whether silences of delta separate it from those before and after it, by the logs.
    """

    rank: int
    operator: int
    op: str
    start_epochs: float | None
    end_epochs: float | None
    apart: bool

    @property
    def right(self) -> bool:
        """Whether both were found near enough."""
        return all(off is not None and abs(off) <= BOUNDARY_EPOCHS for off in (self.start_epochs, self.end_epochs))


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """What was found: rows of analysis.traffic_metrics, operators' boundaries, and who is named."""

    metrics: pa.Table
    boundaries: list[Boundary]
    verdicts: list[Verdict]


def judge(run: Recorded) -> Judged:
    """Find operators and a straggler in a run's records, by the code of the pipeline; nothing is known of the past."""
    job = job_of(run)
    table = _metrics(Segment({job.job: job}, _STEPS), messages(run))
    verdicts = localise_slow(Participation.from_arrow(table), job, rules=_RULES)
    delta = SegmentationRules().delta(run.plan.epoch_ns)
    return Judged(table, boundaries(run, table, delta), verdicts)


def _metrics(step: Segment, told: Iterable[Message]) -> pa.Table:
    batches = [
        decode(said, TRAFFIC_METRICS)
        for message in told
        for said in step.process(message)
        if said.topic == TRAFFIC_METRICS.name
    ]
    return pa.Table.from_batches(batches, TRAFFIC_METRICS.schema)


def boundaries(run: Recorded, table: pa.Table, delta_ns: int) -> list[Boundary]:
    """Boundaries found beside those logged: a rank's first slice is sent, the last one has come to its receiver."""
    found = {(row["rank"], row["communicator"], row["seq"]): row for row in table.to_pylist()}
    over = []
    for log in run.logs:
        before_ns = 0
        ended = _ended(run, log.rank)
        calls = _first_calls(log.calls)
        for operator, call in calls.items():
            row = found.get((log.rank, call["communicator"], call["seq"]), {})
            began_ns, ended_ns = log.began_ns[operator], ended[operator]
            after_ns = log.began_ns.get(operator + 1, ended_ns + delta_ns)
            over.append(
                Boundary(
                    log.rank,
                    operator,
                    str(row.get("op", call["op"])),
                    _off(row.get("start_ns"), began_ns, run.plan.epoch_ns),
                    _off(row.get("end_ns"), ended_ns, run.plan.epoch_ns),
                    min(began_ns - before_ns, after_ns - ended_ns) >= delta_ns,
                )
            )
            before_ns = max(before_ns, ended_ns)
    return over


def _first_calls(calls: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The call of each operator, of a group its first one."""
    first: dict[int, dict[str, Any]] = {}
    for call in calls:
        first.setdefault(call["operator"], call)
    return first


def _ended(run: Recorded, rank: int) -> dict[int, int]:
    """When the last that a rank sent in each operator had come."""
    ended: dict[int, int] = {}
    for log in run.logs:
        for operator, source, at in log.ended_ns:
            if source == rank:
                ended[operator] = max(at, ended.get(operator, at))
    return ended


def _off(found_ns: int | None, logged_ns: int, epoch_ns: int) -> float | None:
    return None if found_ns is None else round((found_ns - logged_ns) / epoch_ns, 2)
