"""Offsets between host clocks, estimated from the barriers that the hosts pass together.

Real logs show clocks that are +-5 ms apart and drift. A collective ends for all its members at once, so the
ends that two hosts logged for it differ by their clocks' offset and little else. Where a log carries no ends,
or only sends and receives join two hosts, causality still bounds the offset: nobody is done, nor calls its
next operator, before the last member has entered this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import networkx as nx
import numpy as np

from diagnosis.operators import UNKNOWN, Ints, Operators, next_calls

_MEETINGS = 64
"""Meetings, the newest, that a pair of clocks is compared at: clocks drift, and more hardly sharpen a median."""

_LEAST_MEETINGS = 9
"""With fewer, ends that were logged late could pass for an offset: the least and the greatest of n bound their
median but for a chance of 2 in 2^n."""


Clock = TypeVar("Clock", int, str)
Pairs = dict[tuple[Clock, Clock], tuple[int, float]]
"""(how far the second clock is ahead of the first, how far that may be off) of clocks that met, in ns."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """``offset_ns`` of each clock against the reference, and ``error_ns``, how far that may be off.

    A clock that never met the reference's, not even through others, is absent: its offset is not known. Clocks may
    still have met each other, or met where every message goes one way, so that nothing bounds the offset from the
    other side: ``apart_ns`` holds what is good enough to compare these, and ``island`` numbers the sets of clocks
    that can be compared.
    """

    reference: str
    offset_ns: Mapping[str, int]
    error_ns: Mapping[str, int]
    apart_ns: Mapping[str, int] = field(default_factory=dict)
    island: Mapping[str, int] = field(default_factory=dict)

    def known(self, clock: str) -> bool:
        """Whether the clock's offset could be estimated."""
        return clock in self.offset_ns

    def correction(self, clock_of_rank: Mapping[int, str], ranks: Ints) -> Ints:
        """What to subtract from times of ``ranks`` (shape (n,)) to compare those of one island; 0 where not known."""
        offsets = {**self.apart_ns, **self.offset_ns}
        return _of_ranks(ranks, lambda rank: offsets.get(clock_of_rank.get(rank, ""), 0))

    def islands(self, clock_of_rank: Mapping[int, str], ranks: Ints) -> Ints:
        """The island of each rank's clock, shape (n,); times of two islands cannot be compared."""
        return _of_ranks(ranks, lambda rank: self.island.get(clock_of_rank.get(rank, ""), UNKNOWN))

    def worst_error_ns(self, clock_names: set[str]) -> int:
        """Largest error among the named clocks that are known."""
        return max((self.error_ns[name] for name in clock_names if name in self.error_ns), default=0)


def estimate(operators: Operators, clock_of_rank: Mapping[int, str], reference: str) -> Clocks:
    """Estimate every clock's offset against ``reference`` along the best-known pairs of clocks.

    ``operators`` as logged (shape (n,)); ``clock_of_rank`` names the clock that each rank reads.
    """
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from([reference, *sorted({*clock_of_rank.values()} - {reference})])
    for (a, b), (offset, error) in _pairs(operators, clock_of_rank).items():
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
    )


def _of_ranks(ranks: Ints, value: Callable[[int], int]) -> Ints:
    """A value a rank, as one a row; ranks come in runs."""
    first = np.flatnonzero(np.diff(ranks, prepend=ranks[0] - 1)) if len(ranks) else ranks
    of_run = np.array([value(rank) for rank in ranks[first].tolist()], dtype=np.int64)
    return np.repeat(of_run, np.diff(first, append=len(ranks)))


def _pairs(operators: Operators, clock_of_rank: Mapping[int, str]) -> Pairs[str]:
    """Each pair of clocks that meet, by name."""
    clocks = sorted(set(clock_of_rank.values()))
    number = {name: index for index, name in enumerate(clocks)}
    clock = _of_ranks(operators.rank, lambda rank: number.get(clock_of_rank.get(rank, ""), UNKNOWN))
    keys = operators.meeting_keys
    useful = (keys != UNKNOWN) & (clock != UNKNOWN)
    if not useful.any():
        return {}
    by_end = operators.ended & ~operators.point_to_point
    left, right = _meetings(np.where(useful & by_end, keys, UNKNOWN), clock)
    found = _by_ends(left, right, clock, operators.end_ns)
    left, right = _meetings(np.where(useful, keys, UNKNOWN), clock)
    for pair, estimate_ in _by_causality(left, right, clock, operators).items():
        found.setdefault(pair, estimate_)
    return {(clocks[a], clocks[b]): value for (a, b), value in found.items()}


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


def _by_causality(left: Ints, right: Ints, clock: Ints, operators: Operators) -> Pairs[int]:
    """Offset between the two bounds that causality sets: the middle, with half the interval as its error.

    Where all messages go one way there is one bound, and no saying how far off it is: the quickest message's time.
    """
    following = np.where(operators.ended, operators.end_ns, next_calls(operators))
    receives = ~operators.is_op("send")
    found: Pairs[int] = {}
    for pair, rows in _grouped(clock[left], clock[right]).items():
        a, b = left[rows], right[rows]
        # a sender may be done before its receiver has come, so only a receiver's end proves anything
        upper = (following[b] - operators.call_ns[a])[(following[b] != UNKNOWN) & receives[b]]
        lower = (following[a] - operators.call_ns[b])[(following[a] != UNKNOWN) & receives[a]]
        most = int(upper.min()) if len(upper) else None
        least = -int(lower.min()) if len(lower) else None
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
