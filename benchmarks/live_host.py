"""A host of a simulated job whose processes log live: into rings, for a real agent to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.job import Job, pivots
from producers.live.registration import OPS, PHASES, RING, Group, Presence, Registration
from producers.live.ring import DEFAULT_CAPACITY, RingWriter


class LiveHost:
    """The training processes of one host of a job, the last one that is watched unasked.

    They log as ``offbeat.operator_log`` does, in rings of the same size, but at the simulation's times.
    """

    def __init__(self, job: Job, table: pa.Table, rings: Path) -> None:
        self.name = str(job.place[pivots(job)[-1]].host)
        self.iterations = int(pc.max(table.column("iteration")).as_py()) + 1
        self._logged = 0
        self._ranks = [Process(job, rank, table, rings) for rank in job.ranks_of_host[self.name]]

    def train(self, until: int) -> None:
        """Log what is left of the iterations before this one; end with the last of them."""
        for iteration in range(self._logged, min(until, self.iterations)):
            for rank in self._ranks:
                rank.log(iteration)
        self._logged = max(self._logged, until)
        if self._logged >= self.iterations:
            self.end()

    def end(self) -> None:
        """End the processes, if they still run."""
        for rank in self._ranks:
            rank.leave()
        self._ranks = []


class Process:
    """The training process of one rank, that logs what ``table`` has of it into a ring with room for ``capacity``."""

    def __init__(self, job: Job, rank: int, table: pa.Table, rings: Path, capacity: int = DEFAULT_CAPACITY) -> None:
        self._rows = table.filter(pc.field("rank") == rank)
        self._names: list[str] = sorted(self._rows.column("communicator").unique().to_pylist())
        groups = tuple(Group(name, job.members.get(name, ())) for name in self._names)
        self._presence = Presence(
            rings, Registration(job.job, rank, f"{job.job}-{rank}", world=len(job.ranks), groups=groups)
        )
        self._ring = RingWriter(self._presence.folder / f"{RING}0", capacity)

    def log(self, iteration: int) -> None:
        """Log an iteration."""
        for row in self._rows.filter(pc.field("iteration") == iteration).to_pylist():
            append(self._ring, row, self._names)

    def leave(self) -> None:
        """End; what is logged stays."""
        self._presence.leave()


def append(ring: RingWriter, row: dict[str, Any], names: Sequence[str]) -> int:
    """Append a row of telemetry.comm_ops as the process would have; ``names`` are its communicators."""

    def of(column: str) -> int:
        return -1 if row[column] is None else int(row[column])

    phase = 0 if row["phase"] is None else 1 + PHASES.index(row["phase"])
    codes = names.index(row["communicator"]), OPS.index(row["op"]), phase
    number = ring.append(
        row["call_ns"], of("bytes"), of("seq"), of("p2p_seq"), *codes, of("iteration"), of("peer"), of("microbatch")
    )
    if number >= 0 and row["end_ns"] is not None:
        ring.done(number, row["start_ns"] or 0, row["end_ns"])
    return number
