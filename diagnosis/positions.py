"""The position of an operator within its iteration and communicator, and how many are missing there.

A position compares an operator with its own past (Holmes 4.2.1), so one lost line must not shift the others.
It is therefore worked out from the sequence numbers: an operator's number less the number of its iteration's
first operator on the same communicator. Where lost lines hide that first operator, it is placed by the number
of operators that an iteration usually has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diagnosis.arrays import Ints
from diagnosis.columns import joint_codes


@dataclass(frozen=True)
class Positions:
    """Positions of the rows given, and a summary a (rank, communicator, iteration).

    ``position`` is an int32 a row. The other arrays have an entry a group, groups of one rank and communicator
    together and in ascending iteration: ``first_seq`` is the number of the iteration's first operator (-1 where
    sequence numbers are missing), ``lost`` the operators that its numbers show to be missing.
    """

    position: NDArray[np.int32]
    rank: Ints
    communicator: Ints
    iteration: Ints
    first_seq: Ints
    lost: Ints


def operator_positions(rank: Ints, communicator: Ints, seq: Ints, iteration: Ints) -> Positions:
    """Positions of rows that are in call order within each rank.

    All arguments have an entry a row; ``communicator`` holds small codes, ``seq`` is -1 where it is not known.
    A group that lacks sequence numbers is counted through in call order and shows no losses.
    """
    group, key = _groups(rank, communicator, iteration)
    count = np.bincount(group, minlength=len(key.rank))
    low = np.full(len(key.rank), np.iinfo(np.int64).max)
    high = np.full(len(key.rank), -1)
    np.minimum.at(low, group, seq)
    np.maximum.at(high, group, seq)
    unnumbered = low < 0
    first, usual = _first_seqs(key, np.where(unnumbered, 0, low), high)
    first[unnumbered] = -1
    position = seq - first[group]
    loose = unnumbered[group]
    if loose.any():
        position[loose] = _ordinals(group[loose])
    lost = np.where(unnumbered, 0, _lost(key, first, high, usual, count))
    return Positions(position.astype(np.int32), key.rank, key.communicator, key.iteration, first, lost)


@dataclass(frozen=True)
class _Key:
    rank: Ints
    communicator: Ints
    iteration: Ints
    follows: NDArray[np.bool_]
    """Whether the group before is of the same rank and communicator."""


def _groups(rank: Ints, communicator: Ints, iteration: Ints) -> tuple[Ints, _Key]:
    """The group of each row, and the groups sorted by rank, communicator and iteration."""
    seen = joint_codes(rank, communicator, iteration)
    example = np.zeros(int(seen.max(initial=-1)) + 1, dtype=np.int64)
    example[seen] = np.arange(len(seen))
    order = np.lexsort((iteration[example], communicator[example], rank[example]))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    example = example[order]
    follows = np.zeros(len(example), dtype=np.bool_)
    follows[1:] = (np.diff(rank[example]) == 0) & (np.diff(communicator[example]) == 0)
    return place[seen], _Key(rank[example], communicator[example], iteration[example], follows)


def _first_seqs(key: _Key, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """The sequence number of each group's first operator, lost or not, and how many operators it usually has."""
    if not len(low):
        return low, low
    before = np.roll(high, 1)
    consecutive = key.follows & (np.diff(key.iteration, prepend=key.iteration[0]) == 1)
    exact = consecutive & (low == before + 1)
    usual = _usual_counts(key, low, consecutive)
    # Others count on from the nearest exact group before them, or back from the first one after them.
    index = np.arange(len(low))
    start = np.maximum.accumulate(np.where(key.follows, 0, index))
    last = np.maximum.accumulate(np.where(exact, index, -1))
    following = np.flip(np.minimum.accumulate(np.flip(np.where(exact, index, len(low)))))
    end = _ends(key.follows)
    anchor = np.where(last >= start, last, np.where(following < end, following, index))
    guess = low[anchor] + usual * (key.iteration - key.iteration[anchor])
    earliest = np.where(key.follows, before + 1, 0)
    return np.where(exact, low, np.clip(guess, np.minimum(earliest, low), low)), usual


def _usual_counts(key: _Key, low: Ints, usable: NDArray[np.bool_]) -> Ints:
    """Operators that an iteration of each group's rank and communicator usually has: a median."""
    pair: Ints = np.cumsum(~key.follows) - 1
    step = low - np.roll(low, 1)
    usual: Ints = np.zeros(int(pair[-1]) + 1, dtype=np.int64)
    order = np.lexsort((step[usable], pair[usable]))
    pairs, steps = pair[usable][order], step[usable][order]
    if len(pairs):
        head = np.flatnonzero(np.diff(pairs, prepend=-1))
        size = np.diff(np.append(head, len(pairs)))
        usual[pairs[head]] = steps[head + size // 2]
    of_group: Ints = usual[pair]
    return of_group


def _lost(key: _Key, first: Ints, high: Ints, usual: Ints, count: Ints) -> Ints:
    """How many operators of each group are missing; what a log's last iteration has not reached is not missing."""
    continued = np.append(key.follows[1:], False)
    following = np.where(continued, np.roll(first, -1), high + 1)
    consecutive = continued & (np.roll(key.iteration, -1) == key.iteration + 1)
    bound = np.where(consecutive, following, np.minimum(first + usual, following))
    lost: Ints = np.maximum(np.maximum(bound, high + 1) - first - count, 0)
    return lost


def _ends(follows: NDArray[np.bool_]) -> Ints:
    """For each group, the index after the last group of its rank and communicator."""
    heads = np.append(np.flatnonzero(~follows), len(follows))
    ends: Ints = np.repeat(heads[1:], np.diff(heads))
    return ends


def _ordinals(group: Ints) -> Ints:
    """Ordinal of each row within its group."""
    order = np.argsort(group, kind="stable")
    heads = np.flatnonzero(np.diff(group[order], prepend=-1))
    ordinal = np.empty_like(order)
    ordinal[order] = np.arange(len(order)) - np.repeat(heads, np.diff(np.append(heads, len(order))))
    return ordinal
