"""What lines carry, and how the flows that cross them share it."""

from __future__ import annotations

import numpy as np

from producers.simulation.nic.proxies import Floats
from producers.simulation.nic.slices import Ints
from producers.simulation.nic.wiring import Plan


class Capacity:
    """Bytes a second that each NIC sends (``tx``) and receives (``rx``), and that the way of a connection lets through.

    ``deaf`` NICs answer nothing.
    """

    def __init__(self, plan: Plan, nics: int, line_bytes_per_s: float) -> None:
        self._source, self._destination, self._nics = plan.source, plan.destination, nics
        self.tx, self.rx = np.full(nics, line_bytes_per_s), np.full(nics, line_bytes_per_s)
        self.deaf = np.zeros(nics, dtype=np.bool_)
        self._path = np.full(len(plan.source), np.inf)
        self._narrow = False

    def narrow(self, connections: Ints, bytes_per_s: float) -> None:
        """The way of some connections lets no more through, each."""
        self._path[connections] = bytes_per_s
        self._narrow = True

    def silence(self, nic: int) -> None:
        """A NIC goes down: it sends nothing more, and answers nothing that is sent to it."""
        self.tx[nic] = 0.0
        self.deaf[nic] = True

    def rates(self, connections: Ints, part: Floats) -> Floats:
        """Fair shares of the lines at both ends, of connections that send for a ``part`` of the time.

        What some leave of their share the others get, in a second round.
        """
        source, destination = self._source[connections], self._destination[connections]
        senders = np.maximum(np.bincount(source, part, self._nics), 1.0)
        receivers = np.maximum(np.bincount(destination, part, self._nics), 1.0)
        own, other = self.tx[source] / senders[source], self.rx[destination] / receivers[destination]
        if (own <= other).all() and not self._narrow:
            return np.asarray(own)
        most = np.minimum(self.rx[destination], self._path[connections])
        rate = np.minimum(np.minimum(own, other), most)
        tx_left = self.tx - np.bincount(source, rate * part, self._nics)
        rx_left = self.rx - np.bincount(destination, rate * part, self._nics)
        extra = np.minimum(tx_left[source] / senders[source], rx_left[destination] / receivers[destination])
        return np.asarray(np.minimum(rate + np.maximum(extra, 0.0), most))
