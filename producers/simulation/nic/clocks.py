"""Clocks of hosts and NICs: where they stand, and how well a host knows how far its NICs' are from its own."""

from __future__ import annotations

import numpy as np

from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.slices import Ints
from producers.simulation.noise import Floats


class Clocks:
    """Times are seconds since the run began, clocks' are nanoseconds since the epoch.

    Hosts are off and drift; NICs count from anywhere, and drift apart from the hosts by as much.
    """

    def __init__(self, scenario: NicScenario, started_ns: int) -> None:
        noise = scenario.noise
        chance = stream(scenario.seed, Purpose.CLOCKS)
        self._started_ns = started_ns
        self._error_s = noise.nic_clock_error_s
        self._seed = scenario.seed
        self._offset = chance.uniform(-1, 1, scenario.hosts) * noise.clock_offset_s
        self._drift = chance.uniform(-1, 1, scenario.hosts) * noise.clock_drift_ppm * 1e-6
        self._nic_ns = chance.integers(-2_000_000_000, 2_000_000_000, scenario.world)

    def host_ns(self, host: int, time_s: Floats | float) -> Ints:
        """What a host's clock shows."""
        shown = np.asarray(time_s) * (1 + self._drift[host]) + self._offset[host]
        return np.asarray(self._started_ns + np.rint(shown * 1e9).astype(np.int64))

    def nic_ns(self, nic: int, time_ns: int) -> int:
        """What a NIC's clock shows, ``time_ns`` after the beginning."""
        return int(self._started_ns + self._nic_ns[nic] + time_ns)

    def host_minus_nic(self, host: int, nic: int, poll: int, time_ns: int) -> tuple[int, int]:
        """The distance as measured at a poll, and how far it may be wrong."""
        chance = stream(self._seed, Purpose.CLOCKS, nic + 1, poll)
        bound = int(self._error_s * 1e9 * chance.uniform(0.5, 1.0))
        wrong = int(chance.uniform(-bound, bound))
        return int(self.host_ns(host, time_ns * 1e-9)) - self.nic_ns(nic, time_ns) + wrong, bound
