"""What a kernel's blocks receive and send, slice by slice: rings, double trees, and sends and receives.

An operator is cut into the parts of its channels, those into chunks, those into slices. Remainders stay where they
fall. Nothing here says how much a rank sends in all: that is what the slices come to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from producers.simulation.nic.hardware import Hardware

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FAN = 2
"""Connections that a block receives from, or sends over, at once: those of a binary tree."""

_ALIGNED = 16


@dataclass(frozen=True, slots=True)
class Steps:
    """What one block does: in each step it receives from and sends over some of its connections.

    ``receives`` and ``sends`` have the shape (steps, FAN), ``sizes`` (steps,): bytes of the slice, as sent.
    """

    receives: Flags
    sends: Flags
    sizes: Ints

    def __len__(self) -> int:
        return len(self.sizes)


def parts(size: int, channels: int) -> list[int]:
    """An operator's bytes on each of its channels; the last one has what remains."""
    part = -(-size // (channels * _ALIGNED)) * _ALIGNED
    return [max(min(part, size - c * part), 0) for c in range(channels)]


@cache
def ring(op: str, size: int, members: int, position: int, channel: int, hardware: Hardware) -> Steps:
    """A member's steps on a channel of a ring; ``size`` is of the full buffer, ``position`` the place in the ring."""
    protocol = hardware.protocol(size)
    chunk = protocol.slice_bytes * hardware.slices_per_chunk
    receives, sends, sizes = [], [], []
    for chunks in _chunks(op, size, members, chunk, channel, protocol.channels):
        for piece, receive, send in _ring_order(op, members, position):
            for data in _cut(chunks[piece], hardware.slices_per_chunk):
                receives.append((receive, False))
                sends.append((send, False))
                sizes.append(round(data * protocol.expansion))
    return _steps(receives, sends, sizes)


def _chunks(op: str, size: int, members: int, chunk: int, channel: int, channels: int) -> Iterator[list[int]]:
    """Bytes of each member's chunk, loop by loop."""
    if op == "all_reduce":
        left = parts(size, channels)[channel]
        while left > 0:
            loop = min(left, members * chunk)
            each = -(-loop // (members * _ALIGNED)) * _ALIGNED
            yield [max(min(each, loop - m * each), 0) for m in range(members)]
            left -= loop
    else:
        left = parts(size // members, channels)[channel]
        while left > 0:
            yield [min(left, chunk)] * members
            left -= chunk


def _ring_order(op: str, members: int, position: int) -> list[tuple[int, bool, bool]]:
    """The chunks that pass a member: which one, whether it is received, whether it is sent on."""
    last = members - 1
    reduced = [((position - 1 - t) % members, t > 0, t < last) for t in range(members)]
    gathered = [((position - t) % members, t > 0, t < last) for t in range(members)]
    if op == "reduce_scatter":
        return reduced
    if op == "all_gather":
        return gathered
    if op == "all_reduce":
        return [*reduced[:-1], (position, True, True), *gathered[1:]]
    raise ValueError(f"no ring for {op}")


@cache
def tree(size: int, channel: int, children: int, has_parent: bool, upward: bool, hardware: Hardware) -> Steps:
    """A member's steps of an all-reduce on the tree of a channel, towards the root or away from it.

    The root turns around what it has reduced, so it has no steps of the way down.
    """
    protocol = hardware.protocol(size)
    if upward:
        receive = (children > 0, children > 1)
        send = (True, False) if has_parent else receive
    else:
        receive = (has_parent, False)
        send = (children > 0, children > 1)
    left, sizes = parts(size, protocol.channels)[channel], []
    while left > 0:
        sizes.append(round(min(left, protocol.slice_bytes) * protocol.expansion))
        left -= protocol.slice_bytes
    return _steps([receive] * len(sizes), [send] * len(sizes), sizes)


def parents(members: int, mirrored: bool) -> list[int]:
    """Each member's parent in one of the two trees, -1 for the root; inner nodes of one are leaves of the other."""
    found = [-1] * members
    for node in range(1, members):
        bit = node & -node
        up = (node ^ bit) | (bit << 1)
        found[node] = up if up < members else node ^ bit
    if not mirrored:
        return found

    def name(node: int) -> int:
        return (node + 1) % members if members % 2 else members - 1 - node

    other = [-1] * members
    for node, up in enumerate(found):
        other[name(node)] = -1 if up < 0 else name(up)
    return other


@cache
def transfer(size: int, channel: int, sending: bool, hardware: Hardware) -> Steps:
    """One side's steps of a send and its receive."""
    protocol = hardware.protocol(size)
    left = parts(size, protocol.channels)[channel] if channel < protocol.channels else 0
    sizes = []
    while left > 0:
        sizes.append(round(min(left, protocol.slice_bytes) * protocol.expansion))
        left -= protocol.slice_bytes
    return _steps([(not sending, False)] * len(sizes), [(sending, False)] * len(sizes), sizes)


def _cut(chunk: int, slices: int) -> list[int]:
    each = -(-chunk // (slices * _ALIGNED)) * _ALIGNED
    cut = [max(min(each, chunk - i * each), 0) for i in range(slices)]
    return [data for data in cut if data]


def _steps(receives: list[tuple[bool, bool]], sends: list[tuple[bool, bool]], sizes: list[int]) -> Steps:
    return Steps(
        np.array(receives, dtype=np.bool_).reshape(-1, FAN),
        np.array(sends, dtype=np.bool_).reshape(-1, FAN),
        np.array(sizes, dtype=np.int64),
    )
