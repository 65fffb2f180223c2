"""A host that trains: the rings of its processes, filled from a simulated log, and `offbeat agent` as a process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.live_host import Process
from diagnosis.job import pivots
from offbeat import wiring
from offbeat.settings import Settings
from producers.importers.recording import load
from producers.log_agent import LogAgent
from sinks.clickhouse.store import Store
from tests.integration.outcome import Stored
from tests.integration.recordings import Recorded
from tests.integration.roles import Producer
from tests.offbeat.command_line import command
from tests.producers.live.made import live_store

ITERATIONS = 36


class Training:
    """The processes of a recording's ranks, all on one host; ``train`` has them log further iterations."""

    def __init__(self, recorded: Recorded, rings: Path) -> None:
        read = load([recorded.folder])
        self.job, self.table = read.job, read.table
        self.iterations = 0
        room = self.table.num_rows // len(self.job.ranks) * 2
        self._processes = [Process(self.job, rank, self.table, rings, room) for rank in self.job.ranks]

    def train(self, iterations: int) -> None:
        for iteration in range(self.iterations, self.iterations + iterations):
            for process in self._processes:
                process.log(iteration)
        self.iterations += iterations

    def end(self) -> None:
        """Log what is left, and end the processes."""
        self.train(ITERATIONS - self.iterations)
        for process in self._processes:
            process.leave()


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
