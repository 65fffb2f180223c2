"""Holmes' root-cause search (4.3.2, Algorithm 1), as published; a generator that asks for the logs it needs.

"Abnormal" means longer than the operator usually lasts: the straggler's own collective is normal, its victims'
are abnormal. Collective: all members abnormal -> NETWORK; some member normal -> backtrack to that
member's earlier operators; none abnormal there -> COMPUTE on it. Point-to-point: no peer operator, or an
abnormal one -> NETWORK; a normal one -> backtrack to the peer; nothing abnormal there, where the published
listing is silent -> COMPUTE on the peer. Operators whose members' logs are missing are unknown, not NETWORK.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.irregularity.operator_detector import OperatorDetector, SigmaDetector
from diagnosis.operator_graph.attribution import Leaf, OperatorRef, Wait, reference
from diagnosis.operator_graph.delays import end_times
from diagnosis.operator_graph.logs import Answer, Logs, Needs
from diagnosis.operators import UNKNOWN, Bools, Ints, Operators, meeting_keys, numbered

MOST_RANKS = 256
"""A search that stands on more ranks than this gives up: something is wrong with its input."""


@dataclass(frozen=True, slots=True)
class Root:
    """Where a search ended: ``cause`` COMPUTE (on ``leaf.rank``) or NETWORK (on ``leaf.communicator``)."""

    cause: str
    leaf: Leaf


COMPUTE, NETWORK = "COMPUTE", "NETWORK"


@dataclass(frozen=True, slots=True)
class _View:
    """The fetched logs with the verdict on each operator of the iteration; arrays of shape (n,)."""

    operators: Operators
    abnormal: Bools
    excess_ns: Ints
    keys: Ints
    here: Bools


class Search:
    """One search from one pivot; ``run`` yields needs and returns the roots in the order found."""

    def __init__(
        self,
        logs: Logs,
        iteration: int,
        baseline: Sequence[int],
        detector: Callable[[], OperatorDetector] = SigmaDetector,
    ) -> None:
        self._logs = logs
        self._iteration = iteration
        self._baseline = tuple(sorted(baseline))
        self._detector = detector
        self._visited: set[tuple[int, int]] = set()
        self._ranks: set[int] = set()
        self.roots: list[Root] = []
        self.waits: list[Wait] = []
        self._cached: tuple[Operators, _View] | None = None

    def run(self, pivot: int) -> Generator[Needs, Answer, list[Root]]:
        """Search from every abnormal operator of the pivot."""
        yield from self._logs.fetch({None: [pivot]})
        view = self._view()
        for call_ns in [int(view.operators.call_ns[row]) for row in self._abnormal_before(view, pivot, None)][::-1]:
            yield from self._locate(pivot, call_ns, (pivot,))
        return self.roots

    def _locate(self, rank: int, call_ns: int, path: tuple[int, ...]) -> Generator[Needs, Answer, None]:
        """``locateNeighbor`` on the operator that ``rank`` called at ``call_ns``."""
        if (rank, call_ns) in self._visited or len(self._ranks) > MOST_RANKS:
            return
        self._visited.add((rank, call_ns))
        self._ranks.add(rank)
        view = self._view()
        row = self._row(view, rank, call_ns)
        name = view.operators.communicators[view.operators.communicator[row]]
        members = self._members(view, row)
        yield from self._logs.fetch({name: members})
        view = self._view()
        row = self._row(view, rank, call_ns)
        others = np.flatnonzero((view.keys == view.keys[row]) & view.here & (view.operators.rank != rank))
        unseen = set(members) - {rank} - {int(r) for r in view.operators.rank[others]}
        normal = others[~view.abnormal[others]]
        if not len(normal):
            if not unseen:
                self._add(NETWORK, view, row, path, name)
            return
        for other in [(int(view.operators.rank[n]), int(view.operators.call_ns[n])) for n in normal]:
            self.waits.append(_wait(view, row, other[0]))
            yield from self._backtrack(*other, path)

    def _backtrack(self, rank: int, call_ns: int, path: tuple[int, ...]) -> Generator[Needs, Answer, None]:
        """Look at what a normal member did before it entered; nothing abnormal there means that it computed slowly."""
        yield from self._logs.fetch({None: [rank]})
        view = self._view()
        path = path if path[-1] == rank else (*path, rank)
        earlier = [int(view.operators.call_ns[row]) for row in self._abnormal_before(view, rank, call_ns)]
        if not earlier:
            self._add(COMPUTE, view, self._row(view, rank, call_ns), path, None)
            return
        between = bool(view.operators.point_to_point[self._row(view, rank, call_ns)])
        for at in earlier if between else earlier[:1]:
            yield from self._locate(rank, at, path)

    def _add(self, cause: str, view: _View, row: int, path: tuple[int, ...], communicator: str | None) -> None:
        rank = int(view.operators.rank[row])
        members = self._members(view, row) if communicator else (rank,)
        operator = reference(view.operators, row)
        leaf = Leaf(rank, communicator, members, int(view.excess_ns[row]), self._iteration, operator, path)
        root = Root(cause, leaf)
        if all((root.cause, root.leaf.rank, root.leaf.communicator) != _place(known) for known in self.roots):
            self.roots.append(root)

    def _members(self, view: _View, row: int) -> tuple[int, ...]:
        operators = view.operators
        if operators.point_to_point[row]:
            return tuple(sorted({int(operators.rank[row]), int(operators.peer[row])} - {UNKNOWN}))
        return self._logs.job.members.get(operators.communicators[operators.communicator[row]], ())

    def _abnormal_before(self, view: _View, rank: int, call_ns: int | None) -> Iterator[int]:
        """The rank's abnormal operators of the iteration called before ``call_ns``, nearest first."""
        chosen = view.here & view.abnormal & (view.operators.rank == rank)
        if call_ns is not None:
            chosen &= view.operators.call_ns < call_ns
        yield from (int(row) for row in np.flatnonzero(chosen)[::-1])

    def _row(self, view: _View, rank: int, call_ns: int) -> int:
        return int(np.flatnonzero((view.operators.rank == rank) & (view.operators.call_ns == call_ns))[-1])

    def _view(self) -> _View:
        operators = self._logs.operators
        if self._cached is None or self._cached[0] is not operators:
            self._cached = (operators, self._judge(operators))
        return self._cached[1]

    def _judge(self, operators: Operators) -> _View:
        end = end_times(self._logs, self._logs.clocks(int(operators.rank[0])))
        duration = np.where(end == UNKNOWN, np.nan, end - operators.call_ns)
        series = numbered(operators.rank, operators.communicator, operators.position + 1)
        here = operators.iteration == self._iteration
        history = np.full((len(self._baseline), int(series.max(initial=-1)) + 1), np.nan)
        past = np.flatnonzero(
            np.isin(operators.iteration, np.asarray(self._baseline)) & (operators.position != UNKNOWN)
        )
        history[np.searchsorted(self._baseline, operators.iteration[past]), series[past]] = duration[past]
        now = np.full(history.shape[1], np.nan)
        now[series[here]] = duration[here]
        verdict = self._detector().fit(history).predict(now)
        seen = ~np.isnan(history)
        mean = np.divide(np.nansum(history, axis=0), seen.sum(axis=0), out=now.copy(), where=seen.any(axis=0))
        excess = np.nan_to_num(now - mean)[series].astype(np.int64)
        return _View(operators, verdict[series] & here, excess, meeting_keys(operators), here)


def earliest(roots: Sequence[Root], corrected_call_ns: Callable[[OperatorRef], int]) -> list[Root]:
    """Of the roots that several pivots found, those with the earliest operator, on corrected clocks (5.1.1)."""
    if not roots:
        return []
    first = min(corrected_call_ns(root.leaf.operator) for root in roots)
    return [root for root in roots if corrected_call_ns(root.leaf.operator) == first]


def _place(root: Root) -> tuple[str, int, str | None]:
    return root.cause, root.leaf.rank, root.leaf.communicator


def _wait(view: _View, row: int, awaited: int) -> Wait:
    operators = view.operators
    return Wait(
        int(operators.rank[row]),
        awaited,
        operators.communicators[operators.communicator[row]],
        operators.ops[operators.op[row]],
        int(view.excess_ns[row]),
    )
