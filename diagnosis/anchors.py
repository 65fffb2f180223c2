"""Operators that mark the cycle of one rank's log: one an iteration.

Every communicator of a rank carries a fixed number of operators an iteration, whatever their order. Anchors are
every p-th operator of one communicator, where between two of them each other communicator goes on by the same
number, and none stands still. Lost lines do not change that count, since it is one of sequence numbers. A microbatch
is no cycle: the communicators of the optimizer step stand still in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.columns import left_ns
from diagnosis.repetition import LEAST_REPEATS, period

AGREEMENT = 0.6
"""Share of cycles that must have the usual number of operators."""

LIGHT_SHARE = 0.01
"""A communicator that carries less of a rank's bytes moves no gradients and no activations."""

_UNSTEADY = 0.3
"""Coefficient of variation of durations above which they are not those of whole iterations."""

_PAUSES = (0, 3, 10, 30)
"""How many of the longest times between calls may be pauses: of those for a checkpoint there may be many."""

_CYCLES_A_PAUSE = 4
"""So many cycles at least there must be for each of these: in each of a few there is a longest time, which is none."""

SILENCE = 3
"""Cycles without a call after which nothing tells how much was lost meanwhile."""

FEW_ANCHORS = 2
"""So few at the beginning of a log are not enough to tell how many were lost before the next one."""

_LOST_SHARE = 0.02
"""Operators of a cycle that may be missing where they can only be counted."""


@dataclass(frozen=True)
class RankLog:
    """One rank's operators in call order; an entry a row.

    ``seq`` counts on each communicator; on those that are ``counted`` it is not the job's own number but an ordinal
    in the log, which lost lines shift. ``end_ns`` is -1 where it is not known. ``stepped`` are communicators that
    may mark iterations (those that are used for more than control), ``collective`` those without point-to-point.
    ``share`` is the part of the rank's bytes that a communicator carries, 1 where none are known.
    """

    communicator: Ints
    seq: Ints
    token: Ints
    call_ns: Ints
    end_ns: Ints
    stepped: Collection[int]
    collective: Collection[int]
    share: Mapping[int, float]
    counted: Collection[int] = ()

    @cached_property
    def rows(self) -> dict[int, Ints]:
        """Rows of each communicator."""
        order = np.argsort(self.communicator, kind="stable")
        heads = np.flatnonzero(np.diff(self.communicator[order], prepend=-1))
        parts = np.split(order, heads[1:])
        return {int(self.communicator[part[0]]): part for part in parts if len(part)}

    @property
    def busiest(self) -> int:
        """The communicator with the most operators."""
        return max(self.rows, key=lambda d: len(self.rows[d]))

    @cached_property
    def left_ns(self) -> Ints:
        """When the rank went on from each operator, as far as that is known."""
        return left_ns(np.zeros_like(self.call_ns), self.call_ns, self.end_ns)

    def since(self, row: int) -> RankLog:
        """The log from a row on."""
        columns = ("communicator", "seq", "token", "call_ns", "end_ns")
        return replace(self, **{name: getattr(self, name)[row:] for name in columns})

    def seq_at(self, communicator: int, rows: Ints) -> Ints:
        """Number of the communicator's last operator up to each row (the row itself included)."""
        own = self.rows[communicator]
        numbers = np.maximum.accumulate(self.seq[own])
        before = np.searchsorted(own, rows, side="right")
        return np.where(before > 0, numbers[np.maximum(before - 1, 0)], numbers[0] - 1)


@dataclass(frozen=True)
class Anchors:
    """Rows of one communicator that mark cycles; it has ``every`` operators a cycle.

    ``number`` is the ordinal of each one's cycle: lost anchors leave holes. ``last`` is that of the communicator's
    last cycle, whether its anchor is lost or not.
    """

    communicator: int
    every: int
    rows: Ints
    number: Ints
    last: int

    def since(self, row: int) -> Anchors:
        """Those from a row on, in a log that begins with it."""
        left = self.rows >= row
        return replace(self, rows=self.rows[left] - row, number=self.number[left])


def counted_from(log: RankLog, anchors: Anchors) -> int:
    """The row from which on iterations of a log without sequence numbers can be counted: the one after the last silence
    of several cycles that comes before all but the first few anchors, or 0.

    Nothing tells how much was lost in it: neither how many iterations lie between these anchors and the others, nor
    that what precedes it belongs to the iteration that follows.
    """
    if not set(log.rows) <= set(log.counted) or len(anchors.rows) < FEW_ANCHORS + LEAST_REPEATS:
        return 0
    cycle_ns = np.median(np.diff(log.call_ns[anchors.rows]) / np.diff(anchors.number))
    silent = np.flatnonzero(np.diff(log.call_ns[: anchors.rows[FEW_ANCHORS] + 1]) > SILENCE * cycle_ns)
    return int(silent[-1]) + 1 if len(silent) else 0


def find_anchors(log: RankLog, hints: Collection[int] = ()) -> Anchors | None:
    """Anchors on the rarest communicator that marks cycles; None where none does.

    ``hints`` are numbers of operators between anchors that fitted other ranks; they are tried first.
    """
    stepped = sorted(set(log.stepped) & set(log.rows), key=lambda d: len(log.rows[d]))
    while stepped:
        anchors = _anchors(log, stepped, hints)
        if anchors is not None:
            return anchors
        if log.share[stepped[0]] >= LIGHT_SHARE:
            return None
        stepped = stepped[1:]  # a light communicator may be used at irregular times; it marks nothing then
    return None


