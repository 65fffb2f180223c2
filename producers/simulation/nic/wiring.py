"""Connections between NICs and the blocks of kernels that serve them, with all that they will carry in a run.

Operators are laid out beforehand, in the order in which their communicator runs them. A rank then opens its side of
one: its blocks may go as many steps further, and its proxy may offer buffers for as many slices more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from producers.simulation.nic import slices
from producers.simulation.nic.hardware import Hardware
from producers.simulation.nic.slices import FAN, Ints, Steps

NOBODY = -1
"""Stands for a connection that a block does not have."""


@dataclass(frozen=True, slots=True)
class Side:
    """One rank's part of an operator: blocks with their steps, connections it receives or sends over with slices."""

    blocks: Ints
    steps: Ints
    incoming: Ints
    slices: Ints
    outgoing: Ints
    sent_slices: Ints

    @classmethod
    def joined(cls, sides: Sequence[Side]) -> Side:
        """Several operators that a rank runs together."""
        return cls(
            *(
                np.concatenate([getattr(side, name) for side in sides])
                for name in ("blocks", "steps", "incoming", "slices", "outgoing", "sent_slices")
            )
        )


@dataclass
class _Block:
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    program: list[Steps] = field(default_factory=list)


@dataclass
class _Connection:
    source: int
    destination: int
    sizes: list[Ints] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """All connections and blocks as arrays.

    ``source`` and ``destination`` are ranks, and so NICs. A block's step ``k`` is row ``block_at[b] + k`` of
    ``receives``, ``sends`` and ``sizes``; slice ``m`` of a connection ends ``ends[connection_at[c] + m + 1]`` bytes,
    headers included, after the connection's first one begins.
    """

    source: Ints
    destination: Ints
    connection_at: Ints
    ends: npt.NDArray[np.float64]
    rank: Ints
    ins: Ints
    outs: Ints
    block_at: Ints
    receives: npt.NDArray[np.bool_]
    sends: npt.NDArray[np.bool_]
    sizes: npt.NDArray[np.float64]


