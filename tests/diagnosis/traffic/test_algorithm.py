"""The algorithm of a collective, told by the peers that a rank sends to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.traffic.algorithm import active_peers, infer
from diagnosis.traffic.volume import ring_bytes

MB = 1 << 20
HEADERS = st.floats(1.0, 1.09)


def binary_tree(size: int) -> list[tuple[int, ...]]:
    """Neighbours of each rank in a tree over 0 .. size - 1 whose odd ranks are inside and even ones leaves."""
    neighbours: list[set[int]] = [set() for _ in range(size)]

    def join(low: int, high: int) -> int | None:
        if low > high:
            return None
        middle = (low + high) // 2
        for child in (join(low, middle - 1), join(middle + 1, high)):
            if child is not None:
                neighbours[middle].add(child)
                neighbours[child].add(middle)
        return middle

    join(1, size - 1)
    top = size // 2
    neighbours[0].add(top)
    neighbours[top].add(0)
    return [tuple(sorted(of)) for of in neighbours]


@given(size=st.integers(3, 256), headers=HEADERS, payload=st.integers(1, 4096), control=st.floats(0, 0.01))
def test_a_rings_successor_gets_it_all_and_its_predecessor_next_to_nothing(
    size: int, headers: float, payload: int, control: float
) -> None:
    volume = ring_bytes("all_reduce", payload * MB, size) * headers
    found = infer("all_reduce", payload * MB, size, {1: volume, size - 1 + 1000: volume * control})
    assert found is not None
    assert (found.algorithm, list(found.shares)) == ("ring", [1])
    assert found.confidence > (0.7 if size == 3 else 0.9)  # among three a tree with headers is not far
    assert found.expected("all_reduce", payload * MB, size) == {1: ring_bytes("all_reduce", payload * MB, size)}


@given(
    size=st.integers(4, 64),
    rank=st.integers(0, 63),
    headers=HEADERS,
    double=st.booleans(),
    noise=st.integers(0, 1000),
)
def test_every_rank_of_a_tree_is_told_from_a_ring(
    size: int, rank: int, headers: float, double: bool, noise: int
) -> None:
    rank %= size
    payload = 64 * MB
    sent: dict[int, float] = dict.fromkeys(binary_tree(size)[rank], payload * (0.5 if double else 1.0))
    if double:  # the second tree is the first one shifted by a rank, so that insides and leaves change places
        for peer in binary_tree(size)[(rank + 1) % size]:
            other = (peer - 1) % size
            sent[other] = sent.get(other, 0.0) + payload / 2
    spread = np.random.default_rng(noise).normal(1.0, 0.005, len(sent))
    found = infer(
        "all_reduce", payload, size, {p: v * headers * s for (p, v), s in zip(sent.items(), spread, strict=True)}
    )
    assert found is not None
    assert found.algorithm == "tree"
    expected = found.expected("all_reduce", payload, size)
    assert all(expected[peer] == pytest.approx(volume, rel=0.01) for peer, volume in sent.items())


def test_rings_in_two_orders_are_no_tree() -> None:
    """Two channels around the ring in opposite directions: two peers that get three quarters each."""
    found = infer("all_reduce", 100 * MB, 4, {1: 75.0 * MB, 3: 75.5 * MB})
    assert found is not None
    assert found.algorithm == "ring"
    assert sum(found.shares.values()) == pytest.approx(1.0)


def test_what_never_goes_along_a_tree_is_a_ring() -> None:
    found = infer("all_gather", 10 * MB, 4, {1: 30.2 * MB})
    assert found is not None
    assert (found.algorithm, found.confidence) == ("ring", 1.0)


def test_volume_of_other_operators_tells_nothing() -> None:
    assert infer("all_reduce", 10 * MB, 4, {1: 60.0 * MB}) is None
    assert infer("all_reduce", 10 * MB, 4, {1: 2.0 * MB}) is None
    assert infer("all_gather", 10 * MB, 4, {1: 2.0 * MB}) is None
    assert infer("all_gather", 10 * MB, 4, {1: 20.0 * MB}) is not None  # of some that have not ended


def test_small_operators_cost_twice_their_bytes_under_the_low_latency_protocol() -> None:
    found = infer("all_reduce", 64 << 10, 8, {1: 2.0 * ring_bytes("all_reduce", 64 << 10, 8)})
    assert found is not None
    assert found.algorithm == "ring"


def test_the_end_of_a_chain_sends_nothing() -> None:
    found = infer("broadcast", MB, 4, {3: 1.01 * MB})
    assert found is not None
    assert found.expected("broadcast", MB, 4, rank=2, root=0) == {3: MB}
    assert found.expected("broadcast", MB, 4, rank=2, root=3) == {3: 0}


def test_sends_go_to_each_peer_directly() -> None:
    found = infer("all_to_all", 2 * MB, 4, {1: 2.0 * MB, 2: 2.0 * MB, 3: 2.0 * MB})
    assert found is not None
    assert (found.algorithm, sorted(found.shares)) == ("point_to_point", [1, 2, 3])


def test_without_traffic_there_is_nothing_to_tell() -> None:
    assert infer("all_reduce", MB, 4, {}) is None
    assert infer("all_reduce", MB, 4, {1: 0.0}) is None
    assert infer("all_reduce", MB, 1, {1: 5.0}) is None
    assert active_peers({}, 0.1) == {}


@pytest.mark.parametrize("seen", [0.5, 1.0])
def test_between_two_there_is_no_tree_to_tell_from_a_ring(seen: float) -> None:
    """They send each other as much either way, and half of it is not all of half a tree."""
    found = infer("all_reduce", 8 * MB, 2, {1: seen * 8 * MB})
    assert found is not None
    assert (found.algorithm, found.expected("all_reduce", 8 * MB, 2)) == ("ring", {1: 8 * MB})
