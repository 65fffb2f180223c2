"""Traffic from kernel to kernel in small time steps: blocks, proxies, lines (Pulse 6.1).

A block takes its next step once the slices it receives are there and buffers for what it sends are free
(``Blocks``). The proxy hands a filled buffer to the NIC once the other end has offered one of its own; that end offers
as many as its buffers hold and each again when its block has consumed it. What the queue pairs of a NIC have to send
shares its line fairly (``Capacity``). Moments are exact; what happens at one host is known to another one a latency
later, which is the time step. Waiting, gaps and rates are nowhere said: they come of this.
"""

from __future__ import annotations

import numpy as np

from producers.simulation.nic.blocks import Blocks
from producers.simulation.nic.capacity import Capacity
from producers.simulation.nic.counters import EpochCounters
from producers.simulation.nic.hardware import Hardware
from producers.simulation.nic.proxies import Floats, Proxies
from producers.simulation.nic.slices import Ints
from producers.simulation.nic.wiring import Plan, Side

_NEVER = np.inf
_WHOLE = 1e-3
"""Bytes by which sums of fractions may miss the end of a slice."""


class Transport:
    """The state of all connections and blocks; times are seconds since the beginning."""

    def __init__(
        self, plan: Plan, hardware: Hardware, nics: int, proxies: Proxies, phase: Ints, draws: np.random.Generator
    ) -> None:
        self._plan, self._hardware, self._proxies, self._draws = plan, hardware, proxies, draws
        self.step_s = hardware.latency_s
        self.steps = 0
        connections, rows = len(plan.source), len(plan.ends)
        self._uncounted = 0
        self.finished: list[tuple[Ints, Floats]] = []
        self.capacity = Capacity(plan, nics, hardware.line_bytes_per_s)
        self._blocks = Blocks(plan, hardware)
        self._passes = 1 + int(self.step_s * hardware.line_bytes_per_s / hardware.slice_bytes)
        # slices
        self._filled, self._offered_at = np.full(rows, _NEVER), np.full(rows, _NEVER)
        self.posted_at, self.ended_at = np.full(rows, _NEVER), np.full(rows, _NEVER)
        counts = np.diff(np.append(plan.connection_at, rows)) - 1
        self._last = plan.connection_at + counts
        for slot in range(hardware.slots):
            self._blocks.free[np.minimum(plan.connection_at + slot, self._last)] = 0.0
        # connections
        self._next_post, self._next_end = plan.connection_at.copy(), plan.connection_at.copy()
        self._next_offer = plan.connection_at.copy()
        self._promised, self._consumed = plan.connection_at.copy(), plan.connection_at.copy()
        self._post_after = np.zeros(connections)
        self._posted_bytes, self.sent_bytes = np.zeros(connections), np.zeros(connections)
        self.wire = np.zeros(2 * connections)
        """What each connection has put on the wire, and behind them what each sent back to tell of free buffers."""
        self._data, self._control = self.wire[:connections], self.wire[connections:]
        flows = np.concatenate([plan.source, plan.destination])
        self.counters = EpochCounters(flows, phase, hardware)

    @property
    def now(self) -> float:
        """Where the next time step begins."""
        return self.steps * self.step_s

    def offer(self, side: Side, at: float) -> None:
        """A rank has called: its proxy offers the buffers for what it receives."""
        self._promised[side.incoming] += side.slices
        rank = self._plan.destination[side.incoming]
        for _ in range(self._hardware.slots):
            ready = self._proxies.begins(rank, np.full(len(rank), at))
            if not self._offer(side.incoming, ready):
                break

    def start(self, side: Side, at: float) -> None:
        """A rank's kernel begins to run."""
        self._blocks.start(side, at)

    def resend(self, nic: int) -> None:
        """Nothing was answered for too long: what was sent to a NIC since its last answer is sent again."""
        to = (self._plan.destination == nic).nonzero()[0]
        behind = self.sent_bytes[to] > self._plan.ends[self._next_end[to]]
        self.sent_bytes[to[behind]] = self._plan.ends[self._next_end[to[behind]]]

    def step(self) -> bool:
        """Go on by a time step; whether anything happened."""
        begin = self.now
        end = begin + self.step_s
        busy = False
        for _ in range(self._passes):
            ran = self._run_blocks(end)
            posted = self._post(end)
            if not ran and not posted:
                break
            busy = True
        busy |= self._transmit(begin, end)
        if busy:
            self._uncounted = self._hardware.epoch_steps
        self._count()
        return busy

    def idle(self, time: float) -> None:
        """Pass over time in which nothing happens; the epochs that were under way end meanwhile."""
        last = int(time / self.step_s)
        while self._uncounted and self.steps < last:
            self._count()
        self.steps = max(self.steps, last)

    def _count(self) -> None:
        if self._uncounted:
            self.counters.after(self.steps, self.wire)
            self._uncounted -= 1
        self.steps += 1

    def next_time(self) -> float:
        """When something happens next, as far as is known here; infinity: not without somebody starting something."""
        pending = ((self._posted_bytes > self.sent_bytes) & (self.capacity.tx[self._plan.source] > 0)).nonzero()[0]
        waiting = self.posted_at[self._next_end[pending]]
        times = (self._blocks.ready_at, self._next_posts(), waiting)
        return float(min(np.min(some, initial=_NEVER) for some in times))

    def _run_blocks(self, end: float) -> bool:
        steps = self._blocks.run(end)
        if steps is None:
            return False
        self._filled[steps.filled] = steps.filled_at
        self._consumed[steps.consumed] += 1
        self._offer(steps.consumed, self._proxies.begins(self._plan.destination[steps.consumed], steps.consumed_at))
        if len(steps.ended):
            self.finished.append((steps.ended, steps.ended_at))
        return True

    def _offer(self, connections: Ints, begins: Floats) -> bool:
        """Tell the sender of one more free buffer each, where there is one and somebody has called for it."""
        row = self._next_offer[connections]
        room = row < np.minimum(self._promised[connections], self._consumed[connections] + self._hardware.slots)
        room &= ~self.capacity.deaf[self._plan.destination[connections]]
        some = room.nonzero()[0]
        if not len(some):
            return False
        connections, row = connections[some], row[some]
        told = self._proxies.handled(self._plan.destination[connections], begins[some])
        self._offered_at[row] = told + self._hardware.latency_s
        self._next_offer[connections] += 1
        self._control[connections] += self._hardware.control_bytes
        self._uncounted = self._hardware.epoch_steps
        return True

    def _next_posts(self) -> Floats:
        return np.asarray(np.maximum(self._filled[self._next_post], self._offered_at[self._next_post]))

    def _post(self, end: float) -> bool:
        ready = self._next_posts()
        some = (ready < end).nonzero()[0]
        if not len(some):
            return False
        rank = self._plan.source[some]
        begins = self._proxies.begins(rank, np.maximum(ready[some], self._post_after[some]))
        go = begins < end
        some, rank, begins = some[go], rank[go], begins[go]
        if not len(some):
            return False
        done = self._proxies.handled(rank, begins)
        row = self._next_post[some]
        self.posted_at[row] = self._post_after[some] = done
        self._next_post[some] += 1
        self._posted_bytes[some] = self._plan.ends[row + 1]
        return True

    def _transmit(self, begin: float, end: float) -> bool:
        some = (self._posted_bytes > self.sent_bytes).nonzero()[0]
        if not len(some):
            return False
        since = np.maximum(self.posted_at[self._next_end[some]], begin)
        live = ((since < end) & (self.capacity.tx[self._plan.source[some]] > 0)).nonzero()[0]
        if not len(live):
            return False
        some, since = some[live], since[live]
        span = end - since
        rate = self.capacity.rates(some, span / self.step_s)
        before = self.sent_bytes[some].copy()
        sent = np.minimum(rate * span, self._posted_bytes[some] - before)
        self.sent_bytes[some] += sent
        self._data[some] += sent
        self._complete(some, since, before, rate)
        return True

    def _complete(self, some: Ints, since: Floats, before: Floats, rate: Floats) -> None:
        """Slices that have left: they arrive, and their buffers become free again."""
        hardware = self._hardware
        while True:
            row = self._next_end[some]
            through = (self.sent_bytes[some] >= self._plan.ends[row + 1] - _WHOLE) & (row < self._next_post[some])
            keep = self._answered(some, row, through.nonzero()[0])
            if not len(keep):
                return
            some, row = some[keep], row[keep]
            since, before, rate = since[keep], before[keep], rate[keep]
            left = since + (self._plan.ends[row + 1] - before) / rate
            source, destination = self._plan.source[some], self._plan.destination[some]
            seen = left + hardware.latency_s
            self.ended_at[row] = left
            self._blocks.arrived[row] = self._proxies.noticed(destination, seen)
            slot = np.minimum(row + hardware.slots, self._last[some])
            self._blocks.free[slot] = self._proxies.noticed(source, seen)
            self._next_end[some] += 1
            self._blocks.look_at(some)

    def _answered(self, some: Ints, row: Ints, through: Ints) -> Ints:
        """Of slices that have left, those that are there: no packet was lost, and the other NIC answers.

        After a lost packet the NIC sends again what it had sent since.
        """
        if not len(through):
            return through
        through = through[~self.capacity.deaf[self._plan.destination[some[through]]]]
        lost = self._draws.random(len(through)) < self._hardware.loss_share
        if lost.any():
            again = some[through[lost]]
            most = self.sent_bytes[again] - self._plan.ends[row[through[lost]]]
            share = self._draws.random(len(again))
            self.sent_bytes[again] -= np.minimum(most, self._hardware.resend_bytes) * share
        return through[~lost]
