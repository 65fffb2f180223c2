"""Iterations whose numbers start again, as a loop over epochs counts them, or a job that goes back to a checkpoint:
what follows is numbered on, so that each iteration has a number of its own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools, Ints
from diagnosis.columns import integers, nullable

_LEAST = 3
"""Numbers that fall by fewer, or do not rise so often afterwards, are those of iterations that overlap."""

_LARGEST = np.iinfo(np.int32).max
"""A number of telemetry.comm_ops."""


def numbered_on(table: pa.Table) -> tuple[pa.Table, str | None]:
    """The table with iterations that never come twice, and what is said of it; as it is, and None, where numbers do
    not start again, or ranks do not agree on how often, or they would become too large.

    ``table`` has the columns of telemetry.comm_ops, sorted by rank and call order.
    """
    iteration = integers(table, "iteration")
    rows = np.flatnonzero(iteration >= 0)
    rank, number, call_ns = integers(table, "rank")[rows], iteration[rows], integers(table, "call_ns")[rows]
    heads = np.flatnonzero((np.diff(rank, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0))
    steps = np.diff(np.unique(number[heads]))
    if not len(steps):
        return table, None
    step = int(np.gcd.reduce(steps))
    counts = _counts(np.unique(rank[heads], return_inverse=True)[1], number[heads] // step, call_ns[heads])
    if counts is None:
        return table, None
    nth, tells = counts
    of_count = [number[heads[tells & (nth == at)]] for at in range(int(nth.max()) + 1)]
    low, high = [int(of.min()) for of in of_count], [int(of.max()) for of in of_count]
    further = np.cumsum([0, *(before + step - after for before, after in zip(high[:-1], low[1:], strict=True))])
    numbers = iteration.copy()
    numbers[rows] += np.repeat(further[nth], np.diff(heads, append=len(rows)))
    if int(numbers.max()) > _LARGEST:
        return table, None
    at = table.schema.get_field_index("iteration")
    field = table.schema.field(at)
    table = table.set_column(at, field, nullable(numbers, numbers >= 0, field.type))
    more = f", and {len(of_count) - 2} more times" if len(of_count) > 2 else ""
    return table, (
        f"iterations are numbered from {low[1]} again after {high[0]}{more}: "
        f"those that follow are numbered on, from {high[0] + step}"
    )


def _counts(rank: Ints, number: Ints, call_ns: Ints) -> tuple[Ints, Bools] | None:
    """Of the iterations that ranks (0, 1, ...) went through, one after the other: in which count from the start, from
    0 on, each is, and whether its rank tells. That of a rank whose numbers start again more or less often than those
    of most is told by when it called.

    None where numbers do not start again, or most ranks do not agree on how often.
    """
    again = _starts_again(rank, number)
    often = np.bincount(rank, weights=again).astype(np.int64)
    times = int(np.bincount(often).argmax())
    agree = often == times
    if not times or 2 * np.count_nonzero(agree) < len(agree):
        return None
    tells = agree[rank]
    own = np.cumsum(again) - (np.cumsum(often) - often)[rank]
    when_ns = np.median(call_ns[again & tells].reshape(-1, times), axis=0)
    return np.where(tells, own, np.searchsorted(when_ns, call_ns, side="right")), tells


def _starts_again(rank: Ints, number: Ints) -> Bools:
    """At which of the iterations that ranks went through, one after the other, the numbers of one start again."""
    falls = np.flatnonzero((np.diff(rank) == 0) & (np.diff(number) <= -_LEAST)) + 1
    falls = falls[falls + _LEAST <= len(number)]
    after = number[falls[:, None] + np.arange(_LEAST)]
    goes_on = (np.diff(after) > 0).all(axis=1) & (after[:, -1] < number[falls - 1])
    again = np.zeros(len(number), dtype=np.bool_)
    again[falls[goes_on & (rank[falls + _LEAST - 1] == rank[falls])]] = True
    return again
