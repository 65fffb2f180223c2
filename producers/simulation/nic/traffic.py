"""What each NIC counted in a run, sorted by queue pair and epoch: the job's flows and those of others."""

from __future__ import annotations

import numpy as np

from producers.simulation.nic import background
from producers.simulation.nic.background import Burst
from producers.simulation.nic.names import QueuePairs
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.slices import Ints
from producers.simulation.nic.transport import Transport


class Traffic:
    """Epochs of all NICs. Epoch 0 of a NIC begins with its phase after the run's beginning."""

    def __init__(
        self, scenario: NicScenario, transport: Transport, pairs: QueuePairs, bursts: list[Burst], phase: Ints
    ) -> None:
        self._epoch_ns = scenario.hardware.epoch_ns
        self._phase_ns = phase * scenario.hardware.step_ns
        flow, epoch, events = transport.counters.rows()
        connections = len(transport.wire) // 2
        numbers = np.concatenate([pairs.data, [0], pairs.control, [0]])
        nics = np.concatenate([pairs.source, [0], pairs.destination, [0]])
        assert len(numbers) == 2 * connections
        nic, qpn = nics[flow], numbers[flow]
        others = [
            self._of_others(scenario, pairs, bursts, n, f)
            for n in range(scenario.world)
            for f in range(background.FLOWS)
        ]
        columns = zip((nic, qpn, epoch, events), zip(*others, strict=True), strict=True)
        nic, qpn, epoch, events = (np.concatenate([own, *rest]) for own, rest in columns)
        seen = epoch >= 0
        order = np.lexsort((epoch, qpn, nic))
        order = order[seen[order]]
        self._of_nic = np.searchsorted(nic[order], np.arange(scenario.world + 1))
        self._qpn, self._epoch, self._events = qpn[order], epoch[order], events[order]

    def _of_others(
        self, scenario: NicScenario, pairs: QueuePairs, bursts: list[Burst], nic: int, flow: int
    ) -> tuple[Ints, Ints, Ints, Ints]:
        own = [burst for burst in bursts if burst.nic == nic and burst.flow == flow]
        epoch, events = background.counted(
            own, self._phase_ns[nic] * 1e-9, self._epoch_ns * 1e-9, scenario.hardware.aggregation_bytes
        )
        return np.full(len(epoch), nic), np.full(len(epoch), pairs.others[nic, flow]), epoch, events

    def epoch_at(self, nic: int, time_s: float) -> int:
        """The first epoch that has not ended at a time."""
        return max(int((time_s * 1e9 - self._phase_ns[nic]) // self._epoch_ns), 0)

    def begins_ns(self, nic: int, epoch: int) -> int:
        """When an epoch begins, from the run's beginning."""
        return int(self._phase_ns[nic] + epoch * self._epoch_ns)

    def between(self, nic: int, first: int, last: int) -> tuple[Ints, Ints, Ints]:
        """Queue pair, epoch and events of a NIC's counts in the epochs from ``first`` up to before ``last``."""
        own = slice(self._of_nic[nic], self._of_nic[nic + 1])
        qpn, epoch, events = self._qpn[own], self._epoch[own], self._events[own]
        some = (epoch >= first) & (epoch < last)
        return qpn[some], epoch[some], events[some]

    def flows_between(self, nic: int, first: int, last: int) -> Ints:
        """Queue pairs that were counted in some of the epochs."""
        return np.unique(self.between(nic, first, last)[0])
