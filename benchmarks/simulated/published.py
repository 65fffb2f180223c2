"""Algorithm 1 as published, searching one irregular iteration from several pivots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.simulated.detection import Telemetry
from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.irregularity.operator_detector import OperatorDetector
from diagnosis.irregularity.samples import Length
from diagnosis.job import Job
from diagnosis.operator_graph.algorithm_1 import COMPUTE, Root, search
from diagnosis.operator_graph.delays import end_times
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Fetch
from diagnosis.operators import UNKNOWN
from diagnosis.ranking.irregularity_rate import irregularity_rate
from diagnosis.topology import Device


@dataclass
class NotedLogs(Logs):
    """Logs of which everything is at hand; what a search asks for is only noted.

    A search as published asks hundreds of times and judges anew after each answer. Here it judges once.
    """

    noted: set[tuple[int, str | None]] = field(default_factory=set)
    """What was asked for: ranks with a communicator; None: all of their rows."""

    @classmethod
    def of(cls, telemetry: Telemetry, iterations: Collection[int]) -> NotedLogs:
        """The logs of all ranks in the iterations."""
        logs = cls(telemetry.job, tuple(sorted(iterations)))
        chosen = pc.is_in(telemetry.table.column("iteration"), pa.array(sorted(iterations), pa.int32()))
        loading = Logs.fetch(logs, {None: telemetry.job.ranks})
        next(loading)
        try:
            loading.send(Answer(telemetry.table.filter(chosen)))
        except StopIteration:
            return logs
        raise RuntimeError("logs that have everything ask for more")

    def fetch(
        self, wanted: Mapping[str | None, Iterable[int]], places: Mapping[str | None, Collection[int]] | None = None
    ) -> Fetch:
        """Note what is wanted; Algorithm 1 wants no places in particular."""
        self.noted.update((rank, communicator) for communicator, ranks in wanted.items() for rank in ranks)
        yield from ()

    @property
    def noted_rows(self) -> int:
        """How many rows were asked for."""
        operators, codes = self.operators, {name: code for code, name in enumerate(self.operators.communicators)}
        asked = np.isin(operators.rank, [rank for rank, communicator in self.noted if communicator is None])
        for rank, communicator in self.noted:
            if communicator in codes:
                asked |= (operators.rank == rank) & (operators.communicator == codes[communicator])
        return int(asked.sum())


@dataclass(frozen=True)
class Published:
    """What a search as published found in an iteration: the roots that count (Holmes 5.1.1).

    ``iterations`` are the baseline's and, last, the one searched.
    """

    logs: NotedLogs
    iterations: tuple[int, ...]
    pivot: int
    roots: tuple[Root, ...]

    @classmethod
    def of(
        cls,
        logs: NotedLogs,
        baseline: Sequence[int],
        iteration: int,
        pivots: Sequence[int],
        detector: OperatorDetector,
        length: Length | None,
    ) -> Published:
        """Search from every pivot by itself; ``detector`` tells which operators are abnormal."""
        logs.noted.clear()
        searching = search(logs, iteration, baseline, pivots, detector, length)
        try:
            next(searching)
        except StopIteration as ended:
            return cls(logs, (*sorted(baseline), iteration), pivots[0], ended.value.roots)
        raise RuntimeError("a search that has everything asks for more")

    def rate(self, root: Root) -> float:
        """The correlation of the abnormal operator's duration with the iteration's (Holmes 4.4).

        A straggler's own operator is short: the abnormal one is that of the member that waited longest for it.
        """
        operators, duration = self.logs.operators, self._duration_ns
        own = self._here & (operators.rank == root.leaf.rank) & (operators.call_ns == root.leaf.operator.call_ns)
        met = np.flatnonzero(self._here & np.isin(self._meetings, self._meetings[own]))
        worst = int(met[np.argmax(np.nan_to_num(duration[met], nan=-1.0))])
        same = np.ones(len(operators), dtype=np.bool_)
        for column in (operators.rank, operators.communicator, operators.position):
            same &= column == column[worst]
        of_iteration = dict(zip(operators.iteration[same].tolist(), duration[same].tolist(), strict=True))
        series = [of_iteration.get(iteration, np.nan) for iteration in self.iterations]
        return irregularity_rate(series, self._lengths_ns)

    @cached_property
    def _here(self) -> Bools:
        return np.asarray(self.logs.operators.iteration == self.iterations[-1])

    @cached_property
    def _meetings(self) -> Ints:
        return self.logs.operators.meeting_keys

    @cached_property
    def _duration_ns(self) -> Floats:
        """Duration of every operator; NaN: not known."""
        end = end_times(self.logs.view, self.logs.view.clocks)
        return np.where(end == UNKNOWN, np.nan, end - self.logs.operators.call_ns)

    @cached_property
    def _lengths_ns(self) -> list[float]:
        """Duration of each iteration on the pivot, first call to last; NaN: not seen."""
        own = self.logs.operators.of_rank(self.pivot)
        calls = [own.call_ns[own.iteration == iteration] for iteration in self.iterations]
        return [float(of[-1] - of[0]) if len(of) else np.nan for of in calls]


def implicated(job: Job, root: Root) -> tuple[Device, ...]:
    """The devices that a root implicates: a GPU, or whatever carries the traffic of its group."""
    return (job.gpu(root.leaf.rank),) if root.cause == COMPUTE else job.carriers(root.leaf.members)
