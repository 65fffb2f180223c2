"""Faults change lines, proxies, computing and a NIC's state; what follows from that is seen in the traffic."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from producers.simulation.nic import QUIET, Fault, Injection, NicScenario, Workload
from producers.simulation.nic.capacity import Capacity
from producers.simulation.nic.faults import SEVERITIES, Class
from producers.simulation.nic.lines import Lines
from producers.simulation.nic.training import programs_of
from schemas.errors import SettingsError
from tests.producers.simulation.nic.small import EXPERTS, PIPELINE, SMALL, Told, column, told

RANK = 4
"""On host 2; its ring has one member on each host."""

AT_S = 0.04
QUIET_JOB = dataclasses.replace(SMALL, noise=QUIET, forward_s=0.002, gradient_bytes=4_000_000_000)


def broken(injection: Injection, severity: float = 0.5, base: NicScenario = QUIET_JOB, **fields: Any) -> Told:
    """A run with a fault from the middle on."""
    fault = Fault(injection, RANK, AT_S, severity, **fields)
    return told(dataclasses.replace(base, faults=(fault,)))


def data_sent(heard: Told, from_ns: int = 0) -> dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Epochs (by a perfect clock, ns) and bytes of all mapped queue pairs of each rank."""
    known = {(row["source_rank"], row["qpn"]) for row in heard.map}
    clocks = {heard.rank_of(p["host"], p["nic"]): p["host_minus_nic_ns"] for p in heard.polls}
    found: dict[int, list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]] = {}
    for (rank, number), (times, sizes) in heard.counted.items():
        if (rank, number) in known:
            aligned = times + clocks[rank]
            later = aligned >= from_ns
            found.setdefault(rank, []).append((aligned[later], sizes[later]))
    return {r: (np.concatenate([t for t, _ in p]), np.concatenate([b for _, b in p])) for r, p in found.items()}


def ring_of(rank: int) -> list[int]:
    """The ranks of the same column."""
    return list(range(rank % SMALL.tp, SMALL.world, SMALL.tp))


def active_epochs(heard: Told, rank: int, from_ns: int) -> int:
    """Epochs of queue pairs in which something was sent, from a time on."""
    return len(data_sent(heard, from_ns)[rank][0])


def duration_ms(heard: Told) -> float:
    """What the iterations take that the fault is in from their beginning."""
    ends = heard.run.truth.iteration_ends_ns.max(axis=1)
    return float(ends[-2] - ends[-3]) / 1e6


@pytest.mark.parametrize(
    "injection",
    [Injection.PCIE_DOWNGRADE, Injection.PCIE_CONTENTION, Injection.CONGESTION, Injection.MEMORY_ALIGNMENT],
)
def test_a_slow_line_sends_longer_than_its_ring(injection: Injection) -> None:
    heard, usual = broken(injection), told(QUIET_JOB)
    assert duration_ms(heard) > 1.1 * duration_ms(usual)
    start = heard.run.truth.iteration_ends_ns.max(axis=1)[1]
    active = {rank: active_epochs(heard, rank, int(start)) for rank in ring_of(RANK)}
    others = [active[rank] for rank in ring_of(RANK) if rank != RANK]
    assert active[RANK] > 1.15 * max(others)
    elsewhere = [active_epochs(heard, rank, int(start)) for rank in ring_of(RANK + 1)]
    assert max(elsewhere) < active[RANK]


def test_congestion_leaves_no_flow_in_the_nic_and_loopback_does() -> None:
    usual, congested, looped = (
        set(heard.counted)
        for heard in (told(QUIET_JOB), broken(Injection.CONGESTION), broken(Injection.PCIE_CONTENTION))
    )
    assert congested == usual
    [(rank, number)] = looped - usual
    assert rank == RANK
    assert (rank, number) not in {(row["source_rank"], row["qpn"]) for row in broken(Injection.PCIE_CONTENTION).map}


def test_the_way_to_a_far_socket_has_a_rate_that_fluctuates() -> None:
    scenario = dataclasses.replace(QUIET_JOB, faults=(Fault(Injection.CROSS_NUMA, RANK, AT_S),))
    plan = programs_of(scenario).wiring.plan()
    capacity = Capacity(plan, scenario.world, scenario.hardware.line_bytes_per_s)
    lines = Lines(scenario, plan, capacity)
    seen = []
    for time in AT_S + np.arange(-20, 80) * 50e-6:
        lines.advance(time)
        seen.append(capacity.tx.copy())
    rates = np.array(seen) / scenario.hardware.line_bytes_per_s
    assert (rates[:20] == 1.0).all()
    assert len(np.unique(rates[21:, RANK])) > 30
    assert (rates[21:, [RANK, RANK + 1]] < 0.95).all()
    assert (np.delete(rates, [RANK, RANK + 1], axis=1) == 1.0).all()
    assert broken(Injection.CROSS_NUMA).run.truth.faults[0].ranks == (RANK, RANK + 1)


