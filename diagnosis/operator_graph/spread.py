"""How much sums over an iteration vary from one to the next, told from few iterations.

A handful of iterations may look steadier than they are: the standard deviation of four is one time in twenty below a
third of the true one. So a sum is taken to be no steadier than what is typical of like sums at hand, in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.numbering import numbered
from diagnosis.operators import UNKNOWN

Spreads = Mapping[tuple[int, int], float]
"""Standard deviations in ns, by rank and group."""


def spreads(
    rank: Ints, group: Ints, iteration: Ints, values: Floats, excess: Floats, baseline: Sequence[int], rows: Bools
) -> Spreads:
    """Of the sums of each rank and group over the chosen ``rows``, in each iteration of the baseline.

    All arrays have shape (n,). ``excess`` is what the sums are of, in ns (NaN: not known, and left out); ``values``
    are the times that it is the excess of: in proportion to them sums are compared. What counts of a rank and group are
    the iterations in which something is known of it; of a single one nothing is told.
    """
    order = np.asarray(sorted(set(baseline)), dtype=np.int64)
    at = np.flatnonzero(rows & np.isin(iteration, order) & ~np.isnan(excess))
    cells = numbered(rank[at], group[at] + 1)
    if not len(at) or len(order) < 2:
        return {}
    first = np.full(int(cells.max()) + 1, UNKNOWN, dtype=np.int64)
    first[cells] = at
    place, shape = np.searchsorted(order, iteration[at]), (len(first), len(order))
    known = _sums(cells, place, np.ones(len(at)), shape) > 0
    sums, length = _sums(cells, place, excess[at], shape), known.sum(axis=1)
    several = length > 1
    mean = sums.sum(axis=1) / length
    apart = np.where(known, sums - mean[:, None], 0.0)
    own = np.sqrt((apart**2).sum(axis=1)[several] / (length[several] - 1))
    size = (_sums(cells, np.zeros_like(cells), values[at], (len(first), 1))[:, 0] / length)[several]
    of_size = own[size > 0] / size[size > 0]
    typical = float(np.median(of_size)) if len(of_size) else 0.0
    told = np.maximum(own, typical * size).tolist()
    first = first[several]
    return dict(zip(zip(rank[first].tolist(), group[first].tolist(), strict=True), told, strict=True))


def _sums(cells: Ints, place: Ints, values: Floats, shape: tuple[int, int]) -> Floats:
    totals = np.bincount(cells * shape[1] + place, weights=np.nan_to_num(values), minlength=shape[0] * shape[1])
    return np.asarray(totals.reshape(shape), dtype=np.float64)
