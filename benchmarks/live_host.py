"""A host of a simulated job whose processes log live: into rings, for a real agent to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.job import Job, pivots
from producers.live.registration import OPS, PHASES, RING, Group, Presence, Registration
from producers.live.ring import RingWriter


class LiveHost:
    """The training processes of one host of a job, the last one that is watched unasked.

    They log as ``offbeat.operator_log`` does, in rings of the same size, but at the simulation's times.
    """

    def __init__(self, job: Job, table: pa.Table, rings: Path) -> None:
        self.name = str(job.place[pivots(job)[-1]].host)
        self.iterations = int(pc.max(table.column("iteration")).as_py()) + 1
        self._logged = 0
        self._ranks = [_Rank(job, rank, table, rings) for rank in job.ranks_of_host[self.name]]

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


class _Rank:
    """One process."""

    def __init__(self, job: Job, rank: int, table: pa.Table, rings: Path) -> None:
        self._rows = table.filter(pc.field("rank") == rank)
        self._names: list[str] = sorted(self._rows.column("communicator").unique().to_pylist())
        groups = tuple(Group(name, job.members.get(name, ())) for name in self._names)
        self._presence = Presence(
            rings, Registration(job.job, rank, f"{job.job}-{rank}", world=len(job.ranks), groups=groups)
        )
        self._ring = RingWriter(self._presence.folder / f"{RING}0")

    def log(self, iteration: int) -> None:
        for row in self._rows.filter(pc.field("iteration") == iteration).to_pylist():
            _append(self._ring, row, self._names)

    def leave(self) -> None:
        self._presence.leave()


def _append(ring: RingWriter, row: dict[str, Any], names: Sequence[str]) -> None:
    def of(column: str) -> int:
        return -1 if row[column] is None else int(row[column])

    phase = 0 if row["phase"] is None else 1 + PHASES.index(row["phase"])
    codes = names.index(row["communicator"]), OPS.index(row["op"]), phase
    number = ring.append(
        row["call_ns"], of("bytes"), of("seq"), of("p2p_seq"), *codes, of("iteration"), of("peer"), of("microbatch")
    )
    if number >= 0 and row["end_ns"] is not None:
        ring.done(number, row["start_ns"] or 0, row["end_ns"])