@pytest.mark.parametrize("severity", SEVERITIES[Injection.CPU_CONTENTION])
def test_a_busy_cpu_makes_collectives_longer_but_not_the_time_of_sending(severity: float) -> None:
    heard, usual = broken(Injection.CPU_CONTENTION, severity), told(QUIET_JOB)
    start, usual_start = (int(h.run.truth.iteration_ends_ns.max(axis=1)[1]) for h in (heard, usual))
    assert duration_ms(heard) > 1.02 * duration_ms(usual)
    for rank in ring_of(RANK):
        assert active_epochs(heard, rank, start) < 1.15 * active_epochs(usual, rank, usual_start)


def test_more_of_the_cores_taken_is_slower() -> None:
    ends = [broken(Injection.CPU_CONTENTION, share).run.truth.iteration_ends_ns.max() for share in (0.9, 1.0)]
    assert ends[1] > ends[0] + 1_000_000


def test_a_throttled_gpu_makes_its_host_late_and_all_lines_stay_as_they_are() -> None:
    heard, usual = broken(Injection.GPU_THROTTLING, 200.0), told(QUIET_JOB)
    assert duration_ms(heard) > 1.3 * duration_ms(usual)
    operators = heard.run.truth.operators
    iteration = column(operators, "iteration") == SMALL.iterations - 1
    starts = {}
    for rank in range(SMALL.world):
        own = operators.filter(iteration & (column(operators, "rank") == rank))
        starts[rank] = own["start_ns"][0].as_py()
    late = sorted(starts, key=lambda rank: starts[rank])[-2:]
    assert set(late) == {4, 5}


