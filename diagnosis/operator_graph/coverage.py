"""How much of what a search asked for has come: rows, lost lines and silent ranks included."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

import numpy as np

from diagnosis.operator_graph.needs import Need
from diagnosis.operators import UNKNOWN, Bools, Ints, Operators, numbered


def coverage(asked: Sequence[Need], operators: Operators) -> float:
    """Share of the rows asked for that came, from 0 to 1; 1 where none were asked for.

    Rows that did not come are counted by the numbers missing between those that did, and where a rank has none of an
    iteration, by how many others have of theirs.
    """
    whole = [rank for need in asked if need.communicator is None for rank in need.ranks]
    came = lost = 0
    for need in asked:
        alike = _alike(need, operators)
        chosen = np.flatnonzero(alike & np.isin(operators.rank, need.ranks))
        absent = len(set(need.ranks)) * len(set(need.iterations)) - len(_per_iteration(operators, chosen))
        if absent:
            others = np.flatnonzero(alike & np.isin(operators.rank, whole)) if need.communicator is None else alike
            typical = _per_iteration(operators, others)
            lost += absent * (median_low(typical.tolist()) if len(typical) else 1)
        came += len(chosen)
        lost += _between(operators, chosen)
    return came / (came + lost) if came + lost else 1.0


def _alike(need: Need, operators: Operators) -> Bools:
    """Rows as those asked for, of whichever rank."""
    alike = np.isin(operators.iteration, need.iterations)
    if need.communicator is not None:
        names = operators.communicators
        code = names.index(need.communicator) if need.communicator in names else UNKNOWN - 1
        alike &= operators.communicator == code
    if need.seq_from is not None:
        alike &= operators.seq >= need.seq_from
    if need.seq_to is not None:
        alike &= operators.seq <= need.seq_to
    return np.asarray(alike, dtype=np.bool_)


def _per_iteration(operators: Operators, chosen: Ints | Bools) -> Ints:
    """How many of the chosen rows each rank has of each iteration of which it has any."""
    cells = numbered(operators.rank[chosen], operators.iteration[chosen])
    return np.bincount(cells) if len(cells) else np.zeros(0, dtype=np.int64)


def _between(operators: Operators, chosen: Ints) -> int:
    """How many operators are missing between the chosen ones of one rank, communicator and iteration."""
    chosen = chosen[(operators.seq[chosen] != UNKNOWN) & (operators.communicator[chosen] != UNKNOWN)]
    group = numbered(operators.rank[chosen], operators.communicator[chosen], operators.iteration[chosen])
    order = np.lexsort((operators.seq[chosen], group))
    gaps = np.diff(operators.seq[chosen][order]) - 1
    return int(gaps[(np.diff(group[order]) == 0) & (gaps > 0)].sum())
