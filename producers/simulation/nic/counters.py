"""What a NIC counts: an event for each 4 KB that a queue pair has sent, put into the epoch in which it came."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from producers.simulation.nic.hardware import Hardware
from producers.simulation.nic.slices import Ints


class EpochCounters:
    """Counters of all flows; each NIC's epochs begin at a phase of its own, a number of time steps.

    What a flow has sent beyond its last whole event is counted with what follows, however late.
    """

    def __init__(self, nic: Ints, phase: Ints, hardware: Hardware) -> None:
        self._steps = hardware.epoch_steps
        self._event = hardware.aggregation_bytes
        self._flows = [np.flatnonzero(phase[nic] == p) for p in range(self._steps)]
        self._counted = np.zeros(len(nic), dtype=np.int64)
        self._found: list[tuple[Ints, int, Ints]] = []

    def after(self, step: int, sent: npt.NDArray[np.float64]) -> None:
        """Close the epochs that end with a time step; ``sent`` (flows,) is what each has sent since the beginning."""
        flows = self._flows[(step + 1) % self._steps]
        events = (sent[flows] / self._event).astype(np.int64)
        new = (events > self._counted[flows]).nonzero()[0]
        if len(new):
            some = flows[new]
            self._found.append((some, (step + 1) // self._steps - 1, events[new] - self._counted[some]))
            self._counted[some] = events[new]

    def rows(self) -> tuple[Ints, Ints, Ints]:
        """Flow, epoch and events of each epoch in which a flow was counted.

        Epoch ``e`` of a NIC begins ``e`` epochs and its phase after the beginning.
        """
        if not self._found:
            none = np.zeros(0, dtype=np.int64)
            return none, none, none
        return (
            np.concatenate([flows for flows, _, _ in self._found]),
            np.repeat([epoch for _, epoch, _ in self._found], [len(flows) for flows, _, _ in self._found]),
            np.concatenate([events for _, _, events in self._found]),
        )