def _anchors(log: RankLog, stepped: list[int], hints: Collection[int]) -> Anchors | None:
    """Anchors on the rarest communicator; None where it does not mark cycles."""
    candidates = _candidates(log, stepped[0], hints)
    if len(stepped) == 1:
        return _steadiest(log, sorted(candidates, key=lambda anchors: anchors.every not in hints))
    return next((a for a in candidates if len(a.rows) >= LEAST_REPEATS and _regular(log, a, stepped)), None)


def _candidates(log: RankLog, communicator: int, hints: Collection[int]) -> Iterator[Anchors]:
    """Rows that might mark cycles, those of shorter cycles first."""
    rows = log.rows[communicator]
    if communicator in log.counted:
        token = log.token[rows]
        after = token[1:] * (int(token.max()) + 2) + token[:-1]
        for looks in (token, np.concatenate([[-1], after])):
            found, counts = np.unique(looks, return_counts=True)
            frequent = found[np.argsort(-counts, kind="stable")][: np.count_nonzero(counts >= LEAST_REPEATS)]
            yield from (_seen(log, rows[looks == look]) for look in frequent)
        return
    base = int(log.seq[rows].min())
    tokens = np.full(int(log.seq[rows].max()) - base + 1, -1, dtype=np.int64)
    tokens[log.seq[rows] - base] = log.token[rows]
    shortest = period(tokens)
    if shortest is not None:
        yield from (_every(log, communicator, p) for p in sorted(hints) if p % shortest == 0)
        longest = len(tokens) // LEAST_REPEATS
        yield from (_every(log, communicator, p) for p in range(shortest, longest + 1, shortest))


def _every(log: RankLog, communicator: int, every: int) -> Anchors:
    """Every n-th operator of a communicator."""
    rows = log.rows[communicator]
    seq = log.seq[rows]
    hit = seq % every == seq[-1] % every
    return Anchors(communicator, every, rows[hit], seq[hit] // every, int(seq[-1]) // every)


def _seen(log: RankLog, rows: Ints) -> Anchors:
    """Rows that come once a cycle; where one is lost, the busiest communicator has gone on by twice as much."""
    communicator = int(log.communicator[rows[0]])
    steps = np.diff(log.seq_at(log.busiest, rows))
    cycles = np.maximum(np.rint(steps / max(float(np.median(steps)), 1.0)).astype(np.int64), 1)
    number = np.concatenate([[0], np.cumsum(cycles)])
    return Anchors(communicator, int(np.median(np.diff(log.seq[rows]))), rows, number, int(number[-1]))


def marked_anchors(log: RankLog, rows: Ints) -> Anchors:
    """Marked rows (three or more, all of one communicator) as anchors.

    Raises ``ValueError`` where they do not come once an iteration.
    """
    steps = np.diff(log.seq_at(log.busiest, rows))
    if (np.abs(steps - np.median(steps)) <= 0.1 * np.median(steps)).mean() < AGREEMENT:
        raise ValueError("the operator that shall end iterations does not come once an iteration")
    return _seen(log, rows)


def _regular(log: RankLog, anchors: Anchors, stepped: list[int]) -> bool:
    """Whether every communicator goes on by its usual number from anchor to anchor."""
    return all(
        usual > 0 and share >= AGREEMENT
        for usual, share in (usual_step(log, anchors, d) for d in reversed(stepped) if d != anchors.communicator)
    )


def usual_step(log: RankLog, anchors: Anchors, communicator: int) -> tuple[int, float]:
    """By how much a communicator usually goes on from anchor to anchor, and in which share of the cycles."""
    steps = np.diff(log.seq_at(communicator, anchors.rows))[np.diff(anchors.number) == 1]
    if not len(steps):
        return 0, 0.0
    found, counts = np.unique(steps, return_counts=True)
    usual = int(found[counts.argmax()])
    blur = _LOST_SHARE * usual if communicator in log.counted else 0
    return usual, float((np.abs(steps - usual) <= blur).mean())


def _steadiest(log: RankLog, candidates: list[Anchors]) -> Anchors | None:
    """Where there is but one communicator: the shortest cycle whose durations are about the same, but for pauses."""
    found: Anchors | None = None
    for pauses in _PAUSES:
        if found is not None and len(found.rows) < _CYCLES_A_PAUSE * pauses:
            break
        at_ns = _without_pauses(log.call_ns, pauses)
        found = next((anchors for anchors in candidates if _unsteadiness(at_ns, anchors) <= _UNSTEADY), found)
    if found is not None:
        return found
    spread = [_unsteadiness(log.call_ns, anchors) for anchors in candidates]
    limit = 1.5 * min(spread, default=np.inf)
    return next((a for a, s in zip(candidates, spread, strict=True) if s <= limit and np.isfinite(s)), None)


def _unsteadiness(at_ns: Ints, anchors: Anchors) -> float:
    """Coefficient of variation of the cycles' durations."""
    if len(anchors.rows) < LEAST_REPEATS:
        return np.inf
    lengths = np.diff(at_ns[anchors.rows]) / np.diff(anchors.number)
    return float(lengths.std() / max(lengths.mean(), 1.0))


def _without_pauses(call_ns: Ints, pauses: int) -> Ints:
    """The times of calls as if so many of the longest times between them were no longer than the one after these."""
    between = np.diff(call_ns, prepend=call_ns[:1])
    if pauses < len(between):
        between = np.minimum(between, np.sort(between)[-1 - pauses])
    return np.cumsum(between)
