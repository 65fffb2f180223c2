"""Holmes' root-cause search (4.3.2, Algorithm 1), as published; a generator that asks for the logs it needs.

"Abnormal" means longer than the operator usually lasts: the straggler's own collective is normal, its victims'
are abnormal. Collective: all members abnormal -> NETWORK; some member normal -> backtrack to that
member's earlier operators; none abnormal there -> COMPUTE on it. Point-to-point: no peer operator, or an
abnormal one -> NETWORK; a normal one -> backtrack to the peer; nothing abnormal there, where the published
listing is silent -> COMPUTE on the peer. What the logs do not tell (a member that did not answer, a line that
was lost, an operator without a usual duration) is unknown: neither normal nor abnormal, and blames nobody. But
lines lost of what a normal member did before are passed over, so that it may be COMPUTE for what was lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.irregularity.operator_detector import OperatorDetector, SigmaDetector
from diagnosis.irregularity.samples import Length
from diagnosis.irregularity.tuning import is_tunable
from diagnosis.operator_graph.leaf import Leaf, OperatorRef, Wait, reference
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Needs
from diagnosis.operator_graph.verdicts import Call, Verdicts, judge
from diagnosis.operators import UNKNOWN

MOST_VISITED = 256
"""A search goes on from no more ranks than this; the published case stands on four of 3,072."""

COMPUTE, NETWORK = "COMPUTE", "NETWORK"

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Root:
    """Where a search ended: ``cause`` COMPUTE (on ``leaf.rank``) or NETWORK (on ``leaf.communicator``).

    ``abnormal`` is the last abnormal operator of the path: of NETWORK the leaf's own, of COMPUTE that of the member
    which waited. ``leaf.excess_ns`` is how much longer than usual it took.
    """

    cause: str
    leaf: Leaf
    abnormal: OperatorRef


@dataclass(frozen=True, slots=True)
class Found:
    """What the searches from all pivots found: the roots with the earliest abnormal operator, and who waited for whom.

    Of roots whose times differ by less than ``uncertainty_ns``, the clocks do not tell which came first;
    ``clock_error_ns`` is how far those of the visited ranks may be off. ``bounded``: a search stopped at
    ``MOST_VISITED``, so that roots may be missing.
    """

    roots: tuple[Root, ...]
    waits: tuple[Wait, ...]
    visited: tuple[int, ...]
    uncertainty_ns: int
    clock_error_ns: int = 0
    bounded: bool = False


def search(
    logs: Logs,
    iteration: int,
    baseline: Sequence[int],
    pivots: Sequence[int],
    detector: OperatorDetector | None = None,
    length: Length | None = None,
) -> Generator[Needs, Answer, Found]:
    """Search from every pivot by itself; all roots of the one with the earliest abnormal operator count (5.1.1)."""
    searches: list[Search] = []
    detector = SigmaDetector() if detector is None else detector
    if is_tunable(detector):  # all pivots together tell how far the job has drifted
        yield from logs.fetch_whole_with_peers(pivots)
    for pivot in pivots:
        known = searches[-1].verdicts if searches else None
        one = Search(logs, iteration, baseline, detector, length, tuple(pivots), verdicts=known)
        yield from one.run(pivot)
        searches.append(one)
    first, uncertainty_ns = first_by_clocks(logs, [root for one in searches for root in one.roots])
    places = {_place(root) for root in first}
    winners = [one for one in searches if any(_place(root) in places for root in one.roots)]
    visited = tuple(dict.fromkeys(rank for one in searches for rank in one.visited))
    return Found(
        roots=tuple({_place(root): root for one in reversed(winners) for root in one.roots}.values()),
        waits=tuple(dict.fromkeys(wait for one in searches for wait in one.waits)),
        visited=visited,
        uncertainty_ns=uncertainty_ns,
        clock_error_ns=logs.view.clock_error_ns(visited),
        bounded=any(one.bounded for one in searches),
    )


def first_by_clocks(logs: Logs, roots: Sequence[Root]) -> tuple[list[Root], int]:
    """Of the roots that several pivots found, the earliest on corrected clocks, and the uncertainty of these in ns."""
    ranks = sorted({root.abnormal.rank for root in roots})
    view = logs.view
    ahead = view.clocks.correction(view.clock_of_rank, np.array(ranks, dtype=np.int64))
    of_rank = dict(zip(ranks, ahead.tolist(), strict=True))
    uncertainty_ns = 2 * view.clock_error_ns(ranks)
    return earliest(roots, lambda operator: operator.call_ns - of_rank[operator.rank], uncertainty_ns), uncertainty_ns


def earliest(
    roots: Sequence[Root], corrected_call_ns: Callable[[OperatorRef], int], uncertainty_ns: int = 0
) -> list[Root]:
    """Of the roots that several pivots found, those with the earliest abnormal operator, as far as that can be told."""
    if not roots:
        return []
    first = min(corrected_call_ns(root.abnormal) for root in roots)
    return [root for root in roots if corrected_call_ns(root.abnormal) <= first + uncertainty_ns]


@dataclass
class Search:
    """One search from one pivot; ``run`` yields needs and returns the roots in the order found.

    ``verdicts`` are of the logs as they were when somebody last asked for them.
    """

    logs: Logs
    iteration: int
    baseline: Sequence[int]
    detector: OperatorDetector = field(default_factory=SigmaDetector)
    length: Length | None = None
    pivots: tuple[int, ...] = ()
    roots: list[Root] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    bounded: bool = False
    verdicts: Verdicts | None = None
    _seen: set[Call] = field(default_factory=set)
    _ranks: dict[int, None] = field(default_factory=dict)

    @property
    def visited(self) -> tuple[int, ...]:
        """Ranks whose logs the search asked for whole, in order."""
        return tuple(self._ranks)

    def run(self, pivot: int) -> Generator[Needs, Answer, list[Root]]:
        """Search from every abnormal operator of the pivot."""
        yield from self.logs.fetch_whole_with_peers([pivot])
        self._ranks[pivot] = None
        earliest_first = reversed(self._verdicts().abnormal_before(pivot))
        ahead: deque[tuple[Call, Path]] = deque((call, (pivot,)) for call in earliest_first)
        while ahead:
            call, path = ahead.popleft()
            if call in self._seen:
                continue
            self._seen.add(call)
            following = yield from self._locate_neighbour(call, path)
            view = self._verdicts()
            if view.operators.is_point_to_point(view.row(call)):
                ahead.extendleft(reversed(following))  # depth first, along the pipeline
            else:
                ahead.extend(following)  # breadth first: all members of the collective before what is behind one
        return self.roots

    def _locate_neighbour(self, call: Call, path: Path) -> Generator[Needs, Answer, list[tuple[Call, Path]]]:
        """``locateNeighbor`` of the listing: which operators to go on with, and by which path."""
        view = self._verdicts()
        members = self._members(view, view.row(call))
        yield from self._fetch_part(view, call, members)
        view = self._verdicts()
        row = view.row(call)
        others = self._others(view, row)
        normal = self._within_bound([view.call(int(at)) for at in others[view.judged[others] & ~view.abnormal[others]]])
        abnormal = reference(view.operators, row), int(view.excess_ns[row])
        if not normal:
            if (yield from self._all_abnormal(call, members)):
                self._add(NETWORK, view, row, path, *abnormal)
            return []
        self.waits.extend(_wait(view, row, other.rank) for other in normal)
        yield from self.logs.fetch_whole_with_peers([other.rank for other in normal])
        return [ahead for other in normal for ahead in self._backtrack(other, path, *abnormal)]

    def _within_bound(self, normal: list[Call]) -> list[Call]:
        """Those whose logs the search may still ask for."""
        new = dict.fromkeys(other.rank for other in normal if other.rank not in self._ranks)
        self._ranks |= dict.fromkeys(islice(new, max(0, MOST_VISITED - len(self._ranks))))
        within = [other for other in normal if other.rank in self._ranks]
        self.bounded |= len(within) < len(normal)
        return within

    def _fetch_part(self, view: Verdicts, call: Call, members: Sequence[int]) -> Generator[Needs, Answer, None]:
        """What the members did in an operator: of a collective just that one, where statistics tell what is usual.

        Numbers do not line up between the ends of a send, and what is not numbered is found by what is around it.
        """
        row = view.row(call)
        position = int(view.operators.position[row])
        if self.logs.window and UNKNOWN not in {call.seq, position} and not view.operators.is_point_to_point(row):
            yield from self.logs.fetch_operator(members, call.communicator, call.seq, position)
        else:
            yield from self.logs.fetch({call.communicator: members})

    def _backtrack(self, call: Call, path: Path, abnormal: OperatorRef, excess_ns: int) -> list[tuple[Call, Path]]:
        """What a normal member did before it entered an operator that is ``abnormal`` on another one; nothing abnormal
        there means that it computed slowly.

        Of a collective's the nearest counts, of a send's or recv's all (lines 9-11 and 27-29 of the listing).
        """
        if call.rank in self.logs.missing:
            return []  # what it did before is unknown, and unknown is never blamed
        view = self._verdicts()
        row = view.row(call)
        path = path if path[-1] == call.rank else (*path, call.rank)
        earlier = view.abnormal_before(call.rank, row, most=None if view.operators.is_point_to_point(row) else 1)
        if not earlier:
            self._add(COMPUTE, view, row, path, abnormal, excess_ns)
        return [(at, path) for at in earlier]

    def _all_abnormal(self, call: Call, members: Sequence[int]) -> Generator[Needs, Answer, bool]:
        """Whether every other member is known to be abnormal, or not to have called the operator at all."""
        view = self._verdicts()
        row = view.row(call)
        others = self._others(view, row)
        unseen = set(members) - {call.rank} - {int(rank) for rank in view.operators.rank[others]}
        if view.keys[row] == UNKNOWN or len(members) < 2 or not view.abnormal[others].all():
            return False
        if not unseen:
            return True
        if not view.operators.is_point_to_point(row) or unseen & self.logs.missing:
            return False
        [peer] = unseen
        yield from self.logs.fetch({None: [peer]})
        return self._never_called(self._verdicts(), call, peer)

    def _never_called(self, view: Verdicts, call: Call, peer: int) -> bool:
        """Whether the peer's log reaches the iteration and shows no later operator of this pair and direction.

        One with a later number would mean that the peer's line was lost, and so does a receive that has ended: what
        came was sent.
        """
        operators, row = view.operators, view.row(call)
        if operators.is_op("recv")[row] and operators.ended[row]:
            return False
        own = operators.rank == peer
        later = own & (operators.peer == call.rank) & (operators.p2p_seq > call.p2p_seq)
        later &= operators.is_op("recv" if operators.is_op("send")[row] else "send")
        return peer not in self.logs.missing and bool((own & view.here).any()) and not later.any()

    def _others(self, view: Verdicts, row: int) -> Ints:
        """The rows of the other members' part in an operator."""
        met = view.met(row)
        return np.asarray(met[view.operators.rank[met] != view.operators.rank[row]])

    def _members(self, view: Verdicts, row: int) -> Path:
        return view.operators.participants(row, self.logs.job.members)

    def _add(self, cause: str, view: Verdicts, row: int, path: Path, abnormal: OperatorRef, excess_ns: int) -> None:
        call = view.call(row)
        network = cause == NETWORK
        members = self._members(view, row) if network else (call.rank,)
        name = call.communicator if network else None
        operator = reference(view.operators, row)
        root = Root(cause, Leaf(call.rank, name, members, excess_ns, self.iteration, operator, path), abnormal)
        if _place(root) not in map(_place, self.roots):
            self.roots.append(root)

    def _verdicts(self) -> Verdicts:
        if self.verdicts is None or self.verdicts.operators is not self.logs.operators:
            self.verdicts = judge(self.logs, self.iteration, self.baseline, self.detector, self.length, self.pivots)
        return self.verdicts


def _place(root: Root) -> tuple[object, ...]:
    return root.cause, root.leaf.communicator, root.leaf.members if root.leaf.communicator else root.leaf.rank


def _wait(view: Verdicts, row: int, awaited: int) -> Wait:
    operators = view.operators
    return Wait(
        int(operators.rank[row]),
        awaited,
        operators.communicators[operators.communicator[row]],
        operators.ops[operators.op[row]],
        int(view.excess_ns[row]),
    )
