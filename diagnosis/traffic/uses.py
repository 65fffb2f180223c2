"""What each rank calls on each communicator, in the numbers that tell which parallelism it serves (Pulse 5.2).

One rank's calls are enough, so that a host needs no other one's. Nothing has to be known of iterations: what counts is
in how many of the intervals between sends and exchanges something is called, and how it alternates with the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Bools, Ints
from diagnosis.columns import joint_codes
from diagnosis.traffic.calls import Calls

_SPLIT = ("all_gather", "reduce_scatter", "all_to_all")
"""Operators whose buffer is as many times larger than what is passed as the communicator has ranks."""


@dataclass(frozen=True, slots=True)
class Sends:
    """Sends and receives of one rank on one communicator, group by group; a call without a group is one by itself.

    ``groups``; ``sending``: those that send to others; ``two_way``: those that receive as well. ``reach``: other ranks
    that are sent to, added up over groups. ``to_self``: something is sent to the rank itself. ``sizes``: different
    sizes of sends.
    """

    groups: int
    sending: int
    two_way: int
    reach: int
    sent_to: frozenset[int]
    received_from: frozenset[int]
    to_self: bool
    sizes: int


@dataclass(frozen=True, slots=True)
class Use:
    """One rank's calls on one communicator.

    ``large``: calls of collectives that are not small, by operator, without all-to-alls, and without broadcasts, as
    these spread parameters before the first iteration; ``large_bytes``: their buffers
    together; ``exchanged_bytes``: those of all-to-alls. ``intervals``: in how many of the intervals between the
    rank's sends and exchanges there are large calls. ``spells``: how often these come after something else.
    ``longest_pause_ns`` between two of them. ``sends``: None where there are none.
    """

    communicator: str
    large: Mapping[str, int]
    large_bytes: int
    exchanged_bytes: int
    intervals: int
    spells: int
    longest_pause_ns: int
    sends: Sends | None

    @property
    def calls(self) -> int:
        """Large calls of collectives but all-to-alls."""
        return sum(self.large.values())


@dataclass(frozen=True, slots=True)
class RankUses:
    """What one rank calls. ``between``: sends (of a group one) and all-to-alls that are not small. ``turns``: how
    often the rarest small collective that comes again and again comes, about once an iteration; 0: there is none.
    ``span_ns``: from its first call to its last."""

    uses: tuple[Use, ...]
    between: int
    turns: int
    span_ns: int


def uses_of_ranks(calls: Calls, members: Mapping[str, Sequence[int]], small_bytes: int) -> dict[int, RankUses]:
    """What each rank calls; buffers below ``small_bytes`` are small, as are groups of sends that have less together."""
    return _Columns.of(calls, members, small_bytes).by_rank() if len(calls) else {}


def is_much(calls: Calls, members: Mapping[str, Sequence[int]], small_bytes: int) -> Bools:
    """Which calls move gradients, activations or tokens rather than what is small; shape (calls,)."""
    columns = _Columns.of(calls, members, small_bytes)
    return columns.large | columns.between


@dataclass(frozen=True, slots=True)
class _Columns:
    """``key``: rank and communicator of each call as a code, of which ``keys`` there are; shape (calls,).

    ``large``: as in ``Use``; ``exchange``: all-to-alls that are not small; ``between``: what parts intervals;
    ``size``: of whole buffers."""

    calls: Calls
    key: Ints
    keys: int
    size: Ints
    large: Bools
    exchange: Bools
    between: Bools

    @classmethod
    def of(cls, calls: Calls, members: Mapping[str, Sequence[int]], small_bytes: int) -> _Columns:
        paired, key = calls.point_to_point, joint_codes(calls.rank, calls.communicator)
        ranks = np.array([max(len(members.get(name, ())), 1) for name in calls.communicators], dtype=np.int64)
        size = calls.payload * np.where(calls.is_op(*_SPLIT), ranks[calls.communicator], 1)
        of_group = np.bincount(calls.unit, weights=calls.payload * paired, minlength=len(calls))
        first = calls.unit == np.arange(len(calls))
        much = ~paired & ~calls.is_op("broadcast") & (size >= small_bytes)
        exchanges = calls.is_op("all_to_all")
        sends = paired & first & (of_group >= small_bytes)
        return cls(
            calls, key, int(key.max()) + 1, size, much & ~exchanges, much & exchanges, sends | (much & exchanges)
        )

    def by_rank(self) -> dict[int, RankUses]:
        calls = self.calls
        large = np.bincount(self._of_op()[self.large], minlength=self.keys * len(calls.ops)).reshape(self.keys, -1)
        large_bytes, exchanged_bytes = (
            np.bincount(self.key[of], self.size[of], self.keys) for of in (self.large, self.exchange)
        )
        intervals, spells, pause = self._intervals(), self._spells(), self._longest_pause()
        sends = _sends_of(calls, self.key, self.keys)
        shown = np.full(self.keys, len(calls))
        np.minimum.at(shown, self.key, np.arange(len(calls)))
        told: dict[int, list[Use]] = {}
        of_rank: dict[int, list[int]] = {}
        for key, row in enumerate(shown.tolist()):
            named = dict(zip(calls.ops, large[key].tolist(), strict=True))
            use = Use(
                communicator=calls.communicators[calls.communicator[row]],
                large={op: count for op, count in named.items() if count},
                large_bytes=int(large_bytes[key]),
                exchanged_bytes=int(exchanged_bytes[key]),
                intervals=int(intervals[key]),
                spells=int(spells[key]),
                longest_pause_ns=int(pause[key]),
                sends=sends.get(key),
            )
            told.setdefault(int(calls.rank[row]), []).append(use)
            of_rank.setdefault(int(calls.rank[row]), []).append(key)
        between, small = np.bincount(self.key[self.between], minlength=self.keys), self._small()
        return {
            rank: RankUses(tuple(uses), int(between[of_rank[rank]].sum()), *self._turns(rank, small))
            for rank, uses in told.items()
        }

    def _of_op(self) -> Ints:
        return self.key * len(self.calls.ops) + self.calls.op

    def _small(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Each small collective of each rank: the rank, how often it is called, when first and last."""
        rows = np.flatnonzero(~self.calls.point_to_point & ~self.large & ~self.exchange)
        code = self._of_op()[rows]
        order = np.argsort(code, kind="stable")
        rows, heads = rows[order], np.flatnonzero(np.diff(code[order], prepend=-1))
        tails, at = np.append(heads[1:], len(rows))[: len(heads)], self.calls.call_ns
        return self.calls.rank[rows[heads]], tails - heads, at[rows[heads]], at[rows[tails - 1]]

    def _turns(self, rank: int, small: tuple[Ints, Ints, Ints, Ints]) -> tuple[int, int]:
        """What recurs over a quarter of the time counts: calls at the start alone say nothing of iterations."""
        first_row, last_row = np.searchsorted(self.calls.rank, (rank, rank + 1))
        span = int(self.calls.call_ns[last_row - 1] - self.calls.call_ns[first_row])
        of, count, first, last = small
        recurs = (of == rank) & (count > 1) & (4 * (last - first) >= span)
        return int(count[recurs].min()) if recurs.any() else 0, span

    def _intervals(self) -> Ints:
        at = np.cumsum(self.between)[self.large]
        key = self.key[self.large]
        order = np.argsort(key, kind="stable")
        changes = (np.diff(key[order], prepend=-1) != 0) | (np.diff(at[order], prepend=-1) != 0)
        return np.bincount(key[order][changes], minlength=self.keys)

    def _spells(self) -> Ints:
        key = self.key[self.large | self.between]
        return np.bincount(key[np.diff(key, prepend=-1) != 0], minlength=self.keys)

    def _longest_pause(self) -> Ints:
        key, at = self.key[self.large], self.calls.call_ns[self.large]
        order = np.argsort(key, kind="stable")
        same = np.diff(key[order]) == 0
        longest = np.zeros(self.keys, dtype=np.int64)
        np.maximum.at(longest, key[order][1:][same], np.diff(at[order])[same])
        return longest


