"""A job that is slow from its first iteration on: nothing is irregular, and yet somebody is named."""

from typing import Any

import pytest

from diagnosis.irregularity.like_ranks import LikeRanksSettings
from diagnosis.job import pivots
from producers.job_source import JobSource
from producers.log_agent import LogAgent, agents
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate
from schemas.catalogue import FINDINGS, INCIDENTS, ITERATION_SUMMARIES, ITERATIONS
from schemas.message import decode
from schemas.topic import Topic
from streams import in_process
from streams.control_view import Jobs
from streams.incidents import Incidents
from streams.monitor import Monitor
from streams.search import Search
from tests.streams.examples import Listener

ITERATIONS_OF_RUN = 24
FIRST = 5
"""The first iteration that is compared, after those left out."""


def slow(first: int, last: int) -> SimulatedRun:
    fault = Fault(Kind.GPU_SLOW, 5, tuple(range(first, last + 1)), slowdown=1.5)
    return simulate(Scenario(11, tp=2, pp=2, dp=2, iterations=ITERATIONS_OF_RUN, faults=(fault,)))


def listened(run: SimulatedRun, settings: LikeRanksSettings | None = None) -> Listener:
    jobs, listener = Jobs(), Listener((ITERATIONS, FINDINGS, INCIDENTS))
    hosts = agents(run.job, run.table, pivots(run.job, 4))
    steps = (Monitor(jobs, like_ranks=settings), Search(jobs), Incidents(jobs))
    in_process.run([JobSource(run.job, hosts), *hosts], [jobs, *hosts, *steps, listener])
    return listener


def rows(heard: Listener, topic: Topic) -> list[dict[str, Any]]:
    return [row for message in heard.heard if message.topic == topic.name for row in decode(message, topic).to_pylist()]


def found(heard: Listener) -> list[dict[str, Any]]:
    return rows(heard, FINDINGS)


def incidents(heard: Listener) -> list[dict[str, Any]]:
    """Each as it was told last."""
    return list({row["id"]: row for row in rows(heard, INCIDENTS)}.values())


def test_it_is_named_and_its_incident_lasts_as_long_as_the_job() -> None:
    heard = listened(slow(0, ITERATIONS_OF_RUN - 1))
    assert not any(row["irregular"] for row in rows(heard, ITERATIONS))
    named = [row for row in found(heard) if row["active"]]
    assert {(row["method"], row["cause"], tuple(row["ranks"])) for row in named} == {
        ("like_ranks", "compute_slow", (5,))
    }
    assert [row["iteration"] for row in named] == [7, 8, 10, 14, 22], "the 1st, 2nd, 4th, 8th, 16th since it is told"
    [incident] = incidents(heard)
    assert (incident["cause"], incident["ranks"], incident["methods"]) == ("compute_slow", [5], ["like_ranks"])
    assert (incident["first_iteration"], incident["last_iteration"]) == (FIRST, ITERATIONS_OF_RUN - 1)
    assert (incident["state"], incident["pattern"]) == ("resolved", "persistent_degradation")
    assert incident["lost_ns"] > 0
    assert {row["method"] for row in found(heard) if row["last"]} == {"like_ranks", "operator_graph"}


def test_what_it_cost_is_what_the_iteration_took_longer() -> None:
    run, equal = slow(0, ITERATIONS_OF_RUN - 1), slow(ITERATIONS_OF_RUN - 1, ITERATIONS_OF_RUN - 1)
    row = next(row for row in found(listened(run)) if row["active"])
    [expected] = {
        row["iteration"]: row["end_ns"] - row["start_ns"]
        for agent in agents(equal.job, equal.table, ())
        for row in _summaries(agent, 8)
        if row["rank"] == 5
    }.values()
    assert row["expected_ns"] == pytest.approx(expected, rel=0.05)
    assert row["iteration_ns"] - row["excess_ns"] == row["expected_ns"]
    assert row["run_excess_ns"] == pytest.approx(3 * row["excess_ns"], rel=0.2)


def _summaries(agent: LogAgent, iteration: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while (messages := agent.advance()) is not None:
        for message in messages:
            if message.topic == ITERATION_SUMMARIES.name:
                rows += decode(message, ITERATION_SUMMARIES).to_pylist()
    return [row for row in rows if row["iteration"] == iteration]


def test_it_is_resolved_once_it_is_over() -> None:
    heard = listened(slow(0, 14))
    [incident] = incidents(heard)
    assert (incident["state"], incident["last_iteration"]) == ("resolved", 14)
    over = next(row for row in found(heard) if not row["active"])
    assert (over["iteration"], over["first_iteration"], over["last_iteration"]) == (17, FIRST, 14)


def test_what_begins_later_is_left_to_the_search() -> None:
    heard = listened(slow(14, 20))
    assert {row["method"] for row in found(heard)} == {"operator_graph"}
    [incident] = incidents(heard)
    assert incident["ranks"] == [5]


def test_it_may_be_left_out() -> None:
    heard = listened(slow(0, ITERATIONS_OF_RUN - 1), LikeRanksSettings(iterations=0))
    assert incidents(heard) == []
    assert [row["ranks"] for row in found(heard)] == [[]], "that the search has come to the end"
