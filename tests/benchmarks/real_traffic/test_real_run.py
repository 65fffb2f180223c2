"""Between real namespaces: operators and a throttled rank are found, or it is said what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from statistics import median

import pytest

from benchmarks import namespaces, rank_processes
from benchmarks.network import KernelRefused, Namespace
from benchmarks.real_traffic import experiment
from benchmarks.real_traffic.experiment import recorded
from benchmarks.real_traffic.judged import BOUNDARY_EPOCHS, judge
from benchmarks.real_traffic.plan import Plan
from benchmarks.real_traffic.telemetry import Recorded

PLAN = Plan(ranks=4, iterations=1, throttled=2, chunk_bytes=2 << 20, exchanged_bytes=5 << 20, pause_s=0.3, seed=1)


@pytest.fixture(scope="module")
def run() -> Recorded:
    try:
        return recorded(PLAN)
    except KernelRefused as refused:
        pytest.skip(str(refused))


def test_a_throttled_rank_is_named_by_what_was_on_the_wire(run: Recorded) -> None:
    found = judge(run)
    assert run.packets.dropped == 0
    assert found.metrics.column("state").to_pylist() == ["complete"] * 2 * PLAN.ranks
    assert set(found.metrics.column("algorithm").to_pylist()) == {"ring", "point_to_point"}
    # a busy machine lets a rank log an end late, so that single ones tell nothing here
    starts = [one.start_epochs for one in found.boundaries if one.start_epochs is not None]
    ends = [one.end_epochs for one in found.boundaries if one.end_epochs is not None]
    assert len(starts) == len(ends) == 2 * PLAN.ranks
    assert abs(median(starts)) <= BOUNDARY_EPOCHS
    assert abs(median(ends)) <= BOUNDARY_EPOCHS
    assert [(verdict.cause, verdict.ranks) for verdict in found.verdicts] == [("communication_slow", (2,))]


def test_the_command_says_what_is_not_as_it_should_be(run: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 2 is slow in all runs: right in the third with a throttled rank, and wrong where none is throttled."""
    monkeypatch.setattr(experiment, "recorded", lambda plan: replace(run, plan=plan))
    figures = namespaces.run(ranks=PLAN.ranks, iterations=1, runs=3)
    throttled, healthy = figures["throttled"], figures["healthy"]
    assert [row["right"] for row in throttled["each"]] == [False, False, True]
    assert throttled["right"] == 1
    assert throttled["each"][2]["all_reduce"]["actual_time_ns"] > 1.2
    assert throttled["each"][2]["all_to_all"]["actual_rate_bytes_per_s"] < 0.8
    assert [row["named"] for row in healthy["each"]] == 3 * [throttled["each"][0]["named"]]
    assert healthy["named"] == 3
    assert not figures["holds"]
    assert figures["boundaries"]["operators"] == 6 * 2 * PLAN.ranks


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(KernelRefused, match="ip is not installed; Debian has it in the package iproute2"):
        recorded(PLAN)


def test_what_the_kernel_refuses_is_named() -> None:
    try:
        namespace = Namespace()
    except KernelRefused as refused:
        pytest.skip(str(refused))
    try:
        with pytest.raises(KernelRefused, match=r'`ip link set nothing up`: Cannot find device "nothing"'):
            namespace.configure("ip", "link", "set", "nothing", "up")
    except FileNotFoundError:
        pytest.skip("iproute2 is not installed")
    finally:
        namespace.close()


def test_namespaces_are_refused_to_those_without_privileges() -> None:
    code = "from benchmarks.network import Namespace; Namespace()"
    without = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    ended = subprocess.run([*without, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "KernelRefused: a network namespace: Operation not permitted; run as root" in ended.stderr


def test_a_rank_ends_with_whoever_started_it() -> None:
    code = (
        f"import threading; from {rank_processes.__name__} import leave_with_parent;"
        "threading.Thread(target=leave_with_parent, daemon=True).start(); threading.Event().wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 1
