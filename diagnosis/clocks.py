"""Offsets between host clocks, estimated from the barriers that the hosts pass together.

Real logs show clocks that are +-5 ms apart and drift. A collective ends for all its members at once, so the
ends that two hosts logged for it differ by their clocks' offset and little else. Where a log carries no ends,
or only sends and receives join two hosts, causality still bounds the offset: nobody is done, nor calls its
next operator, before the last member has entered this one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

import networkx as nx
import numpy as np

from diagnosis.operators import UNKNOWN, Bools, Ints, Operators, next_calls

_MEETINGS = 64
"""Meetings, the newest, that a pair of clocks is compared at: clocks drift, and more hardly sharpen a median."""

_LEAST_MEETINGS = 9
"""With fewer, ends that were logged late could pass for an offset: the least and the greatest of n bound their
median but for a chance of 2 in 2^n."""


_SET_NS = 50_000_000
"""By more than this a clock does not drift while iterations are compared: it was set."""

_SELDOM = 0.25
"""Of the iterations that are compared, a clock is set amid no more."""


Clock = TypeVar("Clock", int, str)
Pairs = dict[tuple[Clock, Clock], tuple[int, float]]
"""(how far the second clock is ahead of the first, how far that may be off) of clocks that met, in ns."""


@dataclass(frozen=True, slots=True)
class Epochs:
    """A clock that was set counts as several, one after the other: each has a name, and ``begins`` holds the iterations
    at which all but the first begin, ascending. Every other one, from the second on, is of the iterations amid which
    the clock was set: its times cannot even be compared among themselves.
    """

    names: tuple[str, ...]
    begins: tuple[int, ...]

    @classmethod
    def of(cls, clock: str, steps: Iterable[tuple[int, int]]) -> Self:
        """Of a clock that was set between iterations; those on both sides count, it may have been amid either."""
        amid: list[tuple[int, int]] = []
        for before, after in sorted(steps):
            last = amid.pop() if amid and before <= amid[-1][1] + 1 else (before, after)
            amid.append((last[0], max(after, last[1])))
        begins = tuple(begin for first, last in amid for begin in (first, last + 1))
        kinds = ("before", "set by") * len(amid)
        former = [f"{clock} {kind} iteration {begin}" for kind, begin in zip(kinds, begins, strict=True)]
        return cls((*former, clock), begins)

    @property
    def amid(self) -> frozenset[str]:
        """The names of what cannot be compared with anything."""
        return frozenset(self.names[1::2])


@dataclass(frozen=True, slots=True)
class Clocks:
    """``offset_ns`` of each clock against the reference, and ``error_ns``, how far that may be off.

    A clock that never met the reference's, not even through others, is absent: its offset is not known. Clocks may
    still have met each other, or met where every message goes one way, so that nothing bounds the offset from the
    other side: ``apart_ns`` holds what is good enough to compare these, and ``island`` numbers the sets of clocks
    that can be compared.

    A clock that was set meanwhile counts as several (``epochs``), of which the last bears its name.
    """

    reference: str
    offset_ns: Mapping[str, int]
    error_ns: Mapping[str, int]
    apart_ns: Mapping[str, int] = field(default_factory=dict)
    island: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, Epochs] = field(default_factory=dict)

    def known(self, clock: str) -> bool:
        """Whether the clock's offset could be estimated."""
        return clock in self.offset_ns

    def correction(self, clock_of_rank: Mapping[int, str], ranks: Ints, iterations: Ints | None = None) -> Ints:
        """What to subtract from times of ``ranks`` (shape (n,)) to compare those of one island; 0 where not known.

        Without ``iterations`` (shape (n,)) a clock that was set is taken as it is by now.
        """
        offsets = {**self.apart_ns, **self.offset_ns}
        return _of_rows(clock_of_rank, self.epochs, ranks, iterations, lambda clock: offsets.get(clock, 0))

    def islands(self, clock_of_rank: Mapping[int, str], ranks: Ints, iterations: Ints | None = None) -> Ints:
        """The island of each row's clock, shape (n,); times of two islands cannot be compared."""
        return _of_rows(clock_of_rank, self.epochs, ranks, iterations, lambda clock: self.island.get(clock, UNKNOWN))

    def amid(self, clock_of_rank: Mapping[int, str], ranks: Ints, iterations: Ints) -> Bools:
        """Which rows (shape (n,)) are of an iteration amid which their clock was set."""
        if not self.epochs:
            return np.zeros(len(ranks), dtype=np.bool_)
        amid = frozenset[str]().union(*(epochs.amid for epochs in self.epochs.values()))
        return _of_rows(clock_of_rank, self.epochs, ranks, iterations, lambda clock: clock in amid).astype(np.bool_)

    def worst_error_ns(self, clock_names: set[str]) -> int:
        """Largest error among the named clocks that are known."""
        return max((self.error_ns[name] for name in clock_names if name in self.error_ns), default=0)


