"""Whom incidents name, beside whom the plan made slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gloo
from benchmarks.real_jobs import judged, recorded
from benchmarks.real_jobs.judged import Judged, Outcome, counted, judge, outcome
from benchmarks.real_jobs.plan import SHAPES, Plan, planned
from benchmarks.real_jobs.recorded import TorchMissing, record
from schemas.errors import InputError

HEALTHY = planned(SHAPES["pipeline2-data4"], "healthy", 0)
RECORDED = Path(__file__).parents[2] / "offbeat" / "testdata" / "late_waits"


def slow(rank: int) -> Plan:
    plan = planned(SHAPES["pipeline2-data4"], "gpu", 0)
    assert plan.fault is not None
    return replace(plan, fault=replace(plan.fault, rank=rank))


def told(*named: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {"cause": "compute_slow", "ranks": list(ranks), "iterations": [30, 59], "confidence": 0.9} for ranks in named
    ]


@pytest.mark.parametrize(
    ("plan", "named", "expected", "right"),
    [
        (slow(3), [[3]], Outcome.ALONE, True),
        (slow(3), [[3], [3]], Outcome.ALONE, True),
        (slow(3), [[3], [2, 3]], Outcome.AMONG, False),
        (slow(3), [[3], [2]], Outcome.OTHERS, False),
        (slow(3), [[2, 4]], Outcome.OTHERS, False),
        (slow(3), [], Outcome.NOBODY, False),
        (slow(0), [[0]], Outcome.ALONE, True),
        (HEALTHY, [], Outcome.NOBODY, True),
        (HEALTHY, [[3]], Outcome.OTHERS, False),
    ],
)
def test_outcomes(plan: Plan, named: list[list[int]], expected: Outcome, right: bool) -> None:
    incidents = told(*named)
    assert outcome(plan, incidents) is expected
    assert Judged(plan, expected, incidents).right is right


@pytest.mark.parametrize(
    "wrong", [{"cause": "communication_slow"}, {"cause": "host_slow"}, {"iterations": [3, 4]}, {"iterations": [3, 29]}]
)
def test_an_incident_of_something_else_is_of_others(wrong: dict[str, Any]) -> None:
    [incident] = told([3])
    assert outcome(slow(3), [incident]) is Outcome.ALONE
    assert outcome(slow(3), [{**incident, **wrong}]) is Outcome.OTHERS


def test_outcomes_are_counted() -> None:
    some = [Judged(HEALTHY, each, []) for each in (Outcome.NOBODY, Outcome.OTHERS, Outcome.NOBODY)]
    assert counted(some) == {"jobs": 3, "alone": 0, "among": 0, "others": 1, "nobody": 2}


def test_what_was_recorded_is_diagnosed() -> None:
    found = judge(slow(1), RECORDED)
    assert found.outcome is Outcome.ALONE
    [named] = found.to_dict()["named"]
    assert (named["cause"], named["ranks"]) == ("compute_slow", [1])


def test_the_benchmark_judges_each_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(recorded, "record", lambda plan, folder: made.append((plan, folder)))
    monkeypatch.setattr(judged, "judge", lambda plan, _: Judged(plan, outcome(plan, named := told([4])), named))
    figures = gloo.run(shapes=["data8"], faults=["healthy", "gpu"], seed=1, keep=tmp_path)
    assert [folder for _, folder in made] == [tmp_path / "data8-healthy", tmp_path / "data8-gpu"]
    assert [plan for plan, _ in made] == [planned(SHAPES["data8"], fault, 1) for fault in ("healthy", "gpu")]
    assert figures["by_fault"]["healthy"] == {"jobs": 1, "alone": 0, "among": 0, "others": 1, "nobody": 0}
    assert figures["right"] == figures["by_fault"]["gpu"]["alone"]
    assert [row["slow"] for row in figures["each"]] == [None, made[1][0].fault.rank]


def test_of_kept_jobs_those_are_judged_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "judge", lambda plan, _: Judged(plan, Outcome.NOBODY, []))
    for name in ("data4-nic", "data8-healthy", "another"):
        (tmp_path / name).mkdir()
    figures = gloo.run(kept=tmp_path)
    assert [row["job"] for row in figures["each"]] == ["data8-healthy", "data4-nic"]
    assert figures["by_fault"].keys() == {"healthy", "nic"}
    with pytest.raises(InputError, match="none of these jobs is there"):
        gloo.run(faults=["gpu"], kept=tmp_path)


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match="--shape tensor9: there is no such shape; there are data4, data8"):
        gloo.run(shapes=["tensor9"])
    with pytest.raises(InputError, match="--fault nvlink: there is no such fault; there are healthy, gpu"):
        gloo.run(faults=["nvlink"])


def test_without_pytorch_it_is_said_how_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "find_spec", lambda _: None)
    with pytest.raises(TorchMissing, match="pip install torch"):
        record(HEALTHY, tmp_path / "none")
    assert not (tmp_path / "none").exists()
