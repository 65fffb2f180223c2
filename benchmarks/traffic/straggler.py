"""One NIC of a data-parallel group with less bandwidth than the others: what epochs of several lengths show of it, and
how little slowness is still found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.simulated.figures import share
from benchmarks.traffic.detection import Row, detect, hear, rows
from diagnosis.collective.stragglers import Metric
from offbeat.settings import Settings
from producers.simulation.nic import Fault, Hardware, Injection, NicRun, NicScenario, Workload, simulate_nics
from schemas.catalogue import TRAFFIC_METRICS

METRICS: tuple[Metric, ...] = ("actual_time", "busy_epochs")
"""The paper's, and the one that also sees slowness which leaves no epoch empty."""

_TENSOR, _REPLICAS = 2, 4
_PLACES = _TENSOR * _REPLICAS
_AT_S = 0.12
"""When the NIC becomes slow: within the third or fourth iteration."""


@dataclass(frozen=True, slots=True)
class Slowed:
    """A run in which a NIC has ``1 / p`` of its bandwidth, from the beginning or some time after it."""

    seed: int
    p: float
    epoch_ns: int = 32_000
    at_s: float = _AT_S
    iterations: int = 8

    @property
    def scenario(self) -> NicScenario:
        """The job; which NIC is slow hangs on the seed."""
        fault = Fault(Injection.PCIE_DOWNGRADE, self.seed % _PLACES, self.at_s, 1 / self.p)
        job = NicScenario(self.seed, Workload.DENSE, tp=_TENSOR, dp=_REPLICAS, pp=1, iterations=self.iterations)
        return replace(job, faults=(fault,), hardware=Hardware(epoch_ns=self.epoch_ns))

    def run(self) -> NicRun:
        """Simulate it."""
        return simulate_nics(self.scenario)


@dataclass(frozen=True, slots=True)
class Sensed:
    """Whether each metric named the slow NIC of a run, and whether it named another."""

    slowed: Slowed
    named: Mapping[str, bool]
    false: Mapping[str, bool]


def seen(slowed: Slowed, settings: Settings) -> dict[str, float]:
    """Figures 1 and 9: milliseconds of an operator, the median over the operators and ranks of each kind."""
    run = slowed.run()
    metrics = rows(TRAFFIC_METRICS, hear(TRAFFIC_METRICS, run.job, run.messages(), settings))
    complete = [row for row in metrics if row["state"] == "complete"]
    (slow,) = run.truth.faults[0].ranks
    own = {name for name, members in run.job.members.items() if slow in members}
    kinds = {
        "straggler": [row for row in complete if row["rank"] == slow],
        "others_of_its_group": [row for row in complete if row["communicator"] in own and row["rank"] != slow],
        "other_groups": [row for row in complete if row["communicator"] not in own],
    }
    return {
        f"{name}_{what}_ms": round(median(row[f"{what}_ns"] for row in of) / 1e6, 3)
        for what in ("actual_time", "duration")
        for name, of in kinds.items()
    }


def sensed(slowed: Slowed, settings: Settings) -> Sensed:
    """Compare the ranks by each metric, on the same telemetry."""
    run = slowed.run()
    metrics = hear(TRAFFIC_METRICS, run.job, run.messages(), settings)
    (slow,) = run.truth.faults[0].ranks
    named: dict[str, bool] = {}
    false: dict[str, bool] = {}
    for metric in METRICS:
        chosen = settings.model_copy(update={"compare": replace(settings.compare, metric=metric)})
        incidents = detect(run.job, metrics, chosen)
        false[metric] = any(set(row["ranks"]) - {slow} for row in incidents)
        named[metric] = not false[metric] and any(_is_slow(row) for row in incidents)
    return Sensed(slowed, named, false)


def recall(found: Iterable[Sensed]) -> dict[str, Any]:
    """By metric and p: how often the slow NIC, and it alone, was named; how often another one was."""
    by_p: dict[float, list[Sensed]] = {}
    for one in found:
        by_p.setdefault(one.slowed.p, []).append(one)
    return {
        metric: {
            f"{p:g}": {
                "named": share(sum(one.named[metric] for one in runs), len(runs)),
                "others_named": sum(one.false[metric] for one in runs),
            }
            for p, runs in sorted(by_p.items())
        }
        for metric in METRICS
    }


def _is_slow(row: Row) -> bool:
    return bool(row["cause"] == "communication_slow")