def estimate(operators: Operators, clock_of_rank: Mapping[int, str], reference: str) -> Clocks:
    """Estimate every clock's offset against ``reference`` along the best-known pairs of clocks.

    ``operators`` as logged (shape (n,)); ``clock_of_rank`` names the clock that each rank reads.
    """
    names = sorted({reference, *clock_of_rank.values()})
    clock = _numbers(operators, clock_of_rank, {}, names)
    bounds = _bounds(operators, clock)
    epochs = _epochs(bounds, names)
    if epochs:
        names += [name for of_clock in epochs.values() for name in of_clock.names[:-1]]
        clock = _numbers(operators, clock_of_rank, epochs, names)
        bounds = _bounds(operators, clock)
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from([reference, *names])
    for (a, b), (offset, error) in _pairs(operators, clock, bounds, epochs, names).items():
        graph.add_edge(a, b, ahead={a: -offset, b: offset}, error=error)
    tree = nx.minimum_spanning_tree(graph, weight="error")
    offsets, errors, island = dict[str, int](), dict[str, float](), dict[str, int]()
    for number, root in enumerate(graph):
        if root in island:
            continue
        offsets[root], errors[root], island[root] = 0, 0, number
        for here, there in nx.bfs_edges(tree, root):
            edge = tree.edges[here, there]
            offsets[there] = offsets[here] + edge["ahead"][there]
            errors[there] = errors[here] + edge["error"]
            island[there] = number
    known = [clock for clock in offsets if island[clock] == island[reference] and math.isfinite(errors[clock])]
    return Clocks(
        reference=reference,
        offset_ns={clock: offsets[clock] for clock in known},
        error_ns={clock: int(errors[clock]) for clock in known},
        apart_ns={clock: offset for clock, offset in offsets.items() if clock not in known},
        island=island,
        epochs=epochs,
    )


def _of_rows(
    clock_of_rank: Mapping[int, str],
    epochs: Mapping[str, Epochs],
    ranks: Ints,
    iterations: Ints | None,
    value: Callable[[str], int],
) -> Ints:
    """A value a clock, as one a row; ranks come in runs."""
    first = np.flatnonzero(np.diff(ranks, prepend=ranks[0] - 1)) if len(ranks) else ranks
    of_run = [clock_of_rank.get(rank, "") for rank in ranks[first].tolist()]
    values = np.repeat(np.array(list(map(value, of_run)), dtype=np.int64), np.diff(first, append=len(ranks)))
    if iterations is not None and epochs:
        for clock, low, high in zip(of_run, first, np.r_[first[1:], len(ranks)], strict=True):
            if clock in epochs:
                epoch = np.searchsorted(epochs[clock].begins, iterations[low:high], side="right")
                values[low:high] = np.array(list(map(value, epochs[clock].names)), dtype=np.int64)[epoch]
    return values


def _numbers(
    operators: Operators, clock_of_rank: Mapping[int, str], epochs: Mapping[str, Epochs], names: Sequence[str]
) -> Ints:
    """The place among the names of each row's clock; ``UNKNOWN`` where it has none."""
    number = {name: index for index, name in enumerate(names)}
    return _of_rows(clock_of_rank, epochs, operators.rank, operators.iteration, lambda name: number.get(name, UNKNOWN))


@dataclass(frozen=True, slots=True)
class _Bounds:
    """How far the second clock of a pair may be ahead of the first, at each operator that tells: no further than
    ``most``, no less than ``least``, shape (m,) each, with the iterations that they are of.
    """

    most: Ints
    most_in: Ints
    least: Ints
    least_in: Ints

    @property
    def crossed_ns(self) -> int:
        """By how much the bounds contradict each other; 0: not at all."""
        return max(0, int(self.least.max() - self.most.min())) if len(self.most) and len(self.least) else 0

    def of(self, iteration: int) -> Self:
        """Those of one iteration."""
        high, low = self.most_in == iteration, self.least_in == iteration
        return type(self)(self.most[high], self.most_in[high], self.least[low], self.least_in[low])

    def joined(self, other: Self) -> Self:
        """Both together."""
        both = (np.r_[getattr(self, name), getattr(other, name)] for name in ("most", "most_in", "least", "least_in"))
        return type(self)(*both)


def _bounds(operators: Operators, clock: Ints) -> dict[tuple[int, int], _Bounds]:
    """What causality says of each pair of clocks: nobody is done, nor goes on, before the last one has entered."""
    known = (operators.meeting_keys != UNKNOWN) & (clock != UNKNOWN)
    left, right = _meetings(np.where(known, operators.meeting_keys, UNKNOWN), clock)
    following = np.where(operators.ended, operators.end_ns, next_calls(operators))
    # a sender may be done before its receiver has come, so only a receiver's end proves anything
    proves = (following != UNKNOWN) & ~operators.is_op("send")
    found = {}
    for pair, rows in _grouped(clock[left], clock[right]).items():
        a, b = left[rows], right[rows]
        a_before_b, b_before_a = proves[b], proves[a]
        found[pair] = _Bounds(
            (following[b] - operators.call_ns[a])[a_before_b],
            operators.iteration[a][a_before_b],
            (operators.call_ns[b] - following[a])[b_before_a],
            operators.iteration[a][b_before_a],
        )
    return found


