"""A job that is expanded where it is asked for is diagnosed as any other; what nobody asks for is never expanded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from diagnosis.job import pivots
from offbeat import wiring
from offbeat.settings import Settings
from producers.simulated_store import simulated_agents
from producers.simulation import FabricShape, Fault, Kind, LazyLog, LazyRun, Scenario
from schemas.catalogue import DEAD_LETTERS, INCIDENTS
from schemas.message import Message, decode
from schemas.topic import Topic


class Listener:
    """Keeps the newest revision of each incident, and what was refused."""

    name = "listener"
    reads: tuple[Topic, ...] = (INCIDENTS, DEAD_LETTERS)
    writes: tuple[Topic, ...] = ()

    def __init__(self) -> None:
        self.incidents: dict[str, Mapping[str, Any]] = {}
        self.refused: list[str] = []

    def process(self, message: Message) -> Iterable[Message]:
        if message.topic == INCIDENTS.name:
            self.incidents |= {row["id"]: row for row in decode(message, INCIDENTS).to_pylist()}
        else:
            self.refused += decode(message, DEAD_LETTERS).column("reason").to_pylist()
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}


@pytest.mark.parametrize("experts", [1, 8])
def test_the_slow_gpu_is_named(experts: int) -> None:
    fault = Fault(Kind.GPU_SLOW, 13, tuple(range(20, 36)), slowdown=1.5)
    run = LazyRun(
        Scenario(
            seed=3,
            tp=4,
            pp=2,
            dp=8,
            ep=experts,
            fold_experts=True,
            sequence_parallel=True,
            microbatches=4,
            layers=4,
            iterations=36,
            compute_ms=300.0,
            fabric=FabricShape(hosts_per_pod=2, spines=2),
            faults=(fault,),
        )
    )
    settings, listener = Settings(), Listener()
    agents = simulated_agents(LazyLog(run), pivots(run.job, settings.pivots), hosts_an_agent=2)
    wiring.run_agents_in_process(run.job, agents, settings, [listener])
    assert listener.refused == []
    [incident] = listener.incidents.values()
    assert [device["device"] for device in incident["devices"]] == ["gpu:h1/5"]
    assert incident["first_iteration"] == 20
