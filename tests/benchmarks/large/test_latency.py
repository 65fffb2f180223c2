"""Timing searches: what counts, and what is told of it."""

from __future__ import annotations

import pytest

from benchmarks.large.latency import Localized, Measured, figures, measure
from benchmarks.large.observed import Seconds
from offbeat.settings import Settings
from tests.benchmarks.large.runs import CASE, slow_nic


def test_each_search_is_timed_to_its_stored_findings() -> None:
    measured = measure(slow_nic(), Settings(), 1.0)
    assert measured.ranks == CASE.ranks
    assert [search.iteration for search in measured.searches][:2] == [15, 16]
    assert all(min(search.seconds) > 0 and search.fetched_rows > 0 for search in measured.searches)
    # what was asked for, too, travels on behalf of the searches
    assert 0 < sum(search.fetched_bytes for search in measured.searches) < measured.fetched_bytes
    assert measured.fetched_bytes < measured.everything_bytes
    assert measured.simulate_s > 1.0


def test_runs_of_one_size_are_told_together() -> None:
    def run(ranks: int, *seconds: float, without_ends: bool = False) -> Measured:
        searches = tuple(Localized(20 + i, Seconds(s, s / 2), 100, 2_000_000) for i, s in enumerate(seconds))
        return Measured(ranks, 40, 5000, without_ends, searches, 10.0, 1_000_000_000, 1_000_000, 4_000_000)

    told = figures([run(8192, 3.0), run(2048, 1.0, 2.0), run(2048, 1.5, without_ends=True), run(4096)])
    assert list(told) == ["2048", "4096", "8192"]
    small = told["2048"]
    assert (small["runs"], small["searched_iterations"]) == (2, 3)
    assert small["seconds"] == {"p50": 1.5, "p99": pytest.approx(1.99), "max": 2.0}
    assert small["cpu_seconds"] == {"p50": 0.75, "p99": pytest.approx(0.995), "max": 1.0}
    assert (small["fetched_mb_a_search"], small["fetched_rows_a_search"]) == (2.0, 100)
    assert small["fetched_to_an_iteration"] == 0.08  # 2 of 25 MB
    assert (small["fetched_share"], small["telemetry_share"]) == (0.004, 0.005)
    assert small["seconds_by_ends"] == {
        "given": {"p50": 1.5, "p99": pytest.approx(1.99), "max": 2.0},
        "omitted": {"p50": 1.5, "p99": 1.5, "max": 1.5},
    }
    assert told["4096"]["seconds"] is None
