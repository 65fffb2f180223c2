"""The iterations of one rank in sequence numbers: how many operators each has, and where it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diagnosis.anchors import Anchors, RankLog, usual_step
from diagnosis.arrays import Ints
from diagnosis.robust import running_median

_FILTER = 5
"""Cycles over which a count that lost lines have shifted is corrected."""


@dataclass(frozen=True)
class Cycle:
    """A rank's iterations in sequence numbers.

    ``starts[d][i]`` is the number of communicator d's first operator after the end of iteration ``first + i``;
    ``usual[d]`` the operators that an iteration has on it. Iterations before ``real_from`` are no whole ones
    (warm-up). ``anchor_ns`` is when the rank went on from the anchors of the iterations ``anchor_number``.
    """

    first: int
    starts: Mapping[int, Ints]
    usual: Mapping[int, int]
    real_from: int
    anchor_number: Ints
    anchor_ns: Ints

    @property
    def last(self) -> int:
        """The last iteration whose end is known."""
        return self.first + len(next(iter(self.starts.values()))) - 1


def cycle_of(log: RankLog, anchors: Anchors, *, ends: bool) -> Cycle:
    """The iterations that anchors mark: they end with them (``ends``), or after them where it fits best."""
    usual = {d: usual_step(log, anchors, d)[0] for d in log.rows}
    beyond = dict.fromkeys(log.rows, 0) if ends else _end_of_step(log, anchors, usual)
    numbers = np.arange(int(anchors.number[0]), anchors.last + 1)
    at = np.searchsorted(anchors.number, numbers, side="right") - 1
    warm = _warm_up(log, anchors, usual)
    silent = _silences(log, anchors)
    starts = {}
    for d in log.rows:
        residual = log.seq_at(d, anchors.rows) + 1 + beyond[d] - usual[d] * anchors.number
        residual[:warm] = residual[warm]
        steady = _smooth(residual)
        ahead = steady[at] + usual[d] * numbers
        if d in log.counted:
            back = steady[np.minimum(at + 1, len(steady) - 1)] + usual[d] * numbers
            silence = log.seq_at(d, silent[at]) + 1
            ahead = np.where(ahead <= silence, ahead, np.maximum(back, silence))
        starts[d] = np.maximum.accumulate(ahead)
    return Cycle(
        first=int(numbers[0]),
        starts=starts,
        usual=usual,
        real_from=int(numbers[0]) + _partial(log, starts, usual),
        anchor_number=anchors.number,
        anchor_ns=log.left_ns[anchors.rows],
    )


def _silences(log: RankLog, anchors: Anchors) -> Ints:
    """For each anchor the last row that is counted on from it; what comes later is counted back from the next one.

    Where anchors between the two are lost that is the one before the longest silence, else the log's last.
    """
    last = np.full(len(anchors.rows), len(log.call_ns) - 1)
    for i in np.flatnonzero(np.diff(anchors.number) > 1).tolist():
        begin, end = anchors.rows[i : i + 2]
        last[i] = begin + np.diff(log.call_ns[begin : end + 1]).argmax()
    return last


def _warm_up(log: RankLog, anchors: Anchors, usual: Mapping[int, int]) -> int:
    """How many anchors come before the first cycle that is as usual in everything."""
    as_usual = np.diff(anchors.number) == 1
    for d in log.rows:
        if usual[d] > 0 and d not in log.counted:
            as_usual &= np.diff(log.seq_at(d, anchors.rows)) == usual[d]
    return int(as_usual.argmax())


def _end_of_step(log: RankLog, anchors: Anchors, usual: Mapping[int, int]) -> dict[int, int]:
    """How far each communicator has gone on from an anchor when the iteration ends.

    An iteration ends with the last operator before the longest time that the optimizer step's communicators rest;
    where none stands out, before the longest time without communication.
    """
    step = _step_communicators(log, anchors, usual)
    marks = np.sort(np.concatenate([log.rows[d] for d in step or log.rows]))
    done = np.where(log.end_ns >= 0, log.end_ns, log.call_ns)[marks]
    pause = np.maximum(log.call_ns[marks][1:] - done[:-1], 0)
    marks = marks[:-1]
    cycle = np.searchsorted(anchors.rows, marks, side="right") - 1
    whole = np.append(np.diff(anchors.number) == 1, False)
    inside = (cycle >= 0) & whole[cycle]
    marks, pause, cycle = marks[inside], pause[inside], cycle[inside]
    at_anchor = {d: log.seq_at(d, anchors.rows) for d in log.rows}
    communicator = log.communicator[marks]
    beyond = np.zeros(len(marks), dtype=np.int64)
    for d in log.rows:
        own = communicator == d
        beyond[own] = log.seq[marks[own]] - at_anchor[d][cycle[own]]
    place, of_mark = np.unique(np.stack([communicator, beyond]), axis=1, return_inverse=True)
    longest = int(np.bincount(of_mark.ravel(), weights=pause, minlength=place.shape[1]).argmax())
    ends = of_mark.ravel() == longest
    gone = {d: log.seq_at(d, marks[ends]) - at_anchor[d][cycle[ends]] for d in log.rows}
    return {d: int(np.median(count)) for d, count in gone.items()}


def _step_communicators(log: RankLog, anchors: Anchors, usual: Mapping[int, int]) -> list[int]:
    """Communicators of the optimizer step.

    In a pipeline they are those of collectives that belong, for the most part, between the last and the first
    point-to-point operator of two cycles, and do not look the same at both ends of it (as the passes of a single
    microbatch do); elsewhere those that rest for more than half of a cycle.
    """
    collective = [d for d in log.collective if usual.get(d, 0) > 0]
    paired = np.flatnonzero(~np.isin(log.communicator, list(log.collective)))
    if len(paired):
        return [d for d in collective if _between_cycles(log, anchors, d, paired)]
    lengths = np.diff(log.call_ns[anchors.rows])
    resting = []
    for d in collective:
        pauses = np.sort(np.diff(log.call_ns[log.rows[d]]))[::-1]
        if len(pauses) and pauses[min(len(lengths) // 2, len(pauses) - 1)] > np.median(lengths) / 2:
            resting.append(d)
    return resting


def _between_cycles(log: RankLog, anchors: Anchors, communicator: int, paired: Ints) -> bool:
    own = log.rows[communicator]
    pauses, pause = np.searchsorted(paired, anchors.rows), np.searchsorted(paired, own)
    inside = np.isin(pause, pauses)
    if communicator == anchors.communicator or inside.mean() <= 0.5:
        return bool(inside.mean() > 0.5)
    rows = own[inside]
    late = rows > anchors.rows[np.searchsorted(pauses, pause[inside])]
    _, look = np.unique(log.token[rows], return_inverse=True)
    of_look = np.bincount(look, weights=late) / np.bincount(look)
    at_both_ends = np.minimum(of_look, 1 - of_look) > 0.2
    return bool(at_both_ends[look].mean() <= 0.5)


def _smooth(values: Ints) -> Ints:
    """A running median: a lost line shifts single values, an extra operator all that follow."""
    return running_median(values.astype(np.float64), _FILTER).astype(np.int64)


def _partial(log: RankLog, starts: dict[int, Ints], usual: Mapping[int, int]) -> int:
    """How many iterations at the beginning hold not even half of what iterations usually hold; the boundaries among
    them are moved to where the first whole iteration begins.
    """
    cycles = len(next(iter(starts.values())))
    rows = np.zeros(cycles, dtype=np.int64)
    for d, start in starts.items():
        _, look, counts = np.unique(log.token[log.rows[d]], return_inverse=True, return_counts=True)
        seq = np.sort(log.seq[log.rows[d][counts[look] >= cycles / 2]])
        rows += np.diff(np.searchsorted(seq, np.concatenate([[start[0] - usual[d]], start])))
    whole = int((rows >= sum(usual.values()) / 2).argmax())
    for d, start in starts.items():
        start[:whole] = start[whole] - usual[d] * np.arange(whole, 0, -1)
    return whole
