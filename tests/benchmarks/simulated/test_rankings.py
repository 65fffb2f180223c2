"""Devices ranked over iterations."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.simulated.detection import Detection, detect
from benchmarks.simulated.published import implicated
from benchmarks.simulated.rankings import (
    ALL_PLACES,
    SHIPPED,
    Ranking,
    by_algorithm_1,
    by_findings,
    compared,
    implications,
    scores,
)
from diagnosis.operator_graph.algorithm_1 import COMPUTE, NETWORK, Root
from diagnosis.operator_graph.leaf import Leaf, OperatorRef
from diagnosis.operator_graph.locate import LocateSettings
from diagnosis.ranking.devices import Implication, rank
from diagnosis.topology import Device
from offbeat.settings import Settings
from producers.simulation import FabricShape, LazyRun, Scenario
from tests.benchmarks.simulated.runs import JOB, slow_gpu, telemetry_of

FOREST = f"algorithm 1, {SHIPPED}"
GPU, OTHER, NIC = Device("gpu:h0/5", "gpu", 0), Device("gpu:h0/2", "gpu", 0), Device("nic:h0/mlx5_1", "nic", 1)


def finding(*devices: Device, rate: float | None, iteration: int = 20, **columns: Any) -> dict[str, Any]:
    """A row of analysis.findings, as far as a ranking looks at it."""
    return {
        "active": True,
        "iteration": iteration,
        "ranks": [5],
        "devices": [{"device": d.device, "kind": d.kind, "downside_nics": d.downside_nics} for d in devices],
        "evidence": {"irregularity_rate": rate, "operator_ns": [], "iteration_ns": []},
        **columns,
    }


def test_the_scores_are_those_of_the_ranking_that_users_see() -> None:
    evidence = [Implication(0.9, (GPU,)), Implication(0.4, (OTHER, NIC)), Implication(0.4, (OTHER,))]
    ranking = Ranking()
    ranking.add(evidence[:1], fetched_rows=10, all_rows=100)
    ranking.add(evidence[1:], fetched_rows=20, all_rows=100)
    assert ranking.scores == {device.device: device.score for device in rank(evidence, ALL_PLACES)}
    assert ranking.fetched_share == pytest.approx(0.15)


def test_a_device_that_only_its_prior_speaks_against_has_no_score() -> None:
    assert scores([Implication(0.0, (GPU,)), Implication(0.5, (NIC,))])[GPU.device] == 0.0


def test_each_finding_of_a_culprit_counts_by_its_series() -> None:
    series = {"irregularity_rate": 0.1, "operator_ns": [1, 2, 3, 9], "iteration_ns": [11, 12, 13, 19]}
    found = [
        finding(GPU, rate=0.1, evidence=series),
        finding(GPU, NIC, rate=0.3),
        finding(OTHER, rate=None),
        finding(rate=None, ranks=[], evidence=None),
        finding(GPU, rate=0.5, active=False),
    ]
    told = implications(found)
    assert [implication.devices for implication in told] == [(GPU,), (GPU, NIC), (OTHER,)]
    assert [implication.rate for implication in told] == pytest.approx([1.0, 0.3, 0.0])


@pytest.mark.parametrize("fabric", [None, FabricShape(hosts_per_pod=1, spines=2)], ids=["no fabric", "fabric"])
def test_a_slow_group_implicates_all_that_carries_its_traffic(fabric: FabricShape | None) -> None:
    scenario = Scenario(seed=3, tp=2, pp=2, dp=4, microbatches=4, layers=4, iterations=12, fabric=fabric)
    job = LazyRun(scenario).job
    leaf = Leaf(5, "dp0", (5, 13), 1, 10, OperatorRef(5, "dp0", 0, "all_reduce"), (5,))
    assert implicated(job, Root(COMPUTE, leaf, leaf.operator)) == (job.gpu(5),)
    kinds = {device.kind for device in implicated(job, Root(NETWORK, leaf, leaf.operator))}
    assert kinds >= ({"nic"} if fabric is None else {"nic", "link", "tor", "spine"})


@pytest.fixture(scope="module")
def detection() -> Detection:
    return detect(telemetry_of(slow_gpu()), Settings())


def test_both_searches_rank_the_slow_gpu_first(detection: Detection) -> None:
    telemetry, settings = telemetry_of(slow_gpu()), LocateSettings()
    rankings = {"ours": by_findings(telemetry, detection, settings), **by_algorithm_1(telemetry, detection, settings)}
    assert set(rankings) == {"ours", "algorithm 1, 1 sigma", "algorithm 1, 3 sigma", FOREST}
    near = {JOB.gpu(rank).device for rank in (4, 5)}  # a forest may name the neighbour in the tensor group
    for name, first in (("ours", {JOB.gpu(5).device}), ("algorithm 1, 3 sigma", {JOB.gpu(5).device}), (FOREST, near)):
        told = rankings[name].scores
        assert max(told, key=lambda device: told[device]) in first
        assert 0 < rankings[name].fetched_share <= 1


def test_only_the_compared_iterations_count(detection: Detection) -> None:
    own = by_findings(telemetry_of(slow_gpu()), detection, LocateSettings())
    assert len(detection.searched) > len(compared(detection))
    assert len(own.evidence) == sum(
        row["active"] and bool(row["ranks"]) and row["iteration"] in compared(detection) for row in detection.findings
    )
