"""The diagnosing steps as cases of the contract suite, fed with what simulated jobs published."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path

from offbeat import wiring
from offbeat.settings import Settings
from producers.log_agent import LogAgent
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate
from schemas import catalogue
from schemas.message import Message
from schemas.topic import Topic
from tests.streams.examples import Listener
from tests.streams.journey import Case

SETTINGS = Settings()
FAULTS = (
    Fault(Kind.GPU_SLOW, 5, tuple(range(12, 18)), slowdown=1.4),
    Fault(Kind.GPU_SLOW, 2, (13, 14), slowdown=1.6),
    Fault(Kind.GPU_SLOW, 1, tuple(range(14)), slowdown=1.5),
)
"""One for each job; the last is slow from the beginning."""


@cache
def _runs() -> list[SimulatedRun]:
    return [
        simulate(Scenario(seed, tp=2, pp=2, dp=2, iterations=20, faults=(fault,)))
        for seed, fault in enumerate(FAULTS, 3)
    ]


@cache
def _agents() -> list[LogAgent]:
    """Agents at the end of their logs: they answer at once, and always the same."""
    agents = [agent for run in _runs() for agent in wiring.log_agents(run.job, run.table, SETTINGS)]
    for agent in agents:
        while agent.advance() is not None:
            pass
    return agents


@cache
def _published() -> tuple[Message, ...]:
    """What the jobs publish on all topics, a message of each in turn, as jobs in one partition would."""
    listeners = []
    for run in _runs():
        listeners.append(Listener(tuple(catalogue.TOPICS.values())))
        wiring.run_in_process(run.job, run.table, SETTINGS, [listeners[-1]])
    turns = zip_longest(*(listener.heard for listener in listeners))
    return tuple(message for turn in turns for message in turn if message is not None)


def _of(*topics: Topic) -> Sequence[Message]:
    """The messages of some topics, without answers: those come again when they are asked for."""

    def chosen() -> Iterator[Message]:
        names = {topic.name for topic in (catalogue.JOBS, *topics)}
        return (m for m in _published() if m.topic in names and "request_id" not in m.headers)

    return tuple(chosen())


def monitor(_: Path) -> Case:
    return Case(
        "monitor",
        lambda jobs: wiring.step("monitor", jobs, SETTINGS),
        lambda: _of(catalogue.ITERATION_SUMMARIES),
        judged=(catalogue.ITERATIONS, catalogue.FINDINGS),
    )


def search(_: Path) -> Case:
    return Case(
        "search",
        lambda jobs: wiring.step("search", jobs, SETTINGS),
        lambda: _of(catalogue.ITERATIONS, catalogue.COMM_OPS),
        judged=(catalogue.FINDINGS,),
        others=lambda _: _agents(),
    )


def incidents(_: Path) -> Case:
    return Case(
        "incidents",
        lambda jobs: wiring.step("incidents", jobs, SETTINGS),
        lambda: _of(catalogue.FINDINGS),
        judged=(catalogue.INCIDENTS,),
    )
