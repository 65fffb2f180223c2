"""Offsets between host clocks, estimated from the barriers that the hosts pass together.

Real logs show clocks that are +-5 ms apart and drift. A collective ends for all its members at once, so the
ends that two hosts logged for it differ by their clocks' offset and little else. Where a log carries no ends,
or only sends and receives join two hosts, causality still bounds the offset: nobody is done, nor calls its
next operator, before the last member has entered this one. Over the iterations that are compared clocks drift by
more than a short operator lasts, so the offset is told for each of them: as a line, by when it began.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import networkx as nx
import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Bools, Ints
from diagnosis.clock_bounds import Bounds, by_causality, causal_bounds
from diagnosis.clock_pairs import Moments, Pairs, at_moments, by_communication, by_ends, meetings
from diagnosis.operators import ONE_SIDED, UNKNOWN, Operators

_SET_NS = 50_000_000
"""By more than this a clock does not drift while iterations are compared: it was set."""

_SELDOM = 0.25
"""Of the iterations that are compared, a clock is set amid no more."""

_IN_QUESTION = 2
"""The newest iterations, which are searched since they were slow: where ends are not logged, and calls may only queue
operators, whoever is late in them looks as if its clock had been set.
"""


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

    Offsets are those of the newest iteration; earlier ones differ by ``drift``, ns a ns, times ``moments``.

    A clock that was set meanwhile counts as several (``epochs``), of which the last bears its name.
    """

    reference: str
    offset_ns: Mapping[str, int]
    error_ns: Mapping[str, int]
    apart_ns: Mapping[str, int] = field(default_factory=dict)
    island: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, Epochs] = field(default_factory=dict)
    drift: Mapping[str, float] = field(default_factory=dict)
    moments: Moments = field(default_factory=dict)

    def known(self, clock: str) -> bool:
        """Whether the clock's offset could be estimated."""
        return clock in self.offset_ns

    def correction(self, clock_of_rank: Mapping[int, str], ranks: Ints, iterations: Ints | None = None) -> Ints:
        """What to subtract from times of ``ranks`` (shape (n,)) to compare those of one island; 0 where not known.

        Without ``iterations`` (shape (n,)) clocks are taken as they are by now.
        """
        offsets = {**self.apart_ns, **self.offset_ns}
        ahead: Ints = _of_rows(clock_of_rank, self.epochs, ranks, iterations, lambda clock: offsets.get(clock, 0))
        if iterations is None or not self.drift:
            return ahead
        drift = _of_rows(
            clock_of_rank, self.epochs, ranks, iterations, lambda clock: self.drift.get(clock, 0.0), np.float64
        )
        return ahead + np.rint(drift * at_moments(self.moments, iterations)).astype(np.int64)

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
    rows = by_communication(operators, clock)
    bounds = causal_bounds(operators, clock, rows)
    epochs = _epochs(bounds, names, _certain(operators))
    if epochs:
        names += [name for of_clock in epochs.values() for name in of_clock.names[:-1]]
        clock = _numbers(operators, clock_of_rank, epochs, names)
        rows = by_communication(operators, clock)
        bounds = causal_bounds(operators, clock, rows)
    moments = _moments(operators)
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from([reference, *names])
    for (a, b), pair in _pairs(operators, clock, rows, bounds, epochs, names, moments).items():
        ahead, drift = {a: -pair.ahead_ns, b: pair.ahead_ns}, {a: -pair.drift, b: pair.drift}
        graph.add_edge(a, b, ahead=ahead, drift=drift, error=pair.error_ns)
    tree = nx.minimum_spanning_tree(graph, weight="error")
    offsets, errors, island = dict[str, int](), dict[str, float](), dict[str, int]()
    drifts = dict[str, float]()
    for number, root in enumerate(graph):
        if root in island:
            continue
        offsets[root], errors[root], drifts[root], island[root] = 0, 0, 0.0, number
        for here, there in nx.bfs_edges(tree, root):
            edge = tree.edges[here, there]
            offsets[there] = offsets[here] + edge["ahead"][there]
            errors[there] = errors[here] + edge["error"]
            drifts[there] = drifts[here] + edge["drift"][there]
            island[there] = number
    known = [clock for clock in offsets if island[clock] == island[reference] and math.isfinite(errors[clock])]
    return Clocks(
        reference=reference,
        offset_ns={clock: offsets[clock] for clock in known},
        error_ns={clock: int(errors[clock]) for clock in known},
        apart_ns={clock: offset for clock, offset in offsets.items() if clock not in known},
        island=island,
        epochs=epochs,
        drift={clock: drift for clock, drift in drifts.items() if drift},
        moments=moments,
    )


