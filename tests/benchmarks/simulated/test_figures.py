"""Scores as figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulated import figures
from benchmarks.simulated.scoring import IterationScore
from tests.benchmarks.simulated.test_finished import FAULT, SCORE

HEALTHY = replace(
    SCORE, seed=9, story="healthy", faults=(), said=(), iterations=IterationScore(0, 1, 0, 59), searched=0
)
MISSED = replace(FAULT, outcome="missed", cause_right=False, places={"delay attribution": 3, "algorithm 1": 2})
FALSE = replace(SCORE.said[0], verdict="false")


def test_wilson_intervals() -> None:
    # Newcombe (1998), table I, method 3
    for count, of, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        assert figures.share(count, of) == {
            "count": count,
            "of": of,
            "share": pytest.approx(count / of, abs=1e-4),
            "interval_95": [pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4)],
        }
    assert figures.share(0, 0) is None


def test_faults_and_incidents_are_counted() -> None:
    wrong = replace(SCORE, seed=10, faults=(MISSED,), said=(FALSE,))
    told = figures.summarise([SCORE, wrong, HEALTHY])
    assert told["runs"] == {"faulty": 2, "healthy": 1, "ranks": {"32": 3}}
    assert told["faults"]["named"] == figures.share(1, 2)
    assert told["faults"]["missed"] == 1
    assert told["incidents"]["verdicts"] == {"right": 1, "false": 1}
    assert told["incidents"]["false_per_faulty_run"] == 0.5
    assert told["healthy_without_incident"] == figures.share(1, 1)
    assert told["iterations"]["precision"] == figures.share(8, 9)
    assert told["iterations"]["recall"] == figures.share(8, 8)
    assert told["by"]["kind"] == {"nic_slow": figures.share(1, 2)}
    assert told["by"]["iterations"] == {"inferred": figures.share(1, 2)}
    assert [stratum["named"]["of"] for stratum in told["strata"]] == [2]
    [failure] = told["failures"]
    assert (failure["seed"], failure["not_named"][0]["outcome"], failure["wrong"][0]["verdict"]) == (
        10,
        "missed",
        "false",
    )


def test_places_count_up_to_two_or_the_number_of_faults() -> None:
    third = replace(FAULT, places={"delay attribution": 3, "algorithm 1": 1})
    told = figures.summarise([SCORE, replace(SCORE, faults=(MISSED,)), replace(SCORE, faults=(FAULT, FAULT, third))])
    ours, theirs = told["top_k"]["delay attribution"], told["top_k"].get("algorithm 1")
    assert ours["in_top_k"] == figures.share(4, 5)
    assert ours["first"] == figures.share(3, 5)
    assert ours["fetched_rows_share"] == 0.25
    assert theirs is None, "what fetched nothing was not compared"


def test_faults_that_need_not_be_named_do_not_count() -> None:
    absorbed, between = replace(MISSED, weight="absorbed"), replace(FAULT, weight="between")
    told = figures.summarise([replace(SCORE, faults=(absorbed, between), said=())])
    assert told["faults"]["named"] is None
    assert told["faults"]["absorbed_left_alone"] == figures.share(1, 1)
    assert told["faults"]["not_scored"] == 1
    assert told["failures"] == []


def test_no_runs_give_no_figures() -> None:
    told = figures.summarise([])
    assert told["faults"]["named"] is None
    assert told["healthy_without_incident"] is None
    assert told["strata"] == []
