"""Operators that stand for all of a communicator's, so that the other members are asked for few."""

from __future__ import annotations

import numpy as np

from diagnosis.arrays import Floats, Ints
from diagnosis.operator_graph.delays import Delays
from diagnosis.operators import UNKNOWN


def telling_positions(delays: Delays, rows: Ints, most: int) -> Ints | None:
    """Positions of a rank's operators on a communicator that tell where it lost time: half of them where it lost most,
    half of them spread evenly, as those of others on it; None: all. Where ends are not logged all are needed.

    ``rows`` are those of the iteration; at most ``most`` are chosen.
    """
    operators = delays.operators
    positions = operators.position[rows]
    if len(rows) <= most or (positions == UNKNOWN).any() or not operators.ended[rows].all():
        return None
    order = np.argsort(-np.nan_to_num(delays.step[rows]), kind="stable")
    evenly = np.linspace(0, len(rows) - 1, most - most // 2).astype(np.int64)
    return np.unique(positions[np.r_[order[: most // 2], evenly]])


def weights(delays: Delays, rows: Ints) -> Floats:
    """How many times each of a rank's rows counts where it was split into waiting and transferring, since it stands for
    others of its communicator that were not: in proportion to what these lost. Shape (rows,).
    """
    times = np.ones(len(rows))
    operators, split = delays.operators, ~np.isnan(delays.transfer[rows])
    collective = ~operators.point_to_point[rows] & operators.ended[rows]
    lost = np.maximum(np.nan_to_num(delays.exposed[rows]), 0)
    for code in np.unique(operators.communicator[rows[collective]]):
        on = collective & (operators.communicator[rows] == code)
        seen = float(lost[on & split].sum())
        if seen > 0:
            times[on] = min(float(lost[on].sum()) / seen, on.sum() / (on & split).sum())
    return times