def _sends_of(calls: Calls, key: Ints, keys: int) -> dict[int, Sends]:
    paired, sent = calls.point_to_point, calls.is_op("send")
    other = calls.peer != calls.rank
    out, back = np.flatnonzero(paired & sent & other), np.flatnonzero(paired & ~sent & other)
    groups, sends, receives = (np.unique(calls.unit[rows]) for rows in (np.flatnonzero(paired), out, back))

    def of_groups(rows: Ints) -> Ints:
        return np.bincount(key[rows], minlength=keys)

    count, sending, two_way = of_groups(groups), of_groups(sends), of_groups(np.intersect1d(sends, receives))
    reach = of_groups(np.unique(np.stack((calls.unit[out], calls.peer[out])), axis=1)[0])
    sizes = np.bincount(np.unique(np.stack((key[out], calls.payload[out])), axis=1)[0], minlength=keys)
    to_self = np.bincount(key[paired & sent & ~other], minlength=keys) > 0
    sent_to, received_from = (_peers(key[rows], calls.peer[rows]) for rows in (out, back))
    return {
        at: Sends(
            groups=int(count[at]),
            sending=int(sending[at]),
            two_way=int(two_way[at]),
            reach=int(reach[at]),
            sent_to=sent_to.get(at, frozenset()),
            received_from=received_from.get(at, frozenset()),
            to_self=bool(to_self[at]),
            sizes=int(sizes[at]),
        )
        for at in np.flatnonzero(count).tolist()
    }


def _peers(key: Ints, peer: Ints) -> dict[int, frozenset[int]]:
    pairs = np.unique(np.stack((key, peer)), axis=1)
    heads = np.flatnonzero(np.diff(pairs[0], prepend=-1))
    parts = np.split(pairs[1], heads[1:]) if len(heads) else []
    return {int(pairs[0, head]): frozenset(part.tolist()) for head, part in zip(heads, parts, strict=True)}