def _moments(operators: Operators) -> Moments:
    """Of the ranks that logged an iteration and the newest one the median: a few clocks may have been set between."""
    if not len(operators):
        return {}
    begins = np.flatnonzero(np.r_[True, (np.diff(operators.rank) != 0) | (np.diff(operators.iteration) != 0)])
    rank, iteration, call_ns = (of[begins] for of in (operators.rank, operators.iteration, operators.call_ns))
    newest = np.flatnonzero(iteration == iteration.max())
    own = newest[np.minimum(np.searchsorted(rank[newest], rank), len(newest) - 1)]
    both, since_ns = rank[own] == rank, call_ns - call_ns[own]
    return {of: int(np.median(since_ns[both & (iteration == of)])) for of in np.unique(iteration[both]).tolist()}


def _of_rows(
    clock_of_rank: Mapping[int, str],
    epochs: Mapping[str, Epochs],
    ranks: Ints,
    iterations: Ints | None,
    value: Callable[[str], float],
    dtype: npt.DTypeLike = np.int64,
) -> npt.NDArray[Any]:
    """A value a clock, as one a row; ranks come in runs."""
    first = np.flatnonzero(np.diff(ranks, prepend=ranks[0] - 1)) if len(ranks) else ranks
    of_run = [clock_of_rank.get(rank, "") for rank in ranks[first].tolist()]
    values = np.repeat(np.array(list(map(value, of_run)), dtype=dtype), np.diff(first, append=len(ranks)))
    if iterations is not None and epochs:
        for clock, low, high in zip(of_run, first, np.r_[first[1:], len(ranks)], strict=True):
            if clock in epochs:
                epoch = np.searchsorted(epochs[clock].begins, iterations[low:high], side="right")
                values[low:high] = np.array(list(map(value, epochs[clock].names)), dtype=dtype)[epoch]
    return values


def _numbers(
    operators: Operators, clock_of_rank: Mapping[int, str], epochs: Mapping[str, Epochs], names: Sequence[str]
) -> Ints:
    """The place among the names of each row's clock; ``UNKNOWN`` where it has none."""
    number = {name: index for index, name in enumerate(names)}
    return _of_rows(clock_of_rank, epochs, operators.rank, operators.iteration, lambda name: number.get(name, UNKNOWN))


def _certain(operators: Operators) -> frozenset[int]:
    """The iterations of which causality can be believed that a clock was set."""
    iterations = np.unique(operators.iteration)
    return frozenset(iterations.tolist() if operators.ended.any() else iterations[:-_IN_QUESTION].tolist())


def _epochs(
    bounds: Mapping[tuple[int, int], Bounds], names: Sequence[str], certain: Collection[int]
) -> dict[str, Epochs]:
    """The clocks that were set: what causality says of them contradicts itself.

    Of two clocks that part, the one is taken to have been set that parts from more others; both, where that does not
    tell.
    """
    parted = {pair: steps for pair, of in bounds.items() if of.crossed_ns > _SET_NS and (steps := _steps(of, certain))}
    found: dict[str, Epochs] = {}
    while parted:
        parts_from = Counter(index for pair in parted for index in pair)
        for one in [index for index, count in parts_from.items() if count == max(parts_from.values())]:
            found[names[one]] = Epochs.of(names[one], set().union(*(of for pair, of in parted.items() if one in pair)))
        parted = {pair: of for pair, of in parted.items() if not any(names[index] in found for index in pair)}
    return found


def _steps(bounds: Bounds, certain: Collection[int]) -> set[tuple[int, int]]:
    """Between which of the certain iterations, or amid which, the bounds contradict each other.

    A clock is seldom set: where the bounds of many iterations contradict each other, calls that only queue operators
    prove nothing, and neither does this.
    """
    seen = [each for each in np.union1d(bounds.most_in, bounds.least_in).tolist() if each in certain]
    here = {iteration: bounds.of(iteration) for iteration in seen}
    amid = {iteration for iteration in seen if here[iteration].crossed_ns > _SET_NS}
    if len(amid) > _SELDOM * len(seen):
        return set()
    steps = {(iteration, iteration) for iteration in amid}
    before: int = UNKNOWN
    since: Bounds | None = None
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
    rows: Ints,
    bounds: Mapping[tuple[int, int], Bounds],
    epochs: Mapping[str, Epochs],
    names: Sequence[str],
    moments: Moments,
) -> Pairs[str]:
    """Each pair of clocks that meet, by name."""
    by_end = operators.ended & ~operators.point_to_point & ~operators.is_op(*ONE_SIDED)
    left, right = meetings(rows[by_end[rows]], operators, clock)
    found = by_causality(bounds, moments) | by_ends(left, right, clock, operators, moments)
    amid = frozenset[str]().union(*(of_clock.amid for of_clock in epochs.values()))
    named = {(names[a], names[b]): value for (a, b), value in found.items()}
    return {pair: value for pair, value in named.items() if not amid.intersection(pair)}
