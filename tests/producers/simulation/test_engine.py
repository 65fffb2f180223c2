"""Who waits for whom: ends that agree, delays that travel, bubbles that absorb."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.simulation import DEFAULT, SILENT, FabricShape, Fault, Kind, Part, engine, simulate
from producers.simulation.durations import Durations
from producers.simulation.network import SlowDevice
from producers.simulation.noise import Floats
from producers.simulation.truth import iteration_lengths
from schemas.errors import SettingsError
from tests.producers.simulation.small import meetings, silent, small

ALWAYS = tuple(range(12))


def gpu(rank: int, factor: float, part: Part = Part.ALL) -> SlowDevice:
    return SlowDevice(Fault(Kind.GPU_SLOW, rank, ALWAYS, factor=factor, part=part), factor)


def nic(rank: int, factor: float) -> SlowDevice:
    return SlowDevice(Fault(Kind.NIC_SLOW, rank, ALWAYS, factor=factor), factor)


def length(durations: Durations, *devices: SlowDevice) -> float:
    """Of the third iteration."""
    return float(iteration_lengths(engine.run(durations, [devices], range(3)))[2, 0])


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), pp=st.sampled_from([1, 2, 4]), dp=st.sampled_from([1, 2, 4]), ep=st.booleans())
def test_all_members_agree_on_the_end(seed: int, pp: int, dp: int, ep: bool) -> None:
    """On one clock, everybody's end is one point in time, after the last member has started."""
    noise = replace(DEFAULT, clock_offset_s=0.0, clock_drift_ppm=0.0, lost_share=0.0, ring_gap_probability=0.0)
    run = simulate(small(seed, pp=pp, dp=dp, ep=dp if ep else 1, noise=noise, iterations=2))
    members = run.job.members
    for rows in meetings(run).values():
        pair = rows[0]["peer"] is not None
        expected = {rows[0]["rank"], rows[0]["peer"]} if pair else set(members[rows[0]["communicator"]])
        assert {row["rank"] for row in rows} == expected
        assert len({row["end_ns"] for row in rows}) == 1
        assert len({(row["bytes"], row["count"], row["dtype"], row["iteration"]) for row in rows}) == 1
        assert all(row["call_ns"] <= row["start_ns"] for row in rows)
        assert max(row["start_ns"] for row in rows) < rows[0]["end_ns"]


def test_a_rank_does_one_thing_after_the_other() -> None:
    run = simulate(small())
    rank, call = (np.asarray(run.table.column(name)) for name in ("rank", "call_ns"))
    end = np.asarray(run.table.column("end_ns"))
    grouped = np.asarray(run.table.column("peer").is_valid())
    same = (rank[1:] == rank[:-1]) & ~(grouped[1:] & grouped[:-1])
    assert (call[1:] >= end[:-1])[same].all()


def test_a_slow_gpu_delays_everyone() -> None:
    durations = Durations(silent())
    healthy = engine.run(durations, [()], [0])[0]
    slow = engine.run(durations, [(gpu(3, 2.0),)], [0])[0]
    assert (slow.finished > healthy.finished * 1.2).all()


def test_the_part_of_a_pass_that_is_slow_decides() -> None:
    durations = Durations(silent(pp=1))
    base = length(durations)
    forward, backward, both = (length(durations, gpu(1, 1.5, part)) for part in (Part.FORWARD, Part.BACKWARD, Part.ALL))
    assert backward - base == pytest.approx(2 * (forward - base), rel=0.02)
    assert both > backward


def test_bubbles_absorb_a_slow_gpu_of_a_light_stage() -> None:
    """The last stage also projects onto the vocabulary; the first one waits for it anyway."""
    durations = Durations(silent(pp=2, microbatches=8))
    base = length(durations)
    assert length(durations, gpu(0, 1.08)) < base * 1.02
    assert length(durations, gpu(4, 1.08)) > base * 1.04


