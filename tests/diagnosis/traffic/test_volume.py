"""What an operator has to send, by operator, algorithm and size of the group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.traffic.volume import ends_chain, ring_bytes, tree_bytes

MB = 1 << 20


@pytest.mark.parametrize(
    ("op", "size", "expected"),
    [
        ("all_reduce", 4, 12 * MB),  # twice the buffer, but for the rank's own part
        ("all_reduce", 2, 8 * MB),
        ("all_gather", 4, 24 * MB),
        ("reduce_scatter", 4, 24 * MB),
        ("broadcast", 4, 8 * MB),
        ("reduce", 4, 8 * MB),
        ("all_gather", 1, 0),
        ("broadcast", 1, 0),
    ],
)
def test_a_ring_carries(op: str, size: int, expected: int) -> None:
    assert ring_bytes(op, 8 * MB, size) == expected


def test_a_tree_carries_the_buffer_along_each_edge_shared_between_the_trees() -> None:
    assert tree_bytes("all_reduce", 8 * MB, 4) == 8 * MB
    assert tree_bytes("all_reduce", 8 * MB, 4, trees=2) == 4 * MB
    assert tree_bytes("broadcast", 8 * MB, 1) == 0


@given(payload=st.integers(0, 1 << 34), size=st.integers(1, 512))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather_of_the_parts(payload: int, size: int) -> None:
    part = payload // size * size
    both = ring_bytes("reduce_scatter", part // size, size) + ring_bytes("all_gather", part // size, size)
    assert ring_bytes("all_reduce", part, size) == both


@given(payload=st.integers(0, 1 << 34), size=st.integers(2, 512))
def test_ring_and_tree_move_the_same_volume_in_all(payload: int, size: int) -> None:
    """A tree has a rank less edges than ranks, each carries the buffer up and down."""
    part = payload // size * size
    assert ring_bytes("all_reduce", part, size) * size == tree_bytes("all_reduce", part, size) * 2 * (size - 1)


def test_a_chain_ends_at_the_root_of_a_reduce_and_before_the_root_of_a_broadcast() -> None:
    assert ends_chain("reduce", rank=3, root=3, successor=0)
    assert not ends_chain("reduce", rank=2, root=3, successor=3)
    assert ends_chain("broadcast", rank=2, root=3, successor=3)
    assert not ends_chain("broadcast", rank=3, root=3, successor=0)
    assert not ends_chain("all_reduce", rank=3, root=None, successor=0)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="no ring carries send"):
        ring_bytes("send", 1, 2)
    with pytest.raises(ValueError, match="no tree carries all_gather"):
        tree_bytes("all_gather", 1, 2)
    with pytest.raises(ValueError, match="-1 bytes"):
        ring_bytes("all_reduce", -1, 2)
