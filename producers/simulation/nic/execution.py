"""Runs the programs of all ranks over the transport: who computes, calls and starts when, and what hangs."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np

from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.faults import Fault, Injection
from producers.simulation.nic.lines import Lines
from producers.simulation.nic.programs import Communicate, Compute, Item
from producers.simulation.nic.proxies import Proxies, Service
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.slices import Ints
from producers.simulation.nic.transport import Transport
from producers.simulation.nic.wiring import Plan

LAUNCH_S = 8e-6
"""From a call until its kernel runs, on an idle GPU."""

_BETWEEN_CALLS_S = 20e-6
_FIRST_CALL_S = 1e-3


@dataclass(frozen=True, slots=True)
class Computed:
    """A segment as it ran: ``seconds``, infinite where it hung, of which the rank's own GPU computed for ``own_s``."""

    begin_s: float
    seconds: float
    own_s: float
    item: Compute


@dataclass(slots=True)
class Called:
    """A call as it was made, when its kernel began to run and when it came to its end; infinite: it did not."""

    at_s: float
    item: Communicate
    begin_s: float = np.inf
    end_s: float = np.inf


class Execution:
    """One run; ``run`` executes it, and then ``computed`` and ``called`` of each rank tell of it.

    A rank whose process has failed does not call any more: ``silent_from``.
    ``iteration_ends`` (iterations, ranks) is when each rank began to communicate for a later one, or was through.
    """

    def __init__(
        self, scenario: NicScenario, programs: list[list[Item]], plan: Plan, transport: Transport, lines: Lines,
        proxies: Proxies,
    ) -> None:  # fmt: skip
        self._scenario, self._programs, self._plan = scenario, programs, plan
        self._transport, self._lines, self._proxies = transport, lines, proxies
        ranks = scenario.world
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._place = [0] * ranks
        self._begun = [-1] * ranks
        self._called_at: list[float | None] = [None] * ranks
        self._blocks_left = np.zeros(ranks, dtype=np.int64)
        self._done_at = np.zeros(ranks)
        self._slow = np.ones(ranks)
        self._stopped: dict[int, tuple[float, Fault]] = {}
        self.silent_from: dict[int, float] = {}
        self._arrived: dict[int, dict[int, float]] = {host: {} for host in range(scenario.hosts)}
        self._launching = [stream(scenario.seed, Purpose.LAUNCH, rank) for rank in range(ranks)]
        self.computed: list[list[Computed]] = [[] for _ in range(ranks)]
        self.called: list[list[Called]] = [[] for _ in range(ranks)]
        self.iteration_ends = np.full((scenario.iterations, ranks), np.inf)
        self.end_s = 0.0

    def run(self) -> None:
        """Execute all programs, until all ranks are through or nothing moves any more."""
        for fault in self._scenario.faults:
            self._inject(fault)
        for rank in range(self._scenario.world):
            self._at(_FIRST_CALL_S, partial(self._next, rank))
        step = self._transport.step_s
        while True:
            end = self._transport.now + step
            self._lines.advance(self._transport.now)
            while self._events and self._events[0][0] < end:
                time, _, act = heapq.heappop(self._events)
                act(time)
            if self._transport.step():
                self._collect()
                continue
            then = min(self._events[0][0] if self._events else np.inf, self._transport.next_time())
            if then == np.inf or not self.hung:  # what would happen to a run that is over is none of its
                self._transport.idle(self._transport.now + self._scenario.hardware.epoch_ns * 1e-9 + step)
                break
            self._transport.idle(then)
        self.end_s = self._transport.now + (self._scenario.hang_s if self.hung else 0.0)

    @property
    def hung(self) -> bool:
        """Whether some rank never came to the end of its program."""
        return any(place <= len(program) for place, program in zip(self._place, self._programs, strict=True))

    def _at(self, time: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), act))

    def _inject(self, fault: Fault) -> None:
        """What a fault does to computing and to proxies; lines see to the rest."""
        if fault.stops_computing:
            self._stopped[self._scenario.host_of(fault.rank)] = (fault.at_s, fault)
        if fault.injection is Injection.CUDA_ERROR:
            self.silent_from[fault.rank] = fault.at_s
        if fault.compute_factor > 1:
            self._at(fault.at_s, partial(self._throttle, fault.rank, fault.compute_factor))
        if fault.service is not None:
            self._at(fault.at_s, partial(self._serve, self._scenario.host_of(fault.rank), fault.service))
        if fault.injection is Injection.NIC_DOWN:
            hardware = self._scenario.hardware
            for turn in range(hardware.resends):
                after = hardware.resend_after_s * (2 ** (turn + 1) - 1)
                self._at(fault.at_s + after, partial(self._resend, fault.rank))

    def _throttle(self, rank: int, factor: float, _: float) -> None:
        self._slow[rank] = factor

    def _serve(self, host: int, service: Service, _: float) -> None:
        for rank in range(host * self._scenario.tp, (host + 1) * self._scenario.tp):
            self._proxies.serve(rank, service)

    def _resend(self, nic: int, _: float) -> None:
        self._transport.resend(nic)

    def _next(self, rank: int, now: float) -> None:
        """A rank turns to its next item."""
        place = self._place[rank]
        self._place[rank] += 1
        if place == len(self._programs[rank]):
            self.iteration_ends[-1, rank] = now
            return
        item = self._programs[rank][place]
        if isinstance(item, Compute):
            self._compute(rank, item, now)
            return
        if self._called_at[rank] is None and not self._call(rank, item, now):
            return
        begins = max(now, (self._called_at[rank] or 0.0) + LAUNCH_S)
        self._called_at[rank] = None
        self._at(begins, partial(self._start, rank, item))

    def _following(self, rank: int) -> Item | None:
        place = self._place[rank]
        return self._programs[rank][place] if place < len(self._programs[rank]) else None

    def _call(self, rank: int, item: Communicate, now: float) -> bool:
        """The rank's process calls; False: it does not any more."""
        if now >= self.silent_from.get(rank, np.inf):
            return False
        self.called[rank].append(Called(now, item))
        self._called_at[rank] = now
        self._transport.offer(item.side, now)
        return True

    def _call_ahead(self, rank: int, place: int, now: float) -> None:
        """The process has launched what runs, and calls what comes next meanwhile, if it has not come to it yet."""
        item = self._following(rank)
        if self._place[rank] == place and isinstance(item, Communicate):
            self._call(rank, item, now)

    def _compute(self, rank: int, item: Compute, now: float) -> None:
        """GPUs of a host wait for each other within a segment: it ends for all of them at once."""
        if not item.tensor_calls or self._scenario.tp == 1:
            self._segment([rank], {rank: item}, now)
            return
        host = self._scenario.host_of(rank)
        self._arrived[host][rank] = now
        if len(self._arrived[host]) == self._scenario.tp:
            ranks = sorted(self._arrived[host])
            begin = max(self._arrived[host].values())
            self._arrived[host] = {}
            items = {r: self._programs[r][self._place[r] - 1] for r in ranks}
            self._segment(ranks, {r: i for r, i in items.items() if isinstance(i, Compute)}, begin)

    def _segment(self, ranks: list[int], items: dict[int, Compute], begin: float) -> None:
        seconds = max(items[rank].seconds * self._slow[rank] for rank in ranks)
        stopped_at, fault = self._stopped.get(self._scenario.host_of(ranks[0]), (np.inf, None))
        hangs = begin + seconds > stopped_at and (len(ranks) > 1 or (fault is not None and fault.rank in ranks))
        for rank in ranks:
            item = items[rank]
            own_s = item.seconds * float(self._slow[rank])
            self.computed[rank].append(Computed(begin, np.inf if hangs else seconds, own_s, item))
            launched = begin + seconds * item.launching * float(self._launching[rank].uniform(0.9, 1.0))
            if not item.synced:
                self._at(launched, partial(self._call_ahead, rank, self._place[rank]))
            if not hangs:
                self._at(begin + seconds, partial(self._next, rank))

    def _start(self, rank: int, item: Communicate, now: float) -> None:
        self.iteration_ends[: item.iteration, rank] = np.minimum(self.iteration_ends[: item.iteration, rank], now)
        self._transport.start(item.side, now)
        self._begun[rank] += 1
        self.called[rank][self._begun[rank]].begin_s = now
        self._blocks_left[rank] = int((item.side.steps > 0).sum())
        self._done_at[rank] = now
        following = self._following(rank)
        if isinstance(following, Communicate):
            self._at(now + _BETWEEN_CALLS_S, partial(self._call_ahead, rank, self._place[rank]))
        if not self._blocks_left[rank]:
            self._end(rank, now + LAUNCH_S)

    def _end(self, rank: int, time: float) -> None:
        """A rank's kernel comes to its end."""
        self.called[rank][self._begun[rank]].end_s = time
        self._at(time, partial(self._next, rank))

    def _collect(self) -> None:
        """Ranks whose blocks have all come to their end go on."""
        for blocks, done in self._transport.finished:
            ranks: Ints = self._plan.rank[blocks]
            np.subtract.at(self._blocks_left, ranks, 1)
            np.maximum.at(self._done_at, ranks, done)
            for rank in np.unique(ranks[self._blocks_left[ranks] == 0]):
                self._end(int(rank), float(self._done_at[rank]))
        self._transport.finished.clear()