def test_a_slow_nic_is_slow_both_ways() -> None:
    """Forward passes leave through the first stage's NIC, backward passes come in through it."""
    durations = Durations(silent(dp=1))
    program, base = durations.programs[0], durations.iteration(0, [()])[0].transfers
    slow = durations.iteration(0, [(nic(0, 4.0),)])[0].transfers
    for i, operator in enumerate(program.operators):
        ratio = slow[i, 0] / base[i, 0]
        if operator.op in {"send", "recv"}:
            assert ratio[0] == pytest.approx(4.0, rel=0.02)
            assert ratio[1] == 1.0  # the other tensor rank has a NIC of its own
        elif operator.microbatch is not None:
            assert (ratio == 1.0).all()  # NVLink


def test_a_slow_nic_slows_the_whole_ring() -> None:
    durations = Durations(silent(pp=1, dp=4))
    program, base = durations.programs[0], durations.iteration(0, [()])[0].transfers
    slow = durations.iteration(0, [(nic(2, 3.0),)])[0].transfers
    rings = [i for i, o in enumerate(program.operators) if o.op == "reduce_scatter"]
    assert rings
    for i in rings:
        assert slow[i, 0, ::2] / base[i, 0, ::2] == pytest.approx(np.full(4, 3.0), rel=0.02)
        assert (slow[i, 0, 1::2] == base[i, 0, 1::2]).all()


@settings(max_examples=30)
@given(factor=st.floats(1.0, 50.0), rank=st.integers(0, 7), kind=st.sampled_from(Kind))
def test_slower_devices_never_shorten_anything(factor: float, rank: int, kind: Kind) -> None:
    durations = Durations(small(iterations=2, fabric=FabricShape(hosts_per_pod=2)))
    device = SlowDevice(Fault(kind, rank, ALWAYS, factor=factor), factor)
    times = engine.run(durations, [(device,), ()], range(2))
    for iteration in times:
        assert (iteration.finished[:, 0] >= iteration.finished[:, 1]).all()
        for stage in iteration.stages:
            assert (stage.end[:, 0] >= stage.end[:, 1]).all()


def test_worlds_do_not_disturb_each_other() -> None:
    durations = Durations(small())
    worlds = [(gpu(3, 1.7),), (nic(5, 9.0),), ()]
    together = engine.run(durations, worlds, range(3))[-1].finished
    for w, world in enumerate(worlds):
        alone: Floats = engine.run(durations, [world], range(3))[-1].finished
        assert (together[:, w] == alone[:, 0]).all()


@pytest.mark.parametrize(
    ("kind", "part", "rank", "slowdown"),
    [
        (Kind.GPU_SLOW, Part.ALL, 5, 1.1),
        (Kind.GPU_SLOW, Part.FORWARD, 0, 1.5),
        (Kind.GPU_SLOW, Part.BACKWARD, 7, 2.0),
        (Kind.NIC_SLOW, Part.ALL, 2, 1.3),
    ],
)
def test_a_fault_slows_the_job_as_much_as_it_should(kind: Kind, part: Part, rank: int, slowdown: float) -> None:
    fault = Fault(kind, rank, tuple(range(6, 12)), slowdown=slowdown, part=part)
    truth = simulate(small(faults=(fault,))).truth
    assert np.median(truth.faults[0].slowdowns) == pytest.approx(slowdown, rel=0.03)
    assert truth.faults[0].factor > 1


def test_a_nic_without_traffic_cannot_slow_the_job() -> None:
    fault = Fault(Kind.NIC_SLOW, 1, (4,), slowdown=1.2)
    with pytest.raises(SettingsError, match=r"nic:h0/mlx5_1"):
        simulate(small(pp=1, dp=4, gpus_per_host=8, faults=(fault,)))


def test_healthy_clusters_are_busy_too() -> None:
    """Bursts of other jobs' traffic lengthen transfers."""
    only_bursts = replace(SILENT, burst_probability=1.0)
    quiet, busy = Durations(silent()), Durations(small(noise=only_bursts))
    longer = [
        (busy.iteration(i, [()])[0].transfers > quiet.iteration(i, [()])[0].transfers * 1.01).any() for i in range(12)
    ]
    assert all(longer)