def _epochs(bounds: Mapping[tuple[int, int], _Bounds], names: Sequence[str]) -> dict[str, Epochs]:
    """The clocks that were set: what causality says of them contradicts itself.

    Of two clocks that part, the one is taken to have been set that parts from more others; both, where that does not
    tell.
    """
    parted = {pair: steps for pair, of in bounds.items() if of.crossed_ns > _SET_NS and (steps := _steps(of))}
    found: dict[str, Epochs] = {}
    while parted:
        parts_from = Counter(index for pair in parted for index in pair)
        for one in [index for index, count in parts_from.items() if count == max(parts_from.values())]:
            found[names[one]] = Epochs.of(names[one], set().union(*(of for pair, of in parted.items() if one in pair)))
        parted = {pair: of for pair, of in parted.items() if not any(names[index] in found for index in pair)}
    return found


def _steps(bounds: _Bounds) -> set[tuple[int, int]]:
    """Between which iterations, or amid which, the bounds contradict each other.

    A clock is seldom set: where the bounds of many iterations contradict each other, calls that only queue operators
    prove nothing, and neither does this.
    """
    seen = np.union1d(bounds.most_in, bounds.least_in).tolist()
    here = {iteration: bounds.of(iteration) for iteration in seen}
    amid = {iteration for iteration in seen if here[iteration].crossed_ns > _SET_NS}
    if len(amid) > _SELDOM * len(seen):
        return set()
    steps = {(iteration, iteration) for iteration in amid}
    before: int = UNKNOWN
    since: _Bounds | None = None
    for iteration in seen:
        if iteration in amid:
            since = None
            continue
        both = here[iteration] if since is None else since.joined(here[iteration])
        if both.crossed_ns > _SET_NS:
            steps.add((before, iteration))
            both = here[iteration]
        before, since = iteration, both
    return steps if len(steps) <= _SELDOM * len(seen) else set()


def _pairs(
    operators: Operators,
    clock: Ints,
    bounds: Mapping[tuple[int, int], _Bounds],
    epochs: Mapping[str, Epochs],
    names: Sequence[str],
) -> Pairs[str]:
    """Each pair of clocks that meet, by name."""
    by_end = (operators.meeting_keys != UNKNOWN) & (clock != UNKNOWN) & operators.ended & ~operators.point_to_point
    left, right = _meetings(np.where(by_end, operators.meeting_keys, UNKNOWN), clock)
    found = _by_causality(bounds) | _by_ends(left, right, clock, operators.end_ns)
    amid = frozenset[str]().union(*(of_clock.amid for of_clock in epochs.values()))
    named = {(names[a], names[b]): value for (a, b), value in found.items()}
    return {pair: value for pair, value in named.items() if not amid.intersection(pair)}


def _meetings(keys: Ints, clock: Ints) -> tuple[Ints, Ints]:
    """Pairs of operators of one communication on neighbouring clocks, lower clock first; shape (m,) each."""
    known = np.flatnonzero(keys != UNKNOWN)
    order = known[np.lexsort((clock[known], keys[known]))]
    same = (keys[order][1:] == keys[order][:-1]) & (clock[order][1:] != clock[order][:-1])
    at = np.flatnonzero(same)
    return order[at], order[at + 1]


def _by_ends(left: Ints, right: Ints, clock: Ints, end_ns: Ints) -> Pairs[int]:
    """The median, and how far the median's 3-sigma interval reaches, whatever the distribution: order statistics."""
    found: Pairs[int] = {}
    for pair, rows in _grouped(clock[left], clock[right]).items():
        if len(rows) < _LEAST_MEETINGS:
            continue
        newest = rows[np.argsort(end_ns[left[rows]], kind="stable")][-_MEETINGS:]
        ahead = np.sort(end_ns[right[newest]] - end_ns[left[newest]])
        outside = max(0, int(len(ahead) / 2 - 1.5 * np.sqrt(len(ahead))))
        middle = int(np.median(ahead))
        found[pair] = (middle, int(max(middle - ahead[outside], ahead[-1 - outside] - middle)) + 1)
    return found


def _by_causality(bounds: Mapping[tuple[int, int], _Bounds]) -> Pairs[int]:
    """Offset between the two bounds that causality sets: the middle, with half the interval as its error.

    Where all messages go one way there is one bound, and no saying how far off it is: the quickest message's time.
    """
    found: Pairs[int] = {}
    for pair, of in bounds.items():
        most = int(of.most.min()) if len(of.most) else None
        least = int(of.least.max()) if len(of.least) else None
        if most is not None and least is not None:
            found[pair] = ((most + least) // 2, abs(most - least) // 2 + 1)
        elif (bound := most if most is not None else least) is not None:
            found[pair] = (bound, math.inf)
    return found


def _grouped(first: Ints, second: Ints) -> dict[tuple[int, int], Ints]:
    """Rows of each distinct pair."""
    if not len(first):
        return {}
    pairs, inverse = np.unique(np.stack([first, second], axis=1), axis=0, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    bounds = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(pairs) + 1))
    return {(int(a), int(b)): order[bounds[i] : bounds[i + 1]] for i, (a, b) in enumerate(pairs)}