def test_a_nic_that_goes_down_stops_first_and_moves_least() -> None:
    usual = told(QUIET_JOB).run
    longest = usual.truth.operators.filter(column(usual.truth.operators, "rank") == RANK).sort_by(
        [("bytes", "descending")]
    )
    begins, ends = longest["start_ns"][1].as_py(), longest["end_ns"][1].as_py()
    down_s = 1e-9 * ((begins + ends) // 2 - (usual.job.started_ns or 0))
    heard = told(dataclasses.replace(QUIET_JOB, faults=(Fault(Injection.NIC_DOWN, RANK, down_s),)))
    truth = heard.run.truth
    assert truth.hung
    assert truth.faults[0].kind == Class.COMMUNICATION_STOP
    unfinished = truth.operators.filter(column(truth.operators, "end_ns") < 0)
    assert set(ring_of(RANK)) <= set(unfinished["rank"].to_pylist())
    down_ns = truth.faults[0].at_ns
    sent = data_sent(heard)
    last = {rank: int(sent[rank][0][sent[rank][0] < down_ns + 60_000_000].max()) for rank in ring_of(RANK)}
    assert min(last, key=lambda rank: last[rank]) == RANK
    moved = {rank: int(sent[rank][1][sent[rank][0] > begins - 32_000].sum()) for rank in ring_of(RANK)}
    assert min(moved, key=lambda rank: moved[rank]) == RANK
    [predecessor] = [rank for rank, (times, _) in sent.items() if (times > down_ns + 60_000_000).any()]
    assert predecessor in ring_of(RANK)
    polls = [p for p in heard.polls if heard.rank_of(p["host"], p["nic"]) == RANK]
    assert len(polls) > 3
    assert polls[-1]["units"] == []


def test_a_nic_that_is_gone_offers_nothing_to_its_predecessor() -> None:
    """It goes between two operators: its predecessor may not begin, and of what it begins itself nothing leaves it."""
    truth = broken(Injection.NIC_DOWN).run.truth
    unfinished = [row for row in truth.operators.to_pylist() if row["end_ns"] is None and row["rank"] in ring_of(RANK)]
    first = [row for row in unfinished if row["seq"] == min(row["seq"] for row in unfinished)]
    silent = {row["rank"] for row in first if row["start_ns"] is None}
    assert len(first) == len(ring_of(RANK))
    assert RANK in silent
    assert len(silent) == 2
    sent = data_sent(broken(Injection.NIC_DOWN))[RANK][0]
    assert sent.max() < truth.faults[0].at_ns


def test_a_nic_that_is_gone_sends_for_nobody() -> None:
    """Neither for the job nor for others, whose flows go on through the other NICs."""
    busy = dataclasses.replace(QUIET_JOB, noise=dataclasses.replace(QUIET, background=40.0))
    heard = broken(Injection.NIC_DOWN, base=busy)
    down_ns = heard.run.truth.faults[0].at_ns
    clocks = {heard.rank_of(p["host"], p["nic"]): p["host_minus_nic_ns"] for p in heard.polls}
    last = dict.fromkeys(clocks, 0)
    for (rank, _), (times, _) in heard.counted.items():
        last[rank] = max(last[rank], int(times.max(initial=0)) + clocks[rank])
    assert last[RANK] < down_ns
    assert min(at for rank, at in last.items() if rank != RANK) > down_ns


@pytest.mark.parametrize("injection", [Injection.GPU_ERROR, Injection.CUDA_ERROR])
def test_a_gpu_that_fails_starts_nothing_more_on_its_host(injection: Injection) -> None:
    """Its neighbours' processes, and its own unless the error ended it, still call what comes next."""
    base = dataclasses.replace(PIPELINE, noise=QUIET)
    usual = told(base).run
    own = usual.truth.operators.filter(column(usual.truth.operators, "rank") == RANK)
    soon_s = 1e-9 * (own["end_ns"][2].as_py() - (usual.job.started_ns or 0)) + 300e-6
    heard = told(dataclasses.replace(base, faults=(Fault(injection, RANK, soon_s),)))
    truth = heard.run.truth
    assert truth.hung
    late = {r: sum(c["rank"] == r and c["call_ns"] > truth.faults[0].at_ns for c in heard.calls) for r in range(8)}
    assert late[RANK + 1] > 0
    assert (late[RANK] > 0) == (injection is Injection.GPU_ERROR)
    started = column(truth.operators, "start_ns")
    assert started.max() - truth.faults[0].at_ns < 20_000_000
    for rank in (RANK, RANK + 1):
        assert started[column(truth.operators, "rank") == rank].max() < truth.faults[0].at_ns


def test_a_late_receiver_leaves_gaps_of_milliseconds_in_an_all_to_all() -> None:
    """Experts that are slow to compute consume late what the others sent; the others' buffers are full meanwhile."""
    slow = dataclasses.replace(EXPERTS, noise=QUIET, faults=(Fault(Injection.GPU_THROTTLING, RANK, 0.0, 200.0),))
    heard = told(slow)
    longest: dict[int, int] = {}
    for (rank, _), (times, _sizes) in heard.counted.items():
        gaps = np.diff(times)
        longest[rank] = max(longest.get(rank, 0), int(((gaps > 500_000) & (gaps < 4_000_000)).sum()))
    assert max(longest[rank] for rank in ring_of(RANK) if rank != RANK) > 2


def test_a_narrow_path_slows_one_pair() -> None:
    base = NicScenario(3, Workload.ONE_TO_ALL, tp=1, dp=4, pp=1, iterations=4, forward_s=0.003, shrink=32, noise=QUIET)
    fault = Fault(Injection.CONGESTION, 0, 0.0, 0.5, peer=2)
    heard, usual = told(dataclasses.replace(base, faults=(fault,))), told(base)
    assert heard.run.truth.faults[0].ranks == (0, 2)

    def active(run: Told, peer: int) -> int:
        numbers = {row["qpn"] for row in run.map if (row["source_rank"], row["destination_rank"]) == (0, peer)}
        return sum(len(run.counted[0, number][0]) for number in numbers)

    assert active(heard, 2) > 1.4 * active(usual, 2)
    assert active(heard, 1) < 1.1 * active(usual, 1)


@pytest.mark.parametrize(
    ("injection", "severity"),
    [(Injection.PCIE_DOWNGRADE, 0.0), (Injection.CPU_CONTENTION, 1.1), (Injection.GPU_THROTTLING, 0.5)],
)
def test_a_severity_that_cannot_be_is_refused(injection: Injection, severity: float) -> None:
    with pytest.raises(SettingsError, match="severity"):
        Fault(injection, 0, 1.0, severity)


@pytest.mark.parametrize("injection", Injection)
def test_a_fault_after_the_end_never_was(injection: Injection) -> None:
    late = Fault(injection, RANK, 60.0, SEVERITIES.get(injection, (0.5,))[0])
    soon = Fault(Injection.PCIE_DOWNGRADE, RANK, AT_S)
    run = told(dataclasses.replace(QUIET_JOB, faults=(soon, late))).run
    assert [fault.injection for fault in run.truth.faults] == [soon.injection]
    assert run.job.ended_ns is not None
    assert run.job.ended_ns - run.truth.iteration_ends_ns.max() < 10_000_000


def test_a_fault_elsewhere_than_in_the_job_is_refused() -> None:
    with pytest.raises(SettingsError, match="no rank 8"):
        dataclasses.replace(SMALL, faults=(Fault(Injection.NIC_DOWN, 8, 1.0),))
    with pytest.raises(SettingsError, match="no path of one pair"):
        dataclasses.replace(SMALL, faults=(Fault(Injection.CONGESTION, 1, 1.0, peer=2),))
    with pytest.raises(SettingsError, match="two ends, and rank and peer are both 1"):
        dataclasses.replace(SMALL, faults=(Fault(Injection.CONGESTION, 1, 1.0, peer=1),))
    with pytest.raises(SettingsError, match="no pair"):
        dataclasses.replace(SMALL, faults=(Fault(Injection.NIC_DOWN, 1, 1.0, peer=2),))
