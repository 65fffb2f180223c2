"""A host that trains: the rings of its processes, filled from a simulated log, and `offbeat agent` as a process."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from diagnosis.job import Job, pivots
from offbeat import wiring
from offbeat.settings import Settings
from producers.importers.recording import load
from producers.live.registration import Group, Presence, Registration
from producers.live.ring import RingWriter
from producers.log_agent import LogAgent
from sinks.clickhouse.store import Store
from tests.integration.outcome import Stored
from tests.integration.recordings import Recorded
from tests.integration.roles import Producer
from tests.offbeat.command_line import command
from tests.producers.live.made import append, live_store

ITERATIONS = 36


class Training:
    """The processes of a recording's ranks, all on one host; ``train`` has them log further iterations."""

    def __init__(self, recorded: Recorded, rings: Path) -> None:
        read = load([recorded.folder])
        self.job, self.table = read.job, read.table
        self.iterations = 0
        self._ranks = [_Rank(self.job, rank, self.table, rings) for rank in self.job.ranks]

    def train(self, iterations: int) -> None:
        self.iterations += iterations
        for rank in self._ranks:
            rank.log_until(self.iterations)

    def end(self) -> None:
        """Log what is left, and end the processes."""
        self.train(ITERATIONS - self.iterations)
        for rank in self._ranks:
            rank.presence.leave()


class _Rank:
    def __init__(self, job: Job, rank: int, table: pa.Table, rings: Path) -> None:
        rows = [row for row in table.to_pylist() if row["rank"] == rank]
        self._names = sorted({row["communicator"] for row in rows})
        groups = tuple(Group(name, job.members.get(name, ())) for name in self._names)
        self.presence = Presence(
            rings, Registration(job.job, rank, f"start{rank}", world=len(job.ranks), groups=groups)
        )
        self._ring = RingWriter(self.presence.folder / "ring-0", len(rows))
        self._left = [(number, list(of)) for number, of in groupby(rows, lambda row: row["iteration"])]

    def log_until(self, iteration: int) -> None:
        """Log what is left of the iterations before this one."""
        while self._left and (self._left[0][0] or 0) < iteration:
            for row in self._left.pop(0)[1]:
                append(self._ring, row, self._names)


class AgentProcess(Producer):
    """`offbeat agent` on that host; its ``folder`` outlives it, its rings and what it keeps are ``rings``, ``kept``."""

    def __init__(
        self, recorded: Recorded, environment: Mapping[str, str], folder: Path, rings: Path, kept: Path
    ) -> None:
        own = {"OFFBEAT_LIVE__RINGS": str(rings), "OFFBEAT_LIVE__FOLDER": str(kept)}
        super().__init__(recorded, {**environment, **own}, folder)
        self._command = command("agent", "--job", recorded.folder)

    def prepare(self) -> Any:
        prepared = super().prepare()
        self.started_ns = 0  # the end of a job is told once, however often the agent starts
        return prepared


def undisturbed(training: Training, folder: Path, store: Store) -> Stored:
    """What the runner without a broker makes of the same rings."""
    job, settings = training.job, Settings()
    agent = LogAgent(live_store(job, training.table, folder), job.places[0].host or "", pivots(job, settings.pivots))
    wiring.run_agents_in_process(job, [agent], settings, [wiring.store_sink(store, settings.store)])
    return Stored.of(store, job.job)
