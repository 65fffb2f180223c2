"""Healthy runs vary as real ones do; `pytest -s` prints the figures of both."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from producers.simulation import DEFAULT, HARD, SILENT, Scenario, SimulatedRun, simulate
from producers.simulation.noise import Draws, Floats, Purpose, factors, gpu_speeds, rank_series

SAMPLES = Path(os.environ.get("OFFBEAT_SAMPLES", Path(__file__).parents[4] / "shared" / "samples"))
WARM = 5


def cv(values: Sequence[float] | Floats) -> float:
    """Coefficient of variation."""
    return float(np.std(values) / np.mean(values))


def core_cv(series: Iterable[Sequence[float]]) -> float:
    """Median CV of series of identical operators, without what exceeds twice the median."""
    spreads = []
    for values in series:
        kept = np.asarray(values)
        spreads.append(cv(kept[kept < 2 * np.median(kept)]))
    return float(np.median(spreads))


def beyond(series: Iterable[Sequence[float]], times: float) -> float:
    """Share of operators beyond a multiple of their series' median."""
    outside = [np.asarray(values) > times * np.median(values) for values in series]
    return float(np.mean(np.concatenate(outside)))


def iterations_s(run: SimulatedRun) -> Floats:
    """Lengths of the iterations after warm-up."""
    return np.asarray(run.truth.durations_ns[WARM:]) / 1e9


def recorded(folder: Path) -> tuple[Floats, list[list[float]]]:
    """Iteration lengths of a recorded run, and the durations of each operator over its iterations."""
    starts: dict[int, int] = {}
    operators: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for file in sorted(folder.glob("rank*.jsonl.gz")):
        place: dict[tuple[object, ...], int] = defaultdict(int)
        with gzip.open(file, "rt") as rows:
            for row in map(json.loads, rows):
                key = (row["rank"], row["comm"], row["iteration"])
                place[key] += 1
                if row["rank"] == 0:
                    starts.setdefault(row["iteration"], row["call_ns"])
                if row["iteration"] >= WARM:
                    operators[row["rank"], row["comm"], place[key]].append(row["end_ns"] - row["call_ns"])
    lengths = np.diff([starts[i] for i in sorted(starts)])[WARM:] / 1e9
    return lengths, list(operators.values())


def logged(run: SimulatedRun) -> list[list[float]]:
    """Durations of each operator over a simulated run's iterations, waiting included."""
    operators: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in run.table.to_pylist():
        if row["iteration"] >= WARM:
            operators[row["rank"], row["communicator"], row["position"]].append(row["end_ns"] - row["call_ns"])
    return list(operators.values())


def transfers(run: SimulatedRun) -> list[list[float]]:
    """Durations of tensor-parallel operators without waiting: from the last start to the end, by size."""
    members = run.job.members
    meetings: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for row in run.table.to_pylist():
        if run.job.on_one_host(members[row["communicator"]]) and row["peer"] is None:
            meetings[row["communicator"], row["seq"]].append((row["start_ns"], row["end_ns"], row["bytes"]))
    identical: dict[int, list[float]] = defaultdict(list)
    for (communicator, _), rows in meetings.items():
        if len(rows) == len(members[communicator]):
            start, end, size = max(rows)
            identical[size].append(end - start)
    return [durations for durations in identical.values() if len(durations) > 500]


@pytest.fixture(scope="module")
def default_run() -> SimulatedRun:
    return simulate(Scenario(seed=11, tp=4, pp=2, dp=2, hidden=4096, microbatches=4, layers=4))


def test_identical_operators_vary_as_recorded_ones(default_run: SimulatedRun) -> None:
    """Recorded: CV 5-9 %, 0.4 % beyond twice the median."""
    series = transfers(default_run)
    figures = (core_cv(series), beyond(series, 2))
    print(f"\nidentical operators: CV {figures[0]:.1%}, beyond twice the median {figures[1]:.2%}")
    recording = SAMPLES / "aicb" / "A100_example.csv.gz"
    if recording.exists():
        measured: dict[tuple[str, ...], list[float]] = defaultdict(list)
        with gzip.open(recording, "rt") as rows:
            for row in csv.DictReader(rows):
                if row["_elapsed_time"] != "None" and row["stage"].startswith(("forward", "backward")):
                    key = (row["comm_type"], row["comm_group"], row["msg_size"], row["stage"])
                    measured[key].append(float(row["_elapsed_time"]))
        frequent = [values for values in measured.values() if len(values) > 500]
        print(f"aicb sample:         CV {core_cv(frequent):.1%}, beyond twice the median {beyond(frequent, 2):.2%}")
        assert figures[0] == pytest.approx(core_cv(frequent), rel=0.6)
        assert figures[1] == pytest.approx(beyond(frequent, 2), rel=0.6)
    assert 0.05 < figures[0] < 0.09
    assert 0.001 < figures[1] < 0.008


