"""Scores of runs of thousands of ranks as figures."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.large.figures import summarise
from benchmarks.large.rankings import SETS, VARIANTS, WHOLE
from benchmarks.large.trial import Alone
from benchmarks.simulated.figures import share
from benchmarks.simulated.scoring import Said
from tests.benchmarks.large.runs import CASE, FAULT, SCORE

THIRD = replace(
    FAULT, kind="tor_slow", places={name: None if name in {SETS, WHOLE} else 3 for name in (SETS, *VARIANTS)}
)
OTHER = replace(SCORE, seed=5, faults=(THIRD,), asked=replace(CASE, seed=5, kind="tor_slow", dimensions=6))
HEALTHY = replace(
    SCORE, seed=4, story="healthy", faults=(), alone=Alone(), asked=replace(CASE, seed=4, kind="", pattern="")
)


def test_places_are_counted_by_ranking_and_by_k() -> None:
    told = summarise([SCORE, OTHER, HEALTHY])
    ranked = told["top_k"]
    assert (ranked["in_top_k"], ranked["first"]) == (share(1, 2), share(1, 2))
    assert told["k"][WHOLE] == {"1": share(1, 2), "2": share(1, 2), "3": share(1, 2), "5": share(1, 2)}
    assert told["k"]["without prior"] == {"1": share(1, 2), "2": share(1, 2), "3": share(2, 2), "5": share(2, 2)}
    assert ranked["by"]["kind"] == {"nic_slow": share(1, 1), "tor_slow": share(0, 1)}
    assert ranked["by"]["dimensions"] == {"3D": share(1, 1), "6D": share(0, 1)}
    assert ranked["strata"] == {"nic_slow, persistent": share(1, 1), "tor_slow, persistent": share(0, 1)}
    assert ranked["by"]["phases and microbatches"] == {"given": share(1, 2)}
    [missed] = told["not_in_top_k"]
    assert (missed["seed"], missed["place"]) == (5, None)


def test_what_the_evidence_does_not_tell_apart_is_counted_beside() -> None:
    """One of 16 spines that tie: in place by the evidence, and not by the rule that binds."""
    tied = replace(FAULT, kind="spine_slow", places={**FAULT.places, WHOLE: 16, SETS: 1})
    told = summarise([replace(SCORE, faults=(tied,), set_sizes=(16,))])
    assert (told["top_k"]["in_top_k"], told["top_k_by_evidence"]["in_top_k"]) == (share(0, 1), share(1, 1))
    assert told["top_k_by_evidence"]["by"]["kind"] == {"spine_slow": share(1, 1)}
    assert told["sizes_by_evidence"] == {16: 1}
    assert [missed["place"] for missed in told["not_in_top_k"]] == [16]


def test_with_several_faults_as_many_places_count() -> None:
    fourth = replace(FAULT, places=dict.fromkeys((SETS, *VARIANTS), 4))
    third = replace(FAULT, places=dict.fromkeys((SETS, *VARIANTS), 3))
    assert summarise([replace(SCORE, faults=(FAULT, third, fourth))])["top_k"]["in_top_k"] == share(2, 3)


def test_a_fault_that_need_not_be_named_is_not_scored() -> None:
    told = summarise([replace(SCORE, faults=(replace(THIRD, weight="between"),))])
    assert told["top_k"]["in_top_k"] is None
    assert told["not_scored"] == 1
    assert told["top_k"]["between"] == told["top_k_by_evidence"]["between"] == {"persistent": share(0, 1)}


def test_what_single_searches_say_is_counted_beside() -> None:
    assert summarise([SCORE, replace(SCORE, alone=Alone(3, 2))])["by_search"] == share(3, 5)
    assert summarise([HEALTHY])["by_search"] is None


def test_seconds_of_three_sigma_are_of_the_runs_that_have_them() -> None:
    timed = replace(SCORE, cost=replace(SCORE.cost, traditional_s=60.0))
    assert summarise([SCORE, timed])["cost_s"]["3_sigma_over_all_logs"] == 60.0
    assert summarise([SCORE])["cost_s"]["3_sigma_over_all_logs"] is None


def test_an_incident_in_a_healthy_run_counts_against_it() -> None:
    said = Said("compute_slow", "device", (1,), ("gpu:h0/1",), (12, 13), 0.9, "false")
    told = summarise([HEALTHY, replace(HEALTHY, said=(said,))])
    assert told["healthy_without_incident"] == share(1, 2)
    assert told["failures"][0]["story"] == "healthy"


def test_what_travels_is_held_beside_what_all_ranks_log() -> None:
    assert summarise([SCORE])["traffic"] == {
        "everything_gb": 0.0,
        "unasked_share": 0.002,
        "answers_share": 0.001,
        "total_share": 0.003,
        "answers_a_search_to_an_iteration": 0.01,
        "rows_a_search": 192,
        "rows_a_search_to_an_iteration": 0.075,
    }


def test_no_runs_give_no_figures() -> None:
    told = summarise([])
    assert told["top_k"]["in_top_k"] is None
    assert told["traffic"] == told["cost_s"] == {}
