"""A second fault that begins while the first one's run of irregular iterations is open."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.job import pivots
from producers.job_source import JobSource
from producers.log_agent import agents
from producers.simulation import Fault, Kind, Scenario, simulate
from schemas.catalogue import FINDINGS, INCIDENTS
from schemas.message import Message, decode
from schemas.topic import Topic
from streams import in_process
from streams.control_view import Jobs
from streams.incidents import Incidents
from streams.monitor import Monitor
from streams.search import Search

SECOND = 20
RUN = simulate(
    Scenario(
        3,
        tp=2,
        pp=2,
        dp=2,
        microbatches=4,
        layers=4,
        hidden=4096,
        iterations=28,
        gpus_per_host=2,
        compute_ms=200.0,
        faults=(
            Fault(Kind.GPU_SLOW, 5, tuple(range(12, 28)), slowdown=1.25),
            Fault(Kind.GPU_SLOW, 2, tuple(range(SECOND, 28)), slowdown=1.6),
        ),
    )
)
"""Eight ranks; GPU 5 is slow from iteration 12 on, GPU 2 as well, and more so, from iteration 20 on."""


class Listener:
    """Reads what was found, and publishes nothing."""

    name = "listener"
    reads: tuple[Topic, ...] = (FINDINGS, INCIDENTS)
    writes: tuple[Topic, ...] = ()

    def __init__(self) -> None:
        self.searched: list[int] = []
        self.incidents: dict[str, dict[str, Any]] = {}

    def process(self, message: Message) -> Iterable[Message]:
        if message.topic == FINDINGS.name:
            self.searched += {row["iteration"] for row in decode(message, FINDINGS).to_pylist() if row["active"]}
        else:
            self.incidents |= {row["id"]: row for row in decode(message, INCIDENTS).to_pylist()}
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}


def listened(settings: MonitorSettings) -> Listener:
    jobs, listener = Jobs(), Listener()
    hosts = agents(RUN.job, RUN.table, pivots(RUN.job, 4))
    steps = (Monitor(jobs, settings), Search(jobs), Incidents(jobs))
    in_process.run([JobSource(RUN.job, hosts), *hosts], [jobs, *hosts, *steps, listener])
    return listener


@pytest.mark.parametrize(
    ("settings", "searched", "named"),
    [
        (MonitorSettings(), [12, 13, 15, 19, 20, 21, 23, 27], {(5,): (12, 27), (2,): (SECOND, 27)}),
        (MonitorSettings(step_delta=100.0), [12, 13, 15, 19, 27], {(5,): (12, 19)}),
    ],
    ids=["steps are told", "no steps"],
)
def test_it_is_named_because_its_iterations_are_longer_still(
    settings: MonitorSettings, searched: list[int], named: dict[tuple[int, ...], tuple[int, int]]
) -> None:
    """By ordinals alone it would be searched once while it lasts, which is too little to page anybody; and it would
    seem to have taken over from the first one, beside which it is told.

    It begins where it came on top, not where the run did.
    """
    heard = listened(settings)
    assert heard.searched == searched
    spans = {tuple(i["ranks"]): (i["first_iteration"], i["last_iteration"]) for i in heard.incidents.values()}
    assert spans == named
