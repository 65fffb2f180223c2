"""Hand-made operator logs: what a few ranks do in every iteration, and when everything then happens.

A collective ends for all its members when the last has entered and the transfer is done, a send with its recv
likewise. ``extra_ms`` comes on top in the irregular iteration, which is the last. Compute varies a little from
iteration to iteration, so that every operator has a usual duration with a spread.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from diagnosis.job import Communicator, Job, Place

STARTED_NS = 1_700_000_000_000_000_000
MS = 1_000_000


@dataclass(frozen=True)
class Compute:
    ms: float = 10.0
    extra_ms: float = 0.0


@dataclass(frozen=True)
class Collective:
    communicator: str
    op: str = "all_reduce"
    ms: float = 1.0
    extra_ms: float = 0.0
    late_ms: float = 0.0
    """In the irregular iteration this member alone ends so much later."""


@dataclass(frozen=True)
class Send:
    peer: int
    ms: float = 1.0
    extra_ms: float = 0.0


@dataclass(frozen=True)
class Recv:
    peer: int


Step = Compute | Collective | Send | Recv
Row = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """``programs`` holds the steps of each rank, ``groups`` the members of each communicator.

    Sends and receives run on the communicator ``pp``. ``offset_ns`` is how far each rank's clock is ahead;
    every rank has a host of its own. Without ``jitter`` all iterations but the irregular one are the same.
    ``extra_in`` is the iteration that has what is extra, where that is not the irregular one itself.
    """

    programs: Mapping[int, Sequence[Step]]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    iterations: int = 13
    offset_ns: Mapping[int, int] = field(default_factory=dict)
    jitter: bool = True
    extra_in: int | None = None

    @property
    def irregular(self) -> int:
        return self.iterations - 1

    @property
    def baseline(self) -> tuple[int, ...]:
        return tuple(range(self.irregular))

    def job(self) -> Job:
        groups = {**self.groups, "pp": tuple(sorted(self.programs))}
        return Job(
            "made",
            tuple(Place(rank, f"h{rank}", 0, (f"nic{rank}",)) for rank in sorted(self.programs)),
            tuple(Communicator(name, ranks) for name, ranks in groups.items()),
        )

    def table(self) -> pa.Table:
        rows = sorted(self._rows(), key=lambda row: (row["rank"], row["call_order"]))
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def _rows(self) -> Iterator[Row]:
        now: Counter[int] = Counter()
        counts: Counter[object] = Counter()
        for iteration in range(self.iterations):
            yield from _Iteration(self, iteration, now, counts).run()


SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in "rank seq position call_order iteration peer p2p_seq".split()),
        *(pa.field(name, pa.int64()) for name in "microbatch call_ns end_ns".split()),
        *(pa.field(name, pa.dictionary(pa.int32(), pa.string())) for name in ("communicator", "op", "phase")),
    ]
)


class _Iteration:
    """Runs every rank's program as far as it gets, until all are through."""

    def __init__(self, training: Training, iteration: int, now: Counter[int], counts: Counter[object]) -> None:
        self.training, self.iteration, self.now, self.counts = training, iteration, now, counts
        self.at = dict.fromkeys(training.programs, 0)
        self.positions: Counter[tuple[int, str]] = Counter()
        self.met: dict[object, dict[int, Row]] = {}
        self.waiting: dict[int, object] = {}

    def run(self) -> Iterator[Row]:
        while any(self.at[rank] < len(program) for rank, program in self.training.programs.items()):
            before = dict(self.at)
            for rank in self.training.programs:
                yield from self._advance(rank)
            if before == self.at:
                raise RuntimeError(f"the programs deadlock at steps {self.at}")

    def _advance(self, rank: int) -> Iterator[Row]:
        program = self.training.programs[rank]
        while self.at[rank] < len(program):
            step = program[self.at[rank]]
            if isinstance(step, Compute):
                self.now[rank] += int((step.ms * self._jitter(rank) + self._extra(step)) * MS)
            elif rank not in self.waiting:
                self._call(rank, step)
            if (key := self.waiting.get(rank)) is not None:
                if len(self.met[key]) < self._members(step):
                    return
                yield self._ended(rank, key)
            self.at[rank] += 1

    def _call(self, rank: int, step: Collective | Send | Recv) -> None:
        communicator = step.communicator if isinstance(step, Collective) else "pp"
        row: Row = {
            "rank": rank,
            "communicator": communicator,
            "op": step.op if isinstance(step, Collective) else type(step).__name__.lower(),
            "iteration": self.iteration,
            "seq": self._count(rank, communicator),
            "position": self.positions[rank, communicator],
            "call_order": self._count(rank, "log"),
            "call_ns": self.now[rank],
        }
        self.positions[rank, communicator] += 1
        key: object = (communicator, row["seq"])
        if not isinstance(step, Collective):
            row |= {"peer": step.peer, "p2p_seq": self._count(rank, row["op"], step.peer)}
            ends = (rank, step.peer) if isinstance(step, Send) else (step.peer, rank)
            key = (ends, row["p2p_seq"])
        self.waiting[rank] = key
        row["transfer_ns"] = 0 if isinstance(step, Recv) else int((step.ms + self._extra(step)) * MS)
        self.met.setdefault(key, {})[rank] = row

    def _ended(self, rank: int, key: object) -> Row:
        met = self.met[key].values()
        end = max(row["call_ns"] for row in met) + max(row["transfer_ns"] for row in met)
        end += int(self._extra(self.training.programs[rank][self.at[rank]], "late_ms") * MS)
        self.now[rank] = end
        del self.waiting[rank]
        shift = STARTED_NS + self.training.offset_ns.get(rank, 0)
        row = {name: value for name, value in self.met[key][rank].items() if name != "transfer_ns"}
        return {**row, "call_ns": row["call_ns"] + shift, "end_ns": end + shift}

    def _members(self, step: Step) -> int:
        return len(self.training.groups[step.communicator]) if isinstance(step, Collective) else 2

    def _extra(self, step: Step, what: str = "extra_ms") -> float:
        extra_in = self.training.irregular if self.training.extra_in is None else self.training.extra_in
        return getattr(step, what, 0.0) if self.iteration == extra_in else 0.0

    def _jitter(self, rank: int) -> float:
        return 1 + ((rank * 7 + self.iteration * 13 + self.at[rank] * 3) % 5 - 2) / 200 * self.training.jitter

    def _count(self, *what: object) -> int:
        self.counts[what] += 1
        return self.counts[what] - 1
