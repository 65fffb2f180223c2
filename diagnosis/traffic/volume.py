"""What an operator has to send: bytes by operator, algorithm and size of the group (Pulse appendix B).

The appendix has ``all_reduce`` by ring and by tree, and ``all_gather`` and ``reduce_scatter`` by ring. The others are
derived here in the same way: a ``broadcast`` or ``reduce`` by ring is a chain of hops that each carry the buffer
once, by tree each edge carries it once, and what has a peer for each part sends that part to that peer.

The result is a lower bound of what a NIC counts: headers, messages that synchronise and whatever is sent again come
on top.
"""

from __future__ import annotations

from typing import Literal

Algorithm = Literal["ring", "tree", "point_to_point"]

POINT_TO_POINT = ("send", "recv")
DTYPE_BYTES = {
    "int8": 1,
    "uint8": 1,
    "float8_e4m3": 1,
    "float8_e5m2": 1,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}

LARGE_BYTES = 1 << 20
"""From here on operators are too large for LL, which sends twice the bytes."""

TREE_OPS = ("all_reduce", "broadcast", "reduce")
"""What is ever done along a tree; gathering and scattering go around the ring alone."""


def ring_bytes(op: str, payload: int, size: int) -> int:
    """What one rank sends to its successors in the ring(s) together; the parts of several channels add up to it.

    ``payload``: count times element size, as passed: what each rank contributes to ``all_reduce`` and ``all_gather``,
    what it keeps of ``reduce_scatter``. Of ``broadcast`` and ``reduce`` it is what every rank sends but the one at
    the end of the chain (``ends_chain``).

    Raises ``ValueError`` for an operator that no ring carries.
    """
    _check(payload, size)
    hops = size - 1
    if op in {"all_reduce", "barrier"}:
        return 2 * payload * hops // size
    if op in {"all_gather", "reduce_scatter"}:
        return payload * hops
    if op in {"broadcast", "reduce"}:
        return payload if hops else 0
    raise ValueError(f"no ring carries {op}")


def tree_bytes(op: str, payload: int, size: int, trees: int = 1) -> int:
    """What one rank sends along one edge of one tree: of ``all_reduce`` to its parent and to each child.

    The payload is shared evenly between ``trees``. ``reduce`` goes to the parent alone, ``broadcast`` to the children.

    Raises ``ValueError`` for an operator that no tree carries.
    """
    _check(payload, size)
    if op not in TREE_OPS:
        raise ValueError(f"no tree carries {op}")
    return payload // trees if size > 1 else 0


def ends_chain(op: str, rank: int, root: int | None, successor: int | None) -> bool:
    """Whether the rank is where a chain ends, so that it sends nothing on: the root of a ``reduce``, and of a
    ``broadcast`` the rank whose successor is the root."""
    if root is None:
        return False
    return rank == root if op == "reduce" else op == "broadcast" and successor == root


def _check(payload: int, size: int) -> None:
    if payload < 0 or size < 1:
        raise ValueError(f"a payload of {payload} bytes in a group of {size}")
