"""Ring all-reduce and all-to-all bring what they should, with as many slices under way as there are credits."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from benchmarks.real_traffic.collectives import all_reduce, all_to_all
from benchmarks.real_traffic.connections import Connections, Incoming, Outgoing, Values
from benchmarks.real_traffic.plan import Plan

PLAN = Plan(ranks=3, slice_bytes=1 << 12, slots=2, chunk_bytes=10_000, exchanged_bytes=9_000, seed=4)
CREDIT_BYTES, HEADER_BYTES = 64, 8


@contextmanager
def joined(plan: Plan) -> Iterator[list[Connections]]:
    """All ranks, connected within this process."""
    outgoing: list[dict[tuple[int, int], Outgoing]] = [{} for _ in range(plan.ranks)]
    incoming: list[dict[tuple[int, int], Incoming]] = [{} for _ in range(plan.ranks)]
    for rank in range(plan.ranks):
        for peer in plan.peers(rank):
            for channel in range(plan.channels):
                own, other = socket.socketpair()
                incoming[peer][rank, channel] = Incoming(other, plan.slots)
                outgoing[rank][peer, channel] = Outgoing(own, plan.slots)
    connections = [Connections(out, back, {}) for out, back in zip(outgoing, incoming, strict=True)]
    yield connections
    with ThreadPoolExecutor(plan.ranks) as threads:
        list(threads.map(Connections.close, connections))


def on_all_ranks(plan: Plan, work: Callable[[int, Connections, ThreadPoolExecutor], Values]) -> list[Values]:
    def of_rank(rank: int) -> Values:
        with ThreadPoolExecutor(2 * plan.channels * plan.ranks) as threads:
            return work(rank, connections[rank], threads)

    with joined(plan) as connections, ThreadPoolExecutor(plan.ranks) as ranks:
        return list(ranks.map(of_rank, range(plan.ranks)))


@pytest.mark.parametrize("ranks", [3, 4])
def test_an_all_reduce_adds_up_what_all_ranks_have(ranks: int) -> None:
    plan = Plan(ranks=ranks, slice_bytes=1 << 12, slots=2, chunk_bytes=10_000, seed=4)
    given = np.random.default_rng(5).integers(0, 100, (ranks, plan.reduced_bytes // 4)).astype(np.float32)

    def reduce(rank: int, connections: Connections, threads: ThreadPoolExecutor) -> Values:
        own: Values = given[rank].copy()
        all_reduce(plan, rank, own, 0, connections, threads)
        return own

    for result in on_all_ranks(plan, reduce):
        assert np.array_equal(result, given.sum(axis=0))


def test_an_all_to_all_brings_each_rank_its_part_of_every_other() -> None:
    given = np.random.default_rng(5).random((3, 3, PLAN.exchanged_bytes // 4)).astype(np.float32)

    def exchange(rank: int, connections: Connections, threads: ThreadPoolExecutor) -> Values:
        return all_to_all(PLAN, rank, given[rank], 0, connections, threads)

    for rank, result in enumerate(on_all_ranks(PLAN, exchange)):
        assert np.array_equal(result, given[:, rank])


def test_a_slice_is_sent_only_for_a_credit() -> None:
    own, other = socket.socketpair()
    sending = Outgoing(own, slots=4)
    part = np.arange(16, dtype=np.float32)
    for operator in range(3):
        sending.send(operator, part)
    other.settimeout(0.05)
    with pytest.raises(TimeoutError):
        other.recv(1)
    for _ in range(3):
        other.settimeout(None)  # with any, MSG_WAITALL does not wait
        other.sendall(bytes(CREDIT_BYTES))
        assert len(other.recv(HEADER_BYTES + part.nbytes, socket.MSG_WAITALL)) == HEADER_BYTES + part.nbytes
        other.settimeout(0.05)
    with pytest.raises(TimeoutError):
        other.recv(1)
    sending.finish()
    other.close()
    sending.close()
    assert sorted(sending.began_ns) == [0, 1, 2]


def test_a_slot_is_free_again_once_its_slice_is_taken() -> None:
    own, other = socket.socketpair()
    receiving = Incoming(own, slots=2)
    other.settimeout(5)
    assert len(other.recv(3 * CREDIT_BYTES)) == 2 * CREDIT_BYTES
    part = np.arange(4, dtype=np.float32)
    other.sendall(b"\0\0\0\7" + b"\0\0\0\x10" + part.tobytes())
    assert np.array_equal(receiving.receive(), part)
    assert len(other.recv(3 * CREDIT_BYTES)) == CREDIT_BYTES
    assert list(receiving.ended_ns) == [7]
    other.close()
    receiving.close()