def test_iterations_of_a_healthy_job_vary_as_recorded_ones(default_run: SimulatedRun) -> None:
    figures = (cv(iterations_s(default_run)), core_cv(logged(default_run)))
    print(f"\nsimulated:    iterations CV {figures[0]:.2%}, logged operators CV {figures[1]:.0%}")
    if (SAMPLES / "gloo" / "healthy_3d_1").exists():
        lengths, operators = recorded(SAMPLES / "gloo" / "healthy_3d_1")
        print(f"gloo sample:  iterations CV {cv(lengths):.2%}, logged operators CV {core_cv(operators):.0%}")
        assert figures[1] == pytest.approx(core_cv(operators), rel=0.6)
    assert 0.01 < figures[0] < 0.02


@pytest.mark.parametrize("layout", [(8, 4, 2), (2, 4, 4), (4, 2, 8)])
def test_profiles_keep_their_promise(layout: tuple[int, int, int]) -> None:
    """Iterations of healthy jobs: 1-2 % under the default profile, 5-7 % under the hard one."""
    tp, pp, dp = layout
    mean = {}
    for name, noise in (("default", DEFAULT), ("hard", HARD)):
        runs = [simulate(Scenario(seed=s, tp=tp, pp=pp, dp=dp, layers=2 * pp, noise=noise)) for s in range(3)]
        mean[name] = float(np.mean([cv(iterations_s(run)) for run in runs]))
    print(f"\nTP{tp} PP{pp} DP{dp}: " + ", ".join(f"{name} {value:.2%}" for name, value in mean.items()))
    assert 0.01 < mean["default"] < 0.02
    assert 0.045 < mean["hard"] < 0.075


def test_the_correlated_terms_do_not_average_out() -> None:
    """Operators alone leave less than a per cent; the common term and the ranks' wandering make the rest."""
    alone = replace(SILENT, operator_cv=DEFAULT.operator_cv, kernels_per_segment=DEFAULT.kernels_per_segment)
    scenario = Scenario(seed=3, tp=4, pp=2, dp=2, layers=4)
    jitter = cv(iterations_s(simulate(replace(scenario, noise=alone))))
    everything = cv(iterations_s(simulate(scenario)))
    assert jitter < 0.005
    assert everything > 0.01


def test_static_speeds_and_wandering_have_their_sigma() -> None:
    draws = Draws(5)
    assert cv(gpu_speeds(draws, 4000, DEFAULT)) == pytest.approx(0.02, rel=0.1)
    series = np.log(rank_series(draws, 200, 200, DEFAULT))
    assert series.std() == pytest.approx(0.015, rel=0.1)
    lagged = np.corrcoef(series[:-1].ravel(), series[1:].ravel())[0, 1]
    assert lagged == pytest.approx(0.9, abs=0.03)


def test_long_operators_vary_less_than_short_ones() -> None:
    quiet = replace(DEFAULT, outlier_share=0.0)
    short = factors(Draws(1).stream(Purpose.OPERATORS), np.ones(20_000), quiet)
    long = factors(Draws(1).stream(Purpose.OPERATORS), np.full(20_000, 16.0), quiet)
    assert short.mean() == pytest.approx(1.0, abs=0.005)
    assert cv(short) == pytest.approx(0.07, rel=0.05)
    assert cv(long) == pytest.approx(0.07 / 4, rel=0.05)


def test_any_iteration_can_be_drawn_without_the_others() -> None:
    draws = Draws(9)
    together = [draws.stream(Purpose.OPERATORS, 3, i).random(4) for i in range(5)]
    assert (draws.stream(Purpose.OPERATORS, 3, 4).random(4) == together[4]).all()
    different = {tuple(draws.stream(p, r, i).random(2)) for p in Purpose for r in range(3) for i in range(3)}
    assert len(different) == len(Purpose) * 9
