"""Blocks of kernels: each takes its next step once what it receives is there and what it sends to is free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from producers.simulation.nic.hardware import Hardware
from producers.simulation.nic.proxies import Floats
from producers.simulation.nic.slices import FAN, Ints
from producers.simulation.nic.wiring import Plan, Side

_NEVER = np.inf


@dataclass(frozen=True, slots=True)
class Taken:
    """Steps that blocks took: connections of which they consumed a slice, slices they filled, blocks at their end."""

    consumed: Ints
    consumed_at: Floats
    filled: Ints
    filled_at: Floats
    ended: Ints
    ended_at: Floats


class Blocks:
    """The state of all blocks. ``arrived`` and ``free`` (slices,) are when a slice is there, and its buffer empty."""

    def __init__(self, plan: Plan, hardware: Hardware) -> None:
        self._plan, self._hardware = plan, hardware
        blocks, rows = len(plan.rank), len(plan.ends)
        self.arrived, self.free = np.full(rows, _NEVER), np.full(rows, _NEVER)
        self.ready_at = np.full(blocks, _NEVER)
        self._open_at = np.full(blocks, _NEVER)
        self._taken, self._limit = np.zeros(blocks, dtype=np.int64), np.zeros(blocks, dtype=np.int64)
        self._next_in, self._next_out = plan.connection_at[plan.ins], plan.connection_at[plan.outs]
        connections = len(plan.source)
        self._readers, self._writers = (_owners(ends, connections) for ends in (plan.ins, plan.outs))

    def start(self, side: Side, at: float) -> None:
        """A kernel begins to run."""
        self._limit[side.blocks] += side.steps
        some = side.blocks[side.steps > 0]
        self._open_at[some] = at
        self._look_again(some)

    def look_at(self, connections: Ints) -> None:
        """Something that blocks at either end of connections wait for has changed."""
        self._look_again(np.concatenate([self._readers[connections], self._writers[connections]]))

    def _look_again(self, blocks: Ints) -> None:
        row = self._plan.block_at[blocks] + self._taken[blocks]
        got, room = self.arrived[self._next_in[blocks]], self.free[self._next_out[blocks]]
        got[~self._plan.receives[row]] = 0.0
        room[~self._plan.sends[row]] = 0.0
        self.ready_at[blocks] = np.maximum(self._open_at[blocks], np.maximum(got, room).max(axis=1))

    def run(self, end: float) -> Taken | None:
        """Take the next step of all blocks that may before ``end``; None where there are none."""
        blocks = (self.ready_at < end).nonzero()[0]
        if not len(blocks):
            return None
        row = self._plan.block_at[blocks] + self._taken[blocks]
        hardware = self._hardware
        done = self.ready_at[blocks] + hardware.gpu_slice_s + self._plan.sizes[row] / hardware.gpu_bytes_per_s
        self._taken[blocks] += 1
        more = self._taken[blocks] < self._limit[blocks]
        self._open_at[blocks] = np.where(more, done, _NEVER)
        reader, read = self._plan.receives[row].nonzero()
        writer, written = self._plan.sends[row].nonzero()
        filled = self._next_out[blocks[writer], written]
        self._next_in[blocks[reader], read] += 1
        self._next_out[blocks[writer], written] += 1
        self._look_again(blocks)
        consumed = self._plan.ins[blocks[reader], read]
        return Taken(consumed, done[reader], filled, done[writer], blocks[~more], done[~more])


def _owners(ends: Ints, connections: int) -> Ints:
    """The block that each connection ends, or begins, in; ``ends`` (blocks, FAN) are the blocks' connections."""
    owners = np.zeros(connections, dtype=np.int64)
    for place in range(FAN):
        owners[ends[:, place]] = np.arange(len(ends))
    return owners
