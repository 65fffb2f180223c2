"""Sends and receives whose ends nobody logged: what passes after them is the transfer's only if both ends are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow.compute as pc
import pytest

from diagnosis.operator_graph.culprits import Culprit
from diagnosis.operator_graph.locate import locate
from producers.simulation import Fault, Kind, Omissions, Scenario, SimulatedRun, simulate
from tests.diagnosis.answering import answered
from tests.diagnosis.operator_graph.small_jobs import FAULTY, irregularity


@cache
def pipelines(kind: Kind, rank: int, *, ends: bool = False) -> SimulatedRun:
    """Two pipelines of four stages, two of which are on each host."""
    return simulate(
        Scenario(
            12,
            tp=1,
            pp=4,
            dp=2,
            microbatches=4,
            layers=4,
            iterations=18,
            gpus_per_host=4,
            faults=(Fault(kind, rank, FAULTY, slowdown=1.3),),
            omissions=Omissions(ends=not ends),
        )
    )


def located(run: SimulatedRun) -> Sequence[Culprit]:
    location, _ = answered(locate(run.job, irregularity(run)), run.table)
    return location.culprits


def named(run: SimulatedRun) -> list[tuple[str, tuple[int, ...]]]:
    return [(culprit.cause, culprit.ranks) for culprit in located(run)]


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.parametrize("ends", [False, True])
def test_what_a_slow_gpu_computes_after_it_sent_is_no_slow_transfer(rank: int, ends: bool) -> None:
    run = pipelines(Kind.GPU_SLOW, rank, ends=ends)
    assert named(run) == [("compute_slow", (rank,))]
    assert located(run)[0].goes_on_late is not ends


@pytest.mark.parametrize("lost", range(8))
def test_a_lost_line_hides_no_more_than_its_own_exchange(lost: int) -> None:
    run = pipelines(Kind.GPU_SLOW, 4)
    of_peer = pc.and_(pc.equal(run.table["rank"], 6), pc.equal(run.table["peer"], 4))
    own = np.flatnonzero(pc.and_(of_peer, pc.equal(run.table["iteration"], FAULTY[0])).to_numpy(zero_copy_only=False))
    rest = run.table.take(np.delete(np.arange(len(run.table)), own[lost]))
    assert named(replace(run, table=rest)) == [("compute_slow", (4,))]


@pytest.mark.parametrize("ends", [False, True])
def test_a_slow_transfer_keeps_both_ends(ends: bool) -> None:
    [(cause, ranks)] = named(pipelines(Kind.NIC_SLOW, 4, ends=ends))
    assert (cause, ranks) == ("communication_slow", (2, 4))  # the NICs at both ends of the only channel
    found = named(pipelines(Kind.NVLINK_SLOW, 4, ends=ends))
    assert {cause for cause, _ in found} == {"communication_slow"}
    assert {6, 7} <= {rank for _, ranks in found for rank in ranks} <= {4, 5, 6, 7}
