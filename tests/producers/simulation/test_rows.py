"""Logs: counters, clocks, loss, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest

from producers.simulation import DEFAULT, SILENT, Fault, Kind, Omissions, Scenario, SimulatedRun, simulate
from schemas import comm_ops
from schemas.message import decode, encode
from tests.producers.simulation.small import meetings, silent, small

Line = tuple[int, str, int]


def lines(run: SimulatedRun) -> set[Line]:
    """Identity of every line: rank, communicator, seq."""
    rows = run.table.select(["rank", "communicator", "seq"]).to_pylist()
    return {(row["rank"], row["communicator"], row["seq"]) for row in rows}


def test_rows_are_good_messages() -> None:
    run = simulate(small())
    assert run.table.schema == comm_ops.TOPIC.schema
    batch = run.table.to_batches()[0]
    assert decode(encode(comm_ops.TOPIC, batch, job=run.job.job), comm_ops.TOPIC).num_rows == len(run.table)


def test_rows_are_sorted_by_rank_and_call_order() -> None:
    run = simulate(small())
    rank, order = np.asarray(run.table.column("rank")), np.asarray(run.table.column("call_order"))
    assert (np.diff(rank) >= 0).all()
    assert set(rank) == set(run.job.ranks)
    for one in run.job.ranks:
        assert (order[rank == one] == np.arange((rank == one).sum())).all()
        assert (np.diff(np.asarray(run.table.column("call_ns"))[rank == one]) > 0).all()


def test_seq_counts_each_communicator_of_a_rank_and_never_resets() -> None:
    run = simulate(silent())
    counters: dict[tuple[int, str], int] = {}
    for row in run.table.to_pylist():
        key = (row["rank"], row["communicator"])
        assert row["seq"] == counters.get(key, 0)
        counters[key] = row["seq"] + 1


def test_position_starts_anew_with_every_iteration() -> None:
    run = simulate(silent())
    counters: dict[tuple[int, str, int], int] = {}
    for row in run.table.to_pylist():
        key = (row["rank"], row["communicator"], row["iteration"])
        assert row["position"] == counters.get(key, 0)
        counters[key] = row["position"] + 1


def test_p2p_seq_joins_both_ends() -> None:
    run = simulate(silent(pp=4, layers=8))
    pairs = {key: rows for key, rows in meetings(run).items() if key[-1] == "pair"}
    assert len(pairs) == 12 * 4 * 2 * 3 * 4  # iterations, microbatches, directions, neighbours, ranks of a stage
    for rows in pairs.values():
        assert sorted(row["op"] for row in rows) == ["recv", "send"]
        assert len({(row["microbatch"], row["phase"], row["communicator"]) for row in rows}) == 1
    seen: dict[tuple[int, int, str], int] = {}
    for row in run.table.to_pylist():
        if row["peer"] is not None:
            key = (row["rank"], row["peer"], row["op"])
            assert row["p2p_seq"] == seen.get(key, 0)
            seen[key] = row["p2p_seq"] + 1


def test_communicators_are_opaque_and_complete() -> None:
    run = simulate(small(ep=2))
    used = {(row["communicator"], row["rank"]) for row in run.table.to_pylist()}
    assert used == {(c.communicator, rank) for c in run.job.communicators for rank in c.ranks}
    assert all(c.kind is None and int(c.communicator, 16) >= 0 for c in run.job.communicators)
    other = simulate(small(seed=2, ep=2))
    assert not set(run.job.members) & set(other.job.members)


def test_clocks_of_hosts_are_off_and_drift() -> None:
    noise = replace(SILENT, clock_offset_s=5e-3, clock_drift_ppm=10.0)
    shown, true = simulate(small(noise=noise)), simulate(silent())
    ahead = np.asarray(shown.table.column("end_ns")) - np.asarray(true.table.column("end_ns"))
    elapsed = np.asarray(true.table.column("end_ns")) - (true.job.started_ns or 0)
    host = np.asarray(true.table.column("rank")) // 2
    offsets = []
    for one in range(4):
        drift, offset = np.polyfit(elapsed[host == one], ahead[host == one], 1)
        offsets.append(offset)
        assert abs(offset) <= 5e6
        assert 0 < abs(drift) <= 10e-6
        residue = ahead[host == one] - offset - drift * elapsed[host == one]
        assert np.abs(residue).max() <= 2  # one clock a host, in whole nanoseconds
    assert np.ptp(offsets) > 1e5


def test_loss_hits_all_ranks_alike() -> None:
    lossy = replace(DEFAULT, lost_share=0.05, ring_gap_probability=0.0)
    complete = lines(simulate(small(noise=replace(lossy, lost_share=0.0))))
    healthy = lines(simulate(small(noise=lossy)))
    fault = Fault(Kind.GPU_SLOW, 3, tuple(range(4, 12)), factor=3.0)
    assert lines(simulate(small(noise=lossy, faults=(fault,)))) == healthy
    lost = complete - healthy
    for rank in range(8):
        share = sum(1 for line in lost if line[0] == rank) / sum(1 for line in complete if line[0] == rank)
        assert 0.03 < share < 0.07


def test_one_run_in_ten_has_a_ring_gap() -> None:
    """A gap is one stretch of one rank's log, wherever the faults are."""
    gapped = []
    for seed in range(60):
        noise = replace(SILENT, ring_gap_probability=0.1)
        run = simulate(small(seed, noise=noise, iterations=30, microbatches=1, layers=2))
        rank = np.asarray(run.table.column("rank"))
        counts = np.bincount(rank, minlength=8).reshape(2, 4)  # the ranks of a stage do the same
        short = np.argwhere(counts < counts.max(axis=1, keepdims=True))
        assert len(short) <= 1
        if len(short):
            gapped.append(seed)
            culprit = int(short[0] @ (4, 1))
            seq: dict[str, list[int]] = {}
            for row in run.table.filter(pc.equal(run.table.column("rank"), culprit)).to_pylist():
                seq.setdefault(row["communicator"], []).append(row["seq"])
            holes = [np.flatnonzero(np.diff(numbers) > 1) for numbers in seq.values()]
            assert all(len(hole) <= 1 for hole in holes)
    assert 1 <= len(gapped) <= 15


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_what_logs_leave_out(labels: bool, ends: bool) -> None:
    full = simulate(small())
    run = simulate(small(omissions=Omissions(labels=labels, ends=ends)))
    left_out = {"iteration", "phase", "microbatch", "position"} if labels else set()
    left_out |= {"end_ns"} if ends else set()
    for name in full.table.column_names:
        if name in left_out:
            assert run.table.column(name).null_count == len(run.table)
        else:
            assert run.table.column(name).equals(full.table.column(name))


def test_the_job_says_what_a_scheduler_knows() -> None:
    scenario = Scenario(seed=1, iterations=1)
    job = simulate(scenario).job
    assert (job.layout and (job.layout.tp, job.layout.pp, job.layout.dp, job.layout.source)) == (8, 4, 2, "given")
    assert [job.gpu(rank).device for rank in (0, 9)] == ["gpu:h0/0", "gpu:h1/1"]
    assert job.nics(63)[0].device == "nic:h7/mlx5_7"
    assert job.started_ns is not None
    assert job.ended_ns is not None
    assert job.ended_ns > job.started_ns
    assert simulate(replace(scenario, omissions=Omissions(layout=True))).job.layout is None