class Wiring:
    """Connections and blocks while operators are laid out."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._connections: list[_Connection] = []
        self._blocks: list[_Block] = []
        self._ranks: list[int] = []
        self._connection_of: dict[Hashable, int] = {}
        self._block_of: dict[Hashable, int] = {}

    def ring(self, communicator: str, op: str, size: int, order: Sequence[int]) -> dict[int, Side]:
        """Lay out a collective over a ring of ranks; the sides of its members."""
        members = len(order)
        found: dict[int, list[tuple[int, Steps]]] = {rank: [] for rank in order}
        for channel in range(self._hardware.protocol(size).channels):
            onward = [
                self._connect((communicator, "ring", channel), rank, order[(i + 1) % members])
                for i, rank in enumerate(order)
            ]
            for i, rank in enumerate(order):
                steps = slices.ring(op, size, members, i, channel, self._hardware)
                block = self._block((communicator, "ring", channel), rank, (onward[i - 1],), (onward[i],))
                found[rank].append((block, steps))
        return {rank: self._side(programs) for rank, programs in found.items()}

    def tree(self, communicator: str, size: int, order: Sequence[int]) -> dict[int, Side]:
        """Lay out an all-reduce over two trees, a half on each."""
        found: dict[int, list[tuple[int, Steps]]] = {rank: [] for rank in order}
        for channel in range(self._hardware.protocol(size).channels):
            self._grow(communicator, size, order, channel, found)
        return {rank: self._side(programs) for rank, programs in found.items()}

    def _grow(
        self,
        communicator: str,
        size: int,
        order: Sequence[int],
        channel: int,
        found: dict[int, list[tuple[int, Steps]]],
    ) -> None:
        parent = slices.parents(len(order), mirrored=channel % 2 == 1)
        up, down = (communicator, "up", channel), (communicator, "down", channel)
        for node, rank in enumerate(order):
            children = [order[child] for child, above in enumerate(parent) if above == node]
            from_children = tuple(self._connect(up, child, rank) for child in children)
            to_children = tuple(self._connect(down, rank, child) for child in children)
            has_parent = parent[node] >= 0
            to_parent = (self._connect(up, rank, order[parent[node]]),) if has_parent else to_children
            steps = slices.tree(size, channel, len(children), has_parent, True, self._hardware)
            found[rank].append((self._block(up, rank, from_children, to_parent), steps))
            if has_parent:
                from_parent = (self._connect(down, order[parent[node]], rank),)
                steps = slices.tree(size, channel, len(children), True, False, self._hardware)
                found[rank].append((self._block(down, rank, from_parent, to_children), steps))

    def transfer(self, communicator: str, size: int, source: int, destination: int) -> tuple[Side, Side]:
        """Lay out a send and its receive; the sides of the two."""
        sending: list[tuple[int, Steps]] = []
        receiving: list[tuple[int, Steps]] = []
        for channel in range(self._hardware.protocol(size).channels if size else 0):
            key = (communicator, "p2p", channel, source, destination)
            connection = self._connect(key, source, destination)
            steps = slices.transfer(size, channel, True, self._hardware)
            sending.append((self._block((*key, "send"), source, (), (connection,)), steps))
            steps = slices.transfer(size, channel, False, self._hardware)
            receiving.append((self._block((*key, "recv"), destination, (connection,), ()), steps))
        return self._side(sending), self._side(receiving)

    def plan(self) -> Plan:
        """Everything laid out so far, as arrays; a last connection stands for ``NOBODY``."""
        nobody = len(self._connections)
        sizes = [np.concatenate([np.zeros(1), *c.sizes]) for c in self._connections] + [np.zeros(1)]
        programs = [b.program for b in self._blocks]
        empty = np.zeros((1, FAN), dtype=np.bool_)
        return Plan(
            source=np.array([c.source for c in self._connections] + [0], dtype=np.int64),
            destination=np.array([c.destination for c in self._connections] + [0], dtype=np.int64),
            connection_at=_starts([len(s) for s in sizes]),
            ends=np.concatenate([np.cumsum(s) for s in sizes]) * self._hardware.overhead,
            rank=np.array(self._ranks, dtype=np.int64),
            ins=_fanned([b.ins for b in self._blocks], nobody),
            outs=_fanned([b.outs for b in self._blocks], nobody),
            block_at=_starts([sum(map(len, program)) for program in programs]),
            receives=np.concatenate([*(s.receives for program in programs for s in program), empty]),
            sends=np.concatenate([*(s.sends for program in programs for s in program), empty]),
            sizes=np.concatenate([*(s.sizes for program in programs for s in program), [0]]).astype(np.float64),
        )

    def _connect(self, key: Hashable, source: int, destination: int) -> int:
        where = (key, source, destination)
        if where not in self._connection_of:
            self._connection_of[where] = len(self._connections)
            self._connections.append(_Connection(source, destination))
        return self._connection_of[where]

    def _block(self, key: Hashable, rank: int, ins: tuple[int, ...], outs: tuple[int, ...]) -> int:
        where = (key, rank)
        if where not in self._block_of:
            self._block_of[where] = len(self._blocks)
            self._blocks.append(_Block(ins, outs))
            self._ranks.append(rank)
        return self._block_of[where]

    def _side(self, programs: list[tuple[int, Steps]]) -> Side:
        """Append steps to blocks, and what they send to connections."""
        incoming: list[tuple[int, int]] = []
        outgoing: list[tuple[int, int]] = []
        for number, steps in programs:
            block = self._blocks[number]
            block.program.append(steps)
            for place, connection in enumerate(block.outs):
                sizes = steps.sizes[steps.sends[:, place]]
                self._connections[connection].sizes.append(sizes)
                outgoing.append((connection, len(sizes)))
            incoming += [(c, int(steps.receives[:, place].sum())) for place, c in enumerate(block.ins)]
        return Side(
            np.array([number for number, _ in programs], dtype=np.int64),
            np.array([len(steps) for _, steps in programs], dtype=np.int64),
            np.array([c for c, _ in incoming], dtype=np.int64),
            np.array([count for _, count in incoming], dtype=np.int64),
            np.array([c for c, _ in outgoing], dtype=np.int64),
            np.array([count for _, count in outgoing], dtype=np.int64),
        )


def _starts(lengths: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)


def _fanned(connections: Sequence[tuple[int, ...]], nobody: int) -> Ints:
    """Connections of each block, a row of ``FAN`` each."""
    return np.array([(c + (nobody,) * FAN)[:FAN] for c in connections], dtype=np.int64).reshape(-1, FAN)
