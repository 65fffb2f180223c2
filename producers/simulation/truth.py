"""The truth of a simulated run, by counterfactual: the same seed without the fault.

No detector may see it; it is written to a file of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from producers.simulation.engine import IterationTimes, flattened
from producers.simulation.fabric import Fabric
from producers.simulation.network import SlowDevice
from producers.simulation.noise import Floats
from producers.simulation.scenario import Scenario

POSITIVE = 1.10
"""An iteration at least this many times as long as its counterfactual must be found."""

ABSORBED = 1.01
"""Below this, a fault was absorbed by bubbles: finding it would be wrong."""

OPERATOR_SHARE = 0.10
"""An operator is abnormal if it exceeds its counterfactual by this share of the iteration's excess."""

ACTUAL, HEALTHY = 0, 1
"""The first two worlds of a simulation; after them each fault alone."""


@dataclass(frozen=True, slots=True)
class FaultTruth:
    """One fault as it was injected and as it acted.

    ``inseparable`` names the devices that the evidence cannot tell from ``device``, itself included.
    ``slowdowns`` is what the fault alone does to each of its iterations; ``positives`` are those >= 10 %.
    """

    kind: str
    pattern: str
    part: str
    rank: int
    device: str
    inseparable: tuple[str, ...]
    factor: float
    iterations: tuple[int, ...]
    slowdowns: tuple[float, ...]

    @property
    def positives(self) -> tuple[int, ...]:
        """Iterations that this fault alone makes at least 10 % longer."""
        return tuple(i for i, s in zip(self.iterations, self.slowdowns, strict=True) if s >= POSITIVE)


@dataclass(frozen=True, eq=False)
class Truth:
    """What happened in a run.

    ``durations_ns`` and ``healthy_ns`` hold every iteration's length with all faults and with none.
    ``abnormal`` marks, in the order of the run's rows, the operators that are truly abnormal.
    """

    scenario: Scenario
    faults: tuple[FaultTruth, ...]
    durations_ns: tuple[int, ...]
    healthy_ns: tuple[int, ...]
    abnormal: npt.NDArray[np.bool_]

    @property
    def slowdowns(self) -> tuple[float, ...]:
        """Length of each iteration relative to its counterfactual."""
        return tuple(d / h for d, h in zip(self.durations_ns, self.healthy_ns, strict=True))

    @property
    def positives(self) -> tuple[int, ...]:
        """Iterations that are irregular because of the faults."""
        return tuple(i for i, s in enumerate(self.slowdowns) if s >= POSITIVE)

    @property
    def absorbed(self) -> tuple[int, ...]:
        """Iterations with a fault that cost next to nothing."""
        active = {i for fault in self.faults for i in fault.iterations}
        return tuple(i for i in sorted(active) if self.slowdowns[i] < ABSORBED)

    @property
    def unscored(self) -> tuple[int, ...]:
        """Iterations that lie between: reported, not scored."""
        return tuple(i for i, s in enumerate(self.slowdowns) if ABSORBED <= s < POSITIVE)

    def to_json(self) -> dict[str, Any]:
        """Everything but the operators, as JSON values."""
        return {
            "scenario": json.loads(json.dumps(asdict(self.scenario))),
            "faults": [{**asdict(fault), "positives": fault.positives} for fault in self.faults],
            "iterations": {
                "durations_ns": self.durations_ns,
                "healthy_ns": self.healthy_ns,
                "slowdowns": self.slowdowns,
                "positives": self.positives,
                "absorbed": self.absorbed,
                "unscored": self.unscored,
            },
        }


def iteration_lengths(times: Sequence[IterationTimes]) -> Floats:
    """Seconds from the end of one iteration to that of the next, mean over the ranks; shape (iterations, worlds).

    Ranks end an iteration at different times, and what delays only some of them may be absorbed by the next one.
    """
    ends = np.array([t.finished.mean(axis=(0, 2)) for t in times])
    return np.diff(ends, axis=0, prepend=0.0)


def abnormal_operators(times: Sequence[IterationTimes], lengths: Floats) -> npt.NDArray[np.bool_]:
    """Which operators took longer because of the faults; all ranks, sorted by rank and call order.

    Iterations that the faults do not lengthen hold none. ``lengths`` as ``iteration_lengths``.
    """
    excess = lengths[:, ACTUAL] - lengths[:, HEALTHY]
    slow = lengths[:, ACTUAL] >= ABSORBED * lengths[:, HEALTHY]
    marks = []
    for stage, first in enumerate(times[0].stages):
        operators, _, ranks = first.call.shape
        took = [flattened(times, stage, "end", w) - flattened(times, stage, "call", w) for w in (ACTUAL, HEALTHY)]
        longer = (took[0] - took[1]).reshape(ranks, len(times), operators)
        marks.append(((longer >= OPERATOR_SHARE * excess[:, None]) & slow[:, None]).ravel())
    return np.concatenate(marks)


def fault_truths(fabric: Fabric, slow: Sequence[SlowDevice], lengths: Floats) -> tuple[FaultTruth, ...]:
    """The faults with what each did alone; ``lengths`` as ``iteration_lengths``."""
    truths = []
    for k, device in enumerate(slow):
        fault = device.fault
        alone = ACTUAL if len(slow) == 1 else HEALTHY + 1 + k
        iterations = list(fault.iterations)
        truths.append(
            FaultTruth(
                kind=fault.kind.value,
                pattern=fault.pattern.value,
                part=fault.part.value,
                rank=fault.rank,
                device=fabric.device(fault),
                inseparable=fabric.inseparable(fault),
                factor=device.factor,
                iterations=fault.iterations,
                slowdowns=tuple((lengths[iterations, alone] / lengths[iterations, HEALTHY]).tolist()),
            )
        )
    return tuple(truths)
