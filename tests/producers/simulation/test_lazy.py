"""A lazily expanded job is the very job that an execution event by event gives, and does not depend on who is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from producers.simulation import DEFAULT, SILENT, FabricShape, Fault, Kind, Part, Scenario
from producers.simulation.lazy import LazyRun
from producers.simulation.lazy_log import LazyLog, Wanted
from producers.simulation.lazy_truth import LazyTruth
from producers.simulation.noise import Floats
from producers.simulation.schedule import Scope
from schemas.errors import SettingsError
from tests.producers.simulation.expanded import executed

COMMON: dict[str, Any] = {
    "seed": 4,
    "iterations": 6,
    "hidden": 4096,
    "layers": 10,
    "microbatches": 5,
    "compute_ms": 500.0,
    "fabric": FabricShape(hosts_per_pod=2, spines=4),
}

LAYOUTS: dict[str, dict[str, Any]] = {
    "dense": {"tp": 4, "pp": 4, "dp": 4},
    "sequence parallel": {"tp": 4, "pp": 4, "dp": 4, "sequence_parallel": True},
    "context parallel": {"tp": 4, "pp": 4, "dp": 2, "cp": 2, "sequence_parallel": True},
    "experts": {"tp": 4, "pp": 2, "dp": 8, "ep": 16, "fold_experts": True, "sequence_parallel": True},
    "all of them": {"tp": 2, "pp": 4, "dp": 4, "cp": 2, "ep": 8, "fold_experts": True, "sequence_parallel": True},
    "no tensor groups": {"tp": 1, "pp": 4, "dp": 16},
    "one stage": {"tp": 4, "pp": 1, "dp": 16},
    "gradients all-reduced": {"tp": 4, "pp": 2, "dp": 8, "distributed_optimizer": False},
}
"""64 ranks each."""

FAULTS = (
    Fault(Kind.GPU_SLOW, 5, (2, 3), factor=3.0, part=Part.BACKWARD),
    Fault(Kind.TOR_SLOW, 17, (3,), factor=3.0),
    Fault(Kind.CPU_SLOW, 30, (3,), factor=3.0),
)


def job(layout: str = "experts", **fields: Any) -> LazyRun:
    return LazyRun(Scenario(**{**COMMON, **LAYOUTS[layout], **fields}))


@pytest.mark.parametrize(
    ("layout", "faults"), [*((layout, ()) for layout in LAYOUTS), ("dense", FAULTS), ("all of them", FAULTS)]
)
def test_the_lazy_log_is_that_of_a_whole_execution(layout: str, faults: tuple[Fault, ...]) -> None:
    """To the nanosecond, in every world: the expanded durations of all ranks, executed event by event."""
    run = job(layout, faults=faults)
    whole = executed(run, 3)
    assert (whole.finished == run.began_ns(4)).all()
    for rank in range(run.scenario.world):
        stage, within = divmod(rank, run.cluster.stage_ranks)
        times = whole.stages[stage]
        for world in range(len(run.worlds)):
            moments = [moment[:, world, within] for moment in (times.call, times.start, times.end)]
            assert (run.operators(rank, 3, world=world) == np.stack(moments, axis=-1)).all()


@pytest.mark.parametrize("layout", ["context parallel", "all of them"])
def test_a_log_does_not_depend_on_what_was_asked_before(layout: str) -> None:
    alone = LazyLog(job(layout)).rows([13], [2])[0]
    run = job(layout)
    log = LazyLog(run)
    log.rows(range(8), range(5))
    together = log.rows([12, 13, 40], [1, 2])[0]
    rank, iteration = (np.asarray(together.column(name)) for name in ("rank", "iteration"))
    picked = together.filter((rank == 13) & (iteration == 2))
    assert picked.to_pylist() == alone.to_pylist()


@pytest.mark.parametrize("scope", [Scope.TENSOR, Scope.CONTEXT, Scope.EXPERT, Scope.PIPELINE, Scope.DATA])
def test_some_rows_are_those_of_the_whole_log(scope: Scope) -> None:
    run = job("all of them")
    log = LazyLog(run)
    name = run.cluster.communicator_names[scope][int(run.cluster.group_of_rank[scope][21])]
    whole = log.rows([21], [2])[0].to_pylist()
    own = [row for row in whole if row["communicator"] == name]
    assert own
    assert LazyLog(job("all of them")).rows([21], [2], Wanted(name))[0].to_pylist() == own
    first, last = own[1]["seq"], own[-2]["seq"]
    assert log.rows([21], [1, 2], Wanted(name, first, last))[0].to_pylist() == own[1:-1]
    assert log.rows([21], [2], Wanted("nobody's"))[0].num_rows == 0
    stranger = next(r for r in range(64) if r not in run.cluster.groups(scope)[run.cluster.group_of_rank[scope][21]])
    assert log.rows([stranger], [2], Wanted(name))[0].num_rows == 0


def test_what_is_at_hand_is_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = job("dense")
    whole = run.operators(3, 1)
    monkeypatch.setattr(run, "expand", None)
    assert (run.operators(3, 1, np.array([2])) == whole[2]).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_few_operators_are_those_of_the_whole_iteration(layout: str) -> None:
    for rank in (3, 40):
        times = job(layout).operators(rank, 1)
        for place in (0, len(times) // 2, len(times) - 1):
            few = job(layout).operators(rank, 1, np.array([place]))
            assert few.tolist() == [times[place].tolist()]
        some = np.random.default_rng(rank).permutation(len(times))[:100]
        assert (job(layout).operators(rank, 1, some) == times[some]).all()


def test_rows_look_like_those_of_the_other_simulation() -> None:
    """Sequence numbers go on, positions start anew, ends agree, nothing is null that need not be."""
    run = job("all of them", noise=replace(DEFAULT, clock_offset_s=0.0, clock_drift_ppm=0.0, lost_share=0.0))
    rows = LazyLog(run).rows(range(64), [2, 3])[0].to_pylist()
    seq: dict[tuple[int, str], int] = {}
    position: dict[tuple[int, str, int], int] = {}
    ends: dict[tuple[object, ...], set[int]] = {}
    for row in rows:
        key = (row["rank"], row["communicator"])
        assert row["seq"] == seq.get(key, row["seq"])
        seq[key] = row["seq"] + 1
        place = (*key, row["iteration"])
        assert row["position"] == position.get(place, 0)
        position[place] = row["position"] + 1
        assert row["call_ns"] <= row["start_ns"] < row["end_ns"]
        pair = (row["rank"], row["peer"]) if row["op"] == "send" else (row["peer"], row["rank"])
        met = (row["communicator"], row["seq"]) if row["peer"] is None else (*pair, row["p2p_seq"], "pair")
        ends.setdefault(met, set()).add(row["end_ns"])
    assert all(len(end) == 1 for end in ends.values())


def test_lost_lines_are_told_and_hit_all_ranks_alike() -> None:
    lossy = replace(SILENT, lost_share=0.05)
    run, faulty = job(noise=lossy), job(noise=lossy, faults=FAULTS)
    log = LazyLog(run)
    lost = [log.lost(rank, 2).mean() for rank in range(64)]
    assert 0.03 < np.mean(lost) < 0.07
    assert all((log.lost(rank, 2) == LazyLog(faulty).lost(rank, 2)).all() for rank in range(64))
    rows, lacking = log.rows([5], [2])
    assert lacking == {5}
    assert rows.num_rows + log.span(5, 2).lost == len(run.programs[0].operators)


def test_one_stretch_of_one_log_is_written_over() -> None:
    run = job(noise=replace(SILENT, ring_gap_probability=1.0), iterations=40)
    log = LazyLog(run)
    lost = np.array([[log.lost(rank, i).sum() for i in range(40)] for rank in range(64)])
    assert (lost.sum(axis=1) > 0).sum() == 1


def test_spans_join_iterations() -> None:
    log = LazyLog(job(noise=replace(DEFAULT, lost_share=0.0, ring_gap_probability=0.0)))
    spans = [log.span(9, i) for i in range(6)]
    assert [s.end_ns for s in spans[:-1]] == [s.start_ns for s in spans[1:]]
    rows = [log.rows([9], [i])[0] for i in range(6)]
    assert [s.start_ns for s in spans] == [r.column("call_ns")[0].as_py() for r in rows]
    assert spans[-1].end_ns == max(rows[-1].column("end_ns").to_pylist())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "fault", [None, Fault(Kind.GPU_SLOW, 5, (3,), factor=1.4), Fault(Kind.NIC_SLOW, 5, (3,), factor=3.0)]
)
def test_what_parts_take_is_what_their_insides_come_to(layout: str, fault: Fault | None) -> None:
    """Scaling corrects little on average, with stragglers and without."""
    run = job(layout, faults=(fault,) if fault else ())
    factors: list[Floats] = []
    for f, insides in enumerate(run.insides):
        for k, inside in enumerate(insides):
            if len(inside.kind.microbatch) > 1:
                factors += [_scaled_by(run, f, k, group) for group in range(len(inside.grouping.members))]
    taken = np.concatenate(factors)
    assert np.median(taken) == pytest.approx(1.0, abs=0.05)
    assert taken.mean() == pytest.approx(1.0, abs=0.15)


def _scaled_by(run: LazyRun, family: int, kind: int, group: int) -> Floats:
    """How much longer parts take than drawn, by what their operators transfer or members compute."""
    durations, _ = run.expand(3, family, kind, group, (0,))
    drawn = run.drawn(3, family, kind, group, (0,))
    mine, own = (d.lags if len(d.lags) else d.segments for d in (durations, drawn))
    return np.asarray(mine.sum(axis=(0, -1)) / own.sum(axis=(0, -1)) / 1e9).ravel()


def test_experts_across_tensor_groups_cannot_be_expanded_lazily() -> None:
    with pytest.raises(SettingsError, match="fold_experts"):
        LazyRun(Scenario(seed=1, ep=2))


def test_operators_that_the_fault_lengthened_are_abnormal() -> None:
    """The straggler itself waits for nobody; it is others that wait for it."""
    short = {"microbatches": 1, "layers": 1}  # of many operators each loses less than a tenth of the excess
    truth = LazyTruth(job("one stage", **short, faults=(Fault(Kind.GPU_SLOW, 5, (3,), factor=4.0),)))
    assert not any(truth.abnormal(rank, 2).any() for rank in range(64))
    abnormal = [truth.abnormal(rank, 3).sum() for rank in range(64)]
    assert abnormal[5] < min(abnormal[4], abnormal[6])
    assert not LazyTruth(job("one stage")).abnormal(5, 3).any()


def test_a_fault_slows_the_job_as_much_as_it_should() -> None:
    fault = Fault(Kind.LINK_SLOW, 5, (3, 4, 5), slowdown=1.3)
    run = job("dense", faults=(fault,))
    ends = np.array([run.began_ns(i).mean(axis=(0, 2)) for i in range(7)])
    lengths = np.diff(ends, axis=0)
    assert (lengths[:3, 0] == lengths[:3, 1]).all()
    assert np.median(lengths[3:, 0] / lengths[3:, 1]) == pytest.approx(1.3, rel=0.05)
