"""Verdicts of a comparison as rows of analysis.findings."""

from __future__ import annotations

from diagnosis.collective.comparing import Compared
from diagnosis.collective.course import Iteration
from diagnosis.collective.verdict import Verdict
from diagnosis.irregularity.monitor import IterationMonitor
from streams.traffic_rows import columns_of, found
from tests.diagnosis.collective.made_metrics import Told, job

SLOW = Verdict("compute_slow", "machine", (0, 1), "late_start")
UNEVEN = Verdict("imbalance", "machine", (2, 3), "traffic_map")


def test_who_has_more_to_do_shares_what_was_lost_only_where_nobody_is_at_fault() -> None:
    def shares(*verdicts: Verdict) -> list[tuple[str, float]]:
        return [(row["cause"], row["evidence"]["share"]) for row in found(job(), 7, verdicts, {})]

    assert shares(UNEVEN) == [("imbalance", 1.0)]
    assert shares(SLOW, UNEVEN) == [("compute_slow", 1.0), ("imbalance", 0.0)]
    assert shares(UNEVEN, UNEVEN) == [("imbalance", 0.5), ("imbalance", 0.5)]
    (nobody,) = found(job(), 7, (), {})
    assert nobody["ranks"] == []


def test_a_slow_iteration_is_told_with_what_regular_ones_scatter() -> None:
    told, monitor = Told(), IterationMonitor()
    told.tell("all", 0, 0, 0)
    *_, judgement = [monitor.judge(i, duration) for i, duration in enumerate([100] * 9 + [105, 200])]
    columns = columns_of(Compared(Iteration(10, 200, told.table), judgement, (), 1), 7)
    assert (columns["iteration_ns"], columns["expected_ns"], columns["scatter_ns"]) == (200, 101, 4)


def test_what_hangs_has_nothing_to_share() -> None:
    hangs = [Verdict("hang_hardware", "machine", (0, 1), "silence"), Verdict("hang_not_entered", "machine", (2,), "x")]
    assert [row["evidence"]["share"] for row in found(job(), 7, hangs, {}, "hang")] == [1.0, 1.0]


def test_devices_that_are_not_told_apart_have_equal_parts_of_what_they_are_ranked_by() -> None:
    nic = Verdict("communication_slow", "device", (5,), "actual_time", coverage=0.75)
    rows = found(job(), 7, (SLOW, nic, UNEVEN), {})
    assert [row["evidence"]["irregularity_rate"] for row in rows] == [0.25, 0.375, None]
    assert [len(row["devices"]) for row in rows] == [2, 1, 0]


def test_the_devices_of_a_nic_that_nobody_tells_the_peers_of_are_no_nvlinks() -> None:
    """Of a NIC that alone is silent, or whose communicator is told of by one member alone."""
    for communicator in (None, "not told of"):
        nic = Verdict("hang_hardware", "device", (5,), "silence", communicator)
        (row,) = found(job(), 7, (nic,), {}, "hang")
        assert [device["device"] for device in row["devices"]] == ["nic:h2/mlx5_1"]
