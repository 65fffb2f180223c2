"""Whether what a rank lost is a material share of an iteration's excess, and no chance."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from diagnosis.arrays import Floats, Ints
from diagnosis.operator_graph.attribution_settings import AttributionSettings
from diagnosis.operator_graph.delays import Delays, Kind
from diagnosis.operator_graph.spread import Spreads
from diagnosis.operators import UNKNOWN


class Materiality:
    """Judges sums over a rank's rows of one group, whose spread over the ``baseline`` tells chance.

    ``whole`` are the ranks of which all rows are here: what others computed in all is not known.
    """

    def __init__(
        self,
        delays: Delays,
        baseline: Sequence[int],
        whole: Collection[int],
        excess_ns: int,
        settings: AttributionSettings,
    ) -> None:
        self.least_wait_ns = settings.follow_share * excess_ns
        self._least_ns = settings.material_share * excess_ns
        self._sigmas, self._follow_sigmas = settings.sigmas, settings.follow_sigmas
        self._delays, self._baseline, self._whole = delays, baseline, sorted(whole)
        self._spreads: dict[Kind, Spreads] = {}

    def is_material(self, kind: Kind, rows: Ints, common: float = 0.0, times: Floats | float = 1.0) -> bool:
        """Whether what the rows lost (each so many ``times``) beyond what is ``common`` (ns) is a cause."""
        return self._exceeds(kind, rows, self._least_ns, self._sigmas, common, times)

    def is_worth_following(self, rows: Ints) -> bool:
        """Whether a rank may have waited long enough in a group's operators for those to be seen that it waited for."""
        return self._exceeds("step", rows, self.least_wait_ns, self._follow_sigmas)

    def group(self, kind: Kind) -> Ints:
        """What a rank's rows are summed over: all that it computed, what ran on a channel, or on a communicator; all
        sends and receives together. Shape (n,).
        """
        delays = self._delays
        if kind == "compute":
            return np.zeros(len(delays.channel), dtype=np.int64)
        if kind == "transfer":
            return delays.channel
        return np.where(delays.operators.point_to_point, UNKNOWN, delays.operators.communicator)

    def _exceeds(
        self, kind: Kind, rows: Ints, least: float, sigmas: float, common: float = 0.0, times: Floats | float = 1.0
    ) -> bool:
        if not len(rows):
            return False
        values: Floats = getattr(self._delays, kind)
        amounts = times * values[rows]
        amount = float(np.nansum(amounts)) - common
        if amount < least or np.isnan(amounts).all():
            return False
        place = int(self._delays.operators.rank[rows[0]]), int(self.group(kind)[rows[0]])
        counts = np.broadcast_to(times, amounts.shape)[~np.isnan(amounts)]
        wider = float(np.sqrt(np.square(counts).mean()))  # so much more a sum with these weights varies by chance
        return amount > wider * sigmas * self._spreads_of(kind).get(place, np.inf)

    def _spreads_of(self, kind: Kind) -> Spreads:
        if kind not in self._spreads:
            # what a rank computed shows only where all of its rows are here
            whole = np.isin(self._delays.operators.rank, self._whole) if kind == "compute" else None
            self._spreads[kind] = self._delays.spreads(kind, self.group(kind), self._baseline, whole)
        return self._spreads[kind]
