"""The answer as a person reads it."""

import io
from typing import Any

import pytest
from rich.console import Console

from offbeat.report import headline, print_answer, refusals

INCIDENT: dict[str, Any] = {
    "id": "i1",
    "cause": "compute_slow",
    "level": "device",
    "ranks": [2],
    "candidates": [],
    "devices": ["gpu:h0/2"],
    "iterations": [4, 9],
    "pattern": "persistent_degradation",
    "confidence": 0.974,
    "lost_gpu_seconds": 812.04,
    "stage": {"phase": "forward", "pipeline_stage": 1, "microbatch": None, "op": "all_reduce"},
    "network": None,
    "methods": ["operator_graph"],
    "explanation": "Rank 2 computes slowly. Check it.",
    "rule": None,
    "measures": None,
}


def read(width: int = 200, **changes: Any) -> str:
    answer = {
        "job": "j",
        "layout": {"tp": 2, "pp": 4, "dp": 1, "source": "inferred"},
        "iterations": {"count": 40, "judged": 30, "median_ms": 2210.0, "irregular": [14, 15, 16, 19], "pauses": []},
        "coverage": {"ranks_seen": 7, "ranks_expected": 8, "lines_read": 3999, "lost_lines": 1, "partial": []},
        "incidents": [],
        "notes": [],
    }
    out = io.StringIO()
    print_answer(answer | changes, Console(file=out, width=width, highlight=False, markup=False))
    return out.getvalue()


def test_nothing_wrong_is_said_as_such() -> None:
    assert read() == (
        "j: 8 ranks (tp=2 pp=4 dp=1, inferred), 40 iterations, median 2.21 s\n"
        "irregular iterations: 14-16, 19\n"
        "telemetry: 7 of 8 ranks, 1 lost line (less than 0.1%)\n"
        "\n"
        "nothing wrong\n"
    )


def test_pauses_are_told() -> None:
    pauses = [{"after": 4, "ms": 2000.0}, {"after": 9, "ms": 2100.5}, {"after": 10, "ms": 4000.0}]
    told = read(iterations={"count": 40, "judged": 30, "median_ms": 2210.0, "irregular": [], "pauses": pauses})
    assert "\npauses of all ranks: after 4, 9-10, 8.10 s beyond the usual: nobody's fault\n" in told


def test_what_could_not_be_told_is_not_called_well() -> None:
    told = read(notes=["too few iterations", "too few logs"])
    assert told.endswith("1 lost line (less than 0.1%)\n\ntoo few iterations\n\ntoo few logs\n")


def test_one_is_not_told_as_several() -> None:
    single = read(
        layout=None,
        iterations={"count": 1, "judged": 0, "median_ms": None, "irregular": [], "pauses": []},
        coverage={"ranks_seen": 1, "ranks_expected": 1, "lines_read": 14, "lost_lines": 2, "partial": []},
    )
    assert single.startswith("j: 1 rank, 1 iteration\n")
    assert "telemetry: 1 of 1 rank, 2 lost lines (12.5%)\n" in single


def test_what_is_not_known_is_left_out() -> None:
    unknown = read(
        layout=None,
        iterations={"count": 0, "judged": 0, "median_ms": None, "irregular": [], "pauses": []},
        coverage={"ranks_seen": 8, "ranks_expected": 8, "lines_read": 0, "lost_lines": 0, "partial": []},
    )
    assert unknown.startswith(
        "j: 8 ranks, 0 iterations\nirregular iterations: none\ntelemetry: 8 of 8 ranks, no lost lines\n"
    )


def test_an_incident_says_what_where_and_how_sure() -> None:
    assert read(incidents=[INCIDENT]).partition("\n\n")[2] == (
        "1. compute_slow: rank 2 (gpu:h0/2)\n"
        "   Rank 2 computes slowly. Check it.\n"
        "   iterations 4-9, persistent_degradation\n"
        "   seen at: forward, pipeline stage 1, all_reduce\n"
        "   lost: 812 GPU-seconds\n"
        "   level device, confidence 0.97 by operator_graph\n"
    )


def test_a_narrow_terminal_breaks_between_words() -> None:
    shown = read(width=24, incidents=[INCIDENT])
    assert "   Rank 2 computes\n   slowly. Check it.\n" in shown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "compute_slow: rank 2 (gpu:h0/2)"),
        ({"ranks": [2, 3], "devices": []}, "compute_slow: ranks 2-3"),
        ({"ranks": [2, 5], "candidates": [[2], [5]], "devices": []}, "compute_slow: ranks 2 or 5"),
        ({"ranks": [0, 1, 4, 5], "candidates": [[0, 1], [4, 5]], "devices": []}, "compute_slow: ranks 0-1 or 4-5"),
        ({"ranks": [0, 1], "candidates": [[0, 1]], "devices": []}, "compute_slow: ranks 0-1"),
    ],
)
def test_the_headline_says_all_or_one_of_them(changes: dict[str, Any], said: str) -> None:
    assert headline(INCIDENT | changes) == said


def test_what_was_refused_is_said_in_a_few_lines() -> None:
    assert refusals([]) == []
    assert refusals(["bad"]) == ["part of the telemetry could not be used: bad"]
    assert len(refusals(["bad"] * 3)) == 3
    assert refusals(["bad"] * 4)[3:] == ["and 1 more record of it"]
    assert refusals(["bad"] * 40)[3:] == ["and 37 more records of it"]
