"""Seconds from the last record of an irregular iteration to its stored findings, over Kafka.

Every role is a process of its own, and findings count once ClickHouse has them. The agents of all hosts share this
process, where the simulated logs are worked out as well: these seconds are left out, though the roles have them to
themselves. In a cluster the agents of a search's hosts work side by side; here one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from benchmarks.deployment import Deployment, deployment
from benchmarks.large.observed import TimedLog
from diagnosis.job import pivots
from local.service import LocalServiceError
from offbeat import wiring
from offbeat.produce import Desk
from offbeat.settings import Settings
from producers.job_source import JobSource
from producers.live.live_store import WANTED_ITERATIONS
from producers.publisher import Publisher
from producers.simulated_store import simulated_agents
from producers.simulation import LazyRun
from schemas import catalogue
from schemas.message import Message, decode
from sinks.clickhouse.store import Store
from streams.follower import Follower
from streams.search import SearchSettings

_Answer = TypeVar("_Answer")

ANSWER_WITHIN_S = 600
"""Agents may take so long, since here the logs have to be simulated first."""

_WITHIN_S = 900.0
_LOOK_EVERY_S = 0.01
_STORED = "SELECT count() AS found FROM findings WHERE job = {job:String} AND iteration = {iteration:Int32}"


@contextmanager
def deployed() -> Iterator[Deployment]:
    """All roles, the search of which gives simulated logs the time that they take."""
    set_to = {"OFFBEAT_SEARCH__ANSWER_WITHIN_NS": str(ANSWER_WITHIN_S * 10**9)}
    with TemporaryDirectory(prefix="offbeat-bench-") as folder, deployment(Path(folder), set_to) as running:
        yield running


def measure(run: LazyRun, settings: Settings, running: Deployment) -> list[float]:
    """Publish a run iteration by iteration; seconds to the stored findings of each that was searched.

    Raises ``LocalServiceError`` where the roles do not come to an end with an iteration.
    """
    kafka = running.reached_by(settings.kafka)
    log = TimedLog(run)
    agents = simulated_agents(log, pivots(run.job, settings.pivots), keep_iterations=WANTED_ITERATIONS)
    job = JobSource(run.job, agents)
    publisher = wiring.publisher(kafka, "log-agents")
    since_ns = time.time_ns()
    with (
        Follower(wiring.bus(kafka), catalogue.LOG_REQUESTS.name, since_ns=since_ns) as requests,
        Follower(wiring.bus(kafka), catalogue.ITERATIONS.name, since_ns=since_ns) as judged,
        running.store() as store,
    ):
        pipeline = _Pipeline(run.job.job, Desk(agents, requests.poll, publisher), judged, store)
        seconds = []
        for iteration in range(run.scenario.iterations):
            _publish(publisher, job.advance())
            for agent in agents:
                _publish(publisher, agent.advance())
            publisher.flush()
            began, simulated = time.perf_counter(), log.taken.wall
            if pipeline.judge(iteration, settings.search):
                pipeline.find(iteration)
                seconds.append(time.perf_counter() - began - (log.taken.wall - simulated))
        _publish(publisher, job.advance())
        publisher.flush()
    return seconds


@dataclass
class _Pipeline:
    """The roles, seen from outside, while the agents' desk answers them."""

    job: str
    desk: Desk
    judged: Follower
    store: Store

    def judge(self, iteration: int, settings: SearchSettings) -> bool:
        """Wait until an iteration is judged; whether it will be searched."""
        return any(settings.due(row) for row in self._until(lambda: self._judged(iteration), f"judging {iteration}"))

    def find(self, iteration: int) -> None:
        """Wait until what a search of an iteration found is stored."""
        asked: dict[str, str | int] = {"job": self.job, "iteration": iteration}
        self._until(lambda: self.store.query(_STORED, asked).to_pylist()[0]["found"], f"searching {iteration}")

    def _judged(self, iteration: int) -> list[Mapping[str, Any]]:
        messages = (message for message in self.judged.poll() if message.job == self.job)
        rows = (row for message in messages for row in decode(message, catalogue.ITERATIONS).to_pylist())
        return [row for row in rows if row["iteration"] == iteration]

    def _until(self, told: Callable[[], _Answer], what: str) -> _Answer:
        deadline = time.monotonic() + _WITHIN_S
        while self.desk.serve(_LOOK_EVERY_S) or not (answer := told()):
            if time.monotonic() > deadline:
                raise LocalServiceError(f"{what}: the roles have not come to an end within {_WITHIN_S:g} s")
        return answer


def _publish(publisher: Publisher, messages: Iterable[Message] | None) -> None:
    for message in messages or ():
        publisher.send(message)
