"""Pulse's benchmarks as commands, on the smallest seeded runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import segmentation
from benchmarks.simulated.figures import share
from benchmarks.traffic import straggler
from benchmarks.traffic.busy_host import BusyHost
from diagnosis.traffic.epochs import Poll
from offbeat.settings import Settings
from schemas.catalogue import NIC_EPOCHS, OPERATORS
from schemas.message import decode
from streams.segment import Segment
from tests.offbeat.command_line import offbeat

SEEDS = 30_000


def accuracy(file: Path, *arguments: object) -> tuple[dict[str, Any], str]:
    """The figures of a slow NIC among neighbours and of a healthy run of them, and what was told meanwhile."""
    runs = ("--only", "neighbours/pcie_downgrade/0.2", "--only", "healthy/neighbours")
    options = ("--system", "pulse", "--repeats", 1, "--healthy", 3, "--noise", "default", "--seeds", SEEDS)
    result = offbeat("bench", "accuracy", *options, *runs, "--resume", file, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def test_a_seeded_subset_of_the_accuracy_and_taking_it_up_again(tmp_path: Path) -> None:
    told, progress = accuracy(tmp_path / "finished.jsonl", "--processes", 1)
    assert "2 of 2 runs to do" in progress
    figures = told["noise"]["default"]
    assert figures["runs"] == {"table_4": 1, "beyond": 0, "healthy": 1}
    assert figures["all"]["recall"]["share"] == figures["all"]["precision"]["share"] == 1.0
    assert figures["all"]["device_right"]["share"] == 1.0
    assert figures["healthy"]["without_blame"]["share"] == 1.0
    assert figures["table_3"]["pcie_downgrade"] == {"neighbours": {"right": 1, "to_machine": share(1, 1)}}
    assert figures["failures"] == []

    again, progress = accuracy(tmp_path / "finished.jsonl")
    assert again == told
    assert "0 of 2 runs to do" in progress


CLASSES = (
    "computation_stop/gpt2_70b/gpu_error",
    "computation_slow/gpt2_70b/gpu_throttling/300",
    "communication_stop/mixtral/nic_down",
)
"""But slow communication, which is above."""


def test_a_fault_of_each_other_class_is_found_and_nobody_else_named() -> None:
    only = [part for case in (*CLASSES, "healthy/mixtral") for part in ("--only", case)]
    options = ("--repeats", 1, "--healthy", 2, "--noise", "default", "--seeds", SEEDS, "--json")
    result = offbeat("bench", "accuracy", "--system", "pulse", *options, *only)
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)["noise"]["default"]
    assert figures["runs"] == {"table_4": len(CLASSES), "beyond": 0, "healthy": 1}
    assert figures["all"]["recall"]["share"] == figures["all"]["precision"]["share"] == 1.0
    assert figures["all"]["to_machine"]["share"] == figures["healthy"]["without_blame"]["share"] == 1.0


def test_half_the_bandwidth_shows_in_short_epochs_and_hides_in_long_ones() -> None:
    settings = Settings.load()
    short, long = (
        straggler.seen(straggler.Slowed(SEEDS, 2.0, epoch_ns, at_s=0.0, iterations=2), settings)
        for epoch_ns in (32_000, 1_000_000)
    )

    def over_others(seen: dict[str, float], what: str) -> float:
        return seen[f"straggler_{what}_ms"] / seen[f"others_of_its_group_{what}_ms"]

    assert over_others(short, "actual_time") > 1.25
    assert over_others(short, "duration") < 1.1
    assert over_others(long, "actual_time") < 1.1


def test_by_how_much_a_nic_is_slow_is_counted_for_each_metric() -> None:
    found = straggler.sensed(straggler.Slowed(SEEDS, 2.5), Settings.load())
    assert found.named == {"actual_time": True, "busy_epochs": True}
    assert found.false == {"actual_time": False, "busy_epochs": False}
    told = straggler.recall([found, replace(found, named=dict.fromkeys(found.named, False))])
    assert {metric: of["2.5"]["named"]["count"] for metric, of in told.items()} == dict.fromkeys(found.named, 1)
    assert told["actual_time"]["2.5"]["others_named"] == 0


def test_a_busy_host_keeps_the_line_full_and_a_quarter_of_the_epochs_active() -> None:
    host = BusyHost(nics=2, flows=8, line_gbps=400.0, sending=0.26)
    polls = Poll.by_nic(decode(next(m for m in host.messages(0) if m.topic == NIC_EPOCHS.name), NIC_EPOCHS))
    assert sorted(polls) == ["mlx5_0", "mlx5_1"]
    [poll] = polls["mlx5_0"]
    assert poll.qpn is not None
    assert (np.unique(poll.qpn, return_counts=True)[1] >= host.epochs_a_poll / 4).all()
    sent = int(poll.units.sum()) * poll.unit_bytes
    assert abs(sent / (0.26 * 400e9 / 8) - 1) < 0.01


@pytest.mark.parametrize(("ring", "algorithm"), [(True, "ring"), (False, "point_to_point")])
def test_each_operator_of_a_busy_host_is_found_whole(ring: bool, algorithm: str) -> None:
    host = BusyHost(nics=1, flows=8, line_gbps=400.0, sending=0.26, ring=ring)
    segment = Segment({host.job.job: host.job})
    told = [out for poll in range(3) for message in host.messages(poll) for out in segment.process(message)]
    rows = [row for out in told if out.topic == OPERATORS.name for row in decode(out, OPERATORS).to_pylist()]
    assert {(row["state"], row["algorithm"]) for row in rows} == {("complete", algorithm)}
    ratios = {row["sent_bytes"] / row["expected_bytes"] for row in rows}
    assert [min(ratios), max(ratios)] == pytest.approx([host.hardware.overhead] * 2, rel=0.01)


def test_how_many_nics_a_core_keeps_up_with_beside_a_plain_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmentation, "HOSTS", {"few": (2, 4, 400.0, 0.26, True)})
    result = offbeat("bench", "segmentation", "--polls", 2, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["few"]
    assert (told["nics"], told["flows"]) == (2, 4)
    assert told["active_epochs_share"] == pytest.approx(0.26, abs=0.01)
    assert told["operators_a_nic_and_second"] > 0
    assert told["nics_a_core"] == pytest.approx(1 / told["cpu_s_a_nic_and_second"], rel=0.05)
    ratio = told["cpu_s_a_nic_and_second"] / told["plain_pass_s_a_nic_and_second"]
    assert told["over_plain_pass"] == pytest.approx(ratio, rel=0.1)
    assert 0 < told["largest_message_bytes"] < 1 << 20
