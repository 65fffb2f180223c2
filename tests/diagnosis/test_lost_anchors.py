"""Anchors that a log without sequence numbers lost, told by those that other ranks had meanwhile."""

from collections.abc import Collection

import numpy as np
import pytest
from numpy.typing import NDArray

from diagnosis.anchors import Anchors, RankLog
from diagnosis.lost_anchors import recounted

Ints = NDArray[np.int64]
ITERATIONS = 30
SECOND = 1_000_000_000


def times(seed: int = 0) -> Ints:
    """When the anchors of iterations are called: a second apart, some much more."""
    lengths = np.random.default_rng(seed).normal(1.0, 0.03, ITERATIONS)
    lengths[[7, 21]] = 3.0
    return (np.cumsum(lengths) * SECOND).astype(np.int64)


def log(
    call_ns: Ints, lost: Collection[int] = (), *, counted: bool = True, communicator: int = 0
) -> tuple[RankLog, Anchors]:
    """A rank that calls one operator an iteration and lost some, and these as anchors."""
    kept = np.array([i for i in range(ITERATIONS) if i not in lost])
    ordinal = np.arange(len(kept))
    made = RankLog(
        communicator=np.full(len(kept), communicator),
        seq=ordinal,
        token=np.zeros(len(kept), dtype=np.int64),
        call_ns=call_ns[kept],
        end_ns=call_ns[kept] + SECOND // 100,
        stepped={communicator},
        collective={communicator},
        share={communicator: 1.0},
        counted={communicator} if counted else (),
    )
    return made, Anchors(communicator, 1, ordinal, ordinal, len(kept) - 1)


def numbers(ranks: dict[int, tuple[RankLog, Anchors]]) -> dict[int, list[int]]:
    found = recounted(
        {rank: made for rank, (made, _) in ranks.items()}, {rank: own for rank, (_, own) in ranks.items()}
    )
    return {rank: own.number.tolist() for rank, own in found.items()}


@pytest.mark.parametrize("communicators", [(0, 0, 0), (0, 1, 2)], ids=["shared", "of each its own"])
@pytest.mark.parametrize("lost", [{12}, {12, 13, 14}, {4, 20}, {21}], ids=str)
def test_lost_anchors_leave_holes(lost: set[int], communicators: tuple[int, ...]) -> None:
    skew = (0, 40_000_000, 7 * SECOND // 10)
    ranks = {
        rank: log(times() + skew[rank], lost if rank == 1 else (), communicator=communicators[rank])
        for rank in range(3)
    }
    found = numbers(ranks)
    kept = [i for i in range(ITERATIONS) if i not in lost]
    assert found == {0: [*range(ITERATIONS)], 1: kept, 2: [*range(ITERATIONS)]}


def test_of_two_ranks_the_one_that_has_fewer_lost_them() -> None:
    found = numbers({0: log(times()), 1: log(times(), {12})})
    assert found == {0: [*range(ITERATIONS)], 1: [i for i in range(ITERATIONS) if i != 12]}


def test_a_rank_that_is_late_from_then_on_lost_nothing() -> None:
    late = times() + np.where(np.arange(ITERATIONS) >= 15, SECOND * 6 // 10, 0)
    ranks = {0: log(times()), 1: log(late), 2: log(times())}
    assert numbers(ranks) == {rank: [*range(ITERATIONS)] for rank in range(3)}


def test_sequence_numbers_are_as_they_were() -> None:
    ranks = {0: log(times()), 1: log(times(), {12}, counted=False)}
    assert numbers(ranks)[1] == [*range(ITERATIONS - 1)]


def test_one_rank_alone_is_told_nothing() -> None:
    assert numbers({0: log(times(), {12})}) == {0: [*range(ITERATIONS - 1)]}
