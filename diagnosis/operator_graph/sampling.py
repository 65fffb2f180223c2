"""Operators that stand for all of a communicator's, so that the other members are asked for few."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from diagnosis.arrays import Floats, Ints
from diagnosis.operator_graph.delays import Delays
from diagnosis.operators import UNKNOWN


class Telling(NamedTuple):
    """Positions of a rank's operators on a communicator that tell where it lost time: those where it lost most, and
    those that are spread evenly, as those of others on it; some are both.
    """

    slowest: Ints
    evenly: Ints

    @property
    def positions(self) -> Ints:
        """All of them."""
        return np.unique(np.r_[self.slowest, self.evenly])


def telling(delays: Delays, rows: Ints, most: int) -> Telling | None:
    """Which of a rank's ``rows`` (those of a communicator in one iteration) stand for them, at most ``most``, half of
    either sort; None: all are needed. What the rank itself logged decides, so that it is the same before others are
    seen and after.
    """
    positions = delays.operators.position[rows]
    if len(rows) <= most or (positions == UNKNOWN).any():
        return None
    lost = np.where(delays.operators.ended[rows], delays.step[rows], delays.until_next[rows])
    order = np.argsort(-np.nan_to_num(lost), kind="stable")
    evenly = np.linspace(0, len(rows) - 1, most - most // 2).astype(np.int64)
    return Telling(positions[order[: most // 2]], positions[evenly])


def weights(delays: Delays, rows: Ints) -> Floats:
    """How many times each of a rank's rows counts where it was split into waiting and transferring, since it stands for
    others of its communicator that were not: in proportion to what these lost, where ends are logged. Shape (rows,).
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


def weights_without_ends(delays: Delays, rows: Ints, stood_for: Collection[str | None], most: int) -> Floats:
    """The same where ends are not logged, of communicators that are ``stood_for`` by at most ``most`` operators: those
    that are spread evenly and are none of the slowest count for all the rest, any other that was split for itself.

    What one of the slowest lost is chance in part, as it was chosen for that, so that it stands for no other.
    """
    times = np.ones(len(rows))
    operators, split = delays.operators, ~np.isnan(delays.transfer[rows])
    iteration, position = operators.iteration[rows], operators.position[rows]
    sampled = [code for code, name in enumerate(operators.communicators) if name in stood_for]
    collective, without = ~operators.point_to_point[rows], ~operators.ended[rows]
    for code in np.intersect1d(operators.communicator[rows[collective & without]], sampled):
        on = collective & (operators.communicator[rows] == code)
        latest = on & (iteration == iteration[on].max())
        told = telling(delays, rows[latest], most)
        if told is None:
            continue
        for one in np.unique(iteration[on]):
            now = on & without & (iteration == one)
            even = now & split & np.isin(position, told.evenly) & ~(latest & np.isin(position, told.slowest))
            rest = now & (even | ~split)
            if even.any():
                times[even] = rest.sum() / even.sum()
    return times
