"""Gaps, idle time and stretched operators are nowhere set: they come of slices, buffers, proxies and lines."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from producers.simulation.nic import slices
from producers.simulation.nic.hardware import MIB, Hardware
from producers.simulation.nic.proxies import Service
from tests.producers.simulation.nic.rings import ORDER, STRAGGLER, SUCCESSOR, run_ring

LOSSLESS = Hardware(loss_share=0.0)
SMALL_SLICES = Hardware(loss_share=0.0, slice_bytes=128 << 10)


@pytest.mark.parametrize("slowdown", [1.5, 2.0, 3.0, 5.0])
def test_a_straggler_leaves_gaps_of_40_microseconds_times_what_it_is_slower(slowdown: float) -> None:
    """At 400 Gb/s, two channels and slices of 1 MB (Pulse 6.1); headers make 40 of them 42.6."""
    ring = run_ring(LOSSLESS, slowdown)
    expected = 40e-6 * LOSSLESS.overhead * MIB / 1e6 * (slowdown - 1)
    assert ring.usual_gap(SUCCESSOR) == pytest.approx(expected, abs=4e-6)
    assert float(np.median(ring.gaps(STRAGGLER))) < 5e-6


@pytest.mark.parametrize(
    ("gbps", "channels", "slice_bytes"), [(800, 4, MIB // 2), (800, 2, MIB // 2), (200, 2, MIB), (400, 4, MIB // 2)]
)
def test_gaps_are_as_long_as_a_slice_takes_at_other_settings(gbps: int, channels: int, slice_bytes: int) -> None:
    hardware = dataclasses.replace(LOSSLESS, line_gbps=gbps, channels=channels, slice_bytes=slice_bytes)
    ring = run_ring(hardware, 2.0)
    slice_s = slice_bytes * hardware.overhead * channels / hardware.line_bytes_per_s
    assert ring.usual_gap(SUCCESSOR) == pytest.approx(slice_s, abs=4e-6)


def test_a_straggler_sends_in_most_epochs_and_all_ranks_last_as_long() -> None:
    usual, slow = run_ring(LOSSLESS), run_ring(LOSSLESS, 2.0)
    assert slow.took > 1.6 * usual.took
    active = {rank: slow.active_epochs(rank) for rank in ORDER}
    others = [active[rank] for rank in ORDER if rank != STRAGGLER]
    assert active[STRAGGLER] > 1.2 * max(others)
    assert max(others) < 1.4 * max(usual.active_epochs(rank) for rank in ORDER)


def test_a_receiver_whose_kernel_is_late_lets_in_no_more_than_its_buffers_hold() -> None:
    late = 3e-3
    ring = run_ring(LOSSLESS, op="send", late={SUCCESSOR: late})
    for began, _ in ring.slices(STRAGGLER):
        held = int((began < late).sum())
        assert held == LOSSLESS.slots
        assert began[held] - began[held - 1] > late / 2
    assert ring.took > late


def test_a_busy_cpu_stretches_the_collective_but_not_the_time_in_which_something_is_sent() -> None:
    usual = run_ring(LOSSLESS)
    busy = run_ring(LOSSLESS, service=Service(stall_share=0.05, stall_s=400e-6, tail=1.3, longest_s=4e-3))
    assert busy.took > 1.3 * usual.took
    for rank in ORDER:
        assert busy.active_epochs(rank) < 1.2 * usual.active_epochs(rank)


def test_few_buffers_leave_gaps_where_many_leave_none() -> None:
    few, many = (run_ring(dataclasses.replace(SMALL_SLICES, slots=slots)) for slots in (2, 16))
    assert few.took > 1.05 * many.took


@pytest.mark.parametrize("op", ["reduce_scatter", "all_gather", "all_reduce", "tree"])
def test_no_byte_is_lost(op: str) -> None:
    """What is counted is what was sent, but for a remainder below one event of each queue pair."""
    ring = run_ring(LOSSLESS, op=op, size=(16 * MIB) + 12_345 * 64)
    sent = ring.transport.wire
    remainder = sent - ring.counted()
    assert ((remainder > -1) & (remainder < LOSSLESS.aggregation_bytes)).all()
    data = sent[: len(ring.plan.source) - 1]
    assert data.sum() == pytest.approx(np.diff(ring.plan.ends)[np.diff(ring.plan.ends) > 0].sum(), rel=1e-9)


def test_each_rank_of_a_ring_sends_its_share() -> None:
    size, members = 64 * MIB, len(ORDER)
    factor = {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 2}
    for op, times in factor.items():
        ring = run_ring(LOSSLESS, op=op, size=size)
        sent = np.bincount(ring.plan.source[:-1], ring.transport.wire[: len(ring.plan.source) - 1])
        assert sent == pytest.approx([times * size * (members - 1) / members * LOSSLESS.overhead] * members)


def test_lost_packets_are_sent_again() -> None:
    lossy = dataclasses.replace(LOSSLESS, loss_share=0.2)
    sent = [run_ring(hardware).transport.wire.sum() for hardware in (LOSSLESS, lossy)]
    assert 1.005 * sent[0] < sent[1] < 1.2 * sent[0]


@pytest.mark.parametrize("size", [512, 64 << 10, 1 << 20])
def test_small_operators_carry_flags_along(size: int) -> None:
    protocol = LOSSLESS.protocol(size)
    steps = slices.transfer(size, 0, True, LOSSLESS)
    assert steps.sizes.sum() * (1 if protocol.channels == 1 else 2) == pytest.approx(
        size * protocol.expansion, rel=0.01
    )
    assert protocol.name == ("LL" if size <= 64 << 10 else "LL128")


@pytest.mark.parametrize("members", range(2, 40))
def test_both_trees_reach_everyone_and_are_binary(members: int) -> None:
    for mirrored in (False, True):
        above = slices.parents(members, mirrored)
        assert above.count(-1) == 1
        assert max(above.count(node) for node in range(members)) <= slices.FAN
        for node in range(members):
            path = [node]
            while above[path[-1]] >= 0:
                path.append(above[path[-1]])
                assert len(path) <= members
