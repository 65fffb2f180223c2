"""Bytes that ports sent, from the counters that the kernel shows of every RDMA device: for NICs that cannot do better.

``/sys/class/infiniband/NIC/ports/N/counters/port_xmit_data`` counts words of four bytes of the port as a whole. It is
sampled as often as a setting says and shared out over epochs of that length; what happened between samples that lie
too far apart, or around a counter that was reset, is not told as zero but not told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from producers.collectors.nic_clock import Offset
from producers.collectors.poll import Poll

log = logging.getLogger(__name__)

INFINIBAND = Path("/sys/class/infiniband")
COUNTER = "counters/port_xmit_data"
WORD_BYTES = 4

MOST_EPOCHS_APART = 4
"""Samples that lie further apart say too little about the epochs between them."""

_FASTEST = 200e9
"""Bytes a second that no port sends where it does not say how fast it is."""

_SPARE = 1.25
"""What may be sent above a port's rate, by the uncertainty of when a counter was read."""

_STUCK = (1 << 32) - 1
"""Where old counters of 32 bits stay once they have come there."""


@dataclass
class _Stretch:
    """Samples of one port without a hole: when they were taken, and words since the first."""

    at_ns: list[int]
    words: list[int]
    from_ns: int
    told: int = 0
    error_ns: int = 0


@dataclass
class _Port:
    nic: str
    counter: Path
    fastest: float
    """Bytes a second."""
    value: int = 0
    wide: bool = False
    """The counter was seen beyond 32 bits."""
    stretch: _Stretch | None = None
    closed: list[_Stretch] = field(default_factory=list)


class PortCounters:
    """All ports below ``root``, told in epochs of ``epoch_ns``.

    ``sample`` is to be called once an epoch, ``polls`` as often as something is to be told, each by a thread of its own
    if need be. ``clock_ns`` is the host's clock.
    """

    def __init__(self, clock_ns: Callable[[], int], epoch_ns: int, root: Path = INFINIBAND) -> None:
        self._clock_ns = clock_ns
        self._epoch_ns = epoch_ns
        self._root = root
        self._ports: dict[Path, _Port] = {}
        self._lock = threading.Lock()
        self._discover()

    @property
    def found(self) -> int:
        """Ports that there are."""
        return len(self._ports)

    def sample(self) -> None:
        """Read the counters of all ports."""
        with self._lock:
            for port in self._ports.values():
                before = self._clock_ns()
                value = _value(port.counter)
                after = self._clock_ns()
                if value is None or after < before:
                    self._close(port)
                else:
                    self._take(port, (before + after) // 2, value, (after - before + 1) // 2)

    def polls(self) -> list[Poll]:
        """What was sent in all whole epochs since the last time; one for each stretch without a hole.

        One that goes on makes a poll even where no epoch has gone by.
        """
        told = []
        with self._lock:
            for port in self._ports.values():
                told += [self._poll(port, stretch) for stretch in (*port.closed, port.stretch) if stretch is not None]
                port.closed.clear()
            self._discover()
        return told

    def _take(self, port: _Port, at_ns: int, value: int, error_ns: int) -> None:
        stretch = port.stretch
        if stretch is not None:
            apart = at_ns - stretch.at_ns[-1]
            added = _added(port, value, apart)
            if added is None or not 0 < apart <= MOST_EPOCHS_APART * self._epoch_ns:
                self._close(port)
            else:
                stretch.at_ns.append(at_ns)
                stretch.words.append(stretch.words[-1] + added)
                stretch.error_ns = max(stretch.error_ns, error_ns)
        if port.stretch is None:
            port.stretch = _Stretch([at_ns], [0], at_ns, error_ns=error_ns)
        port.value = value
        port.wide = port.wide or value > _STUCK

    def _poll(self, port: _Port, stretch: _Stretch) -> Poll:
        """The whole epochs of a stretch, which then goes on behind them."""
        epochs = (stretch.at_ns[-1] - stretch.from_ns) // self._epoch_ns
        ends = np.arange(1, epochs + 1, dtype=np.int64) * self._epoch_ns
        at = np.array(stretch.at_ns, dtype=np.int64) - stretch.from_ns
        words = np.array(stretch.words, dtype=np.int64) - stretch.told
        sent = np.diff(np.floor(np.interp(ends, at, words)).astype(np.int64), prepend=0)
        active = np.flatnonzero(sent)
        poll = Poll(
            nic=port.nic,
            source="port_counter",
            from_ns=stretch.from_ns,
            to_ns=stretch.from_ns + epochs * self._epoch_ns,
            epoch_ns=self._epoch_ns,
            unit_bytes=WORD_BYTES,
            aggregation_bytes=WORD_BYTES,
            qpn=None,
            epoch=active.astype(np.uint32),
            units=sent[active].astype(np.uint32),
            aged_qpns=np.zeros(0, dtype=np.uint32),
            offset=Offset(0, stretch.error_ns),
        )
        stretch.from_ns, stretch.told = poll.to_ns, stretch.told + int(sent.sum())
        needed = int(np.searchsorted(stretch.at_ns, stretch.from_ns, side="right")) - 1
        del stretch.at_ns[:needed], stretch.words[:needed]
        return poll

    def _close(self, port: _Port) -> None:
        stretch = port.stretch
        if stretch is not None and stretch.at_ns[-1] - stretch.from_ns >= self._epoch_ns:
            port.closed.append(stretch)
        port.stretch = None

    def _discover(self) -> None:
        """Ports appear and vanish with their devices."""
        found = {path.parent.parent for path in self._root.glob(f"*/ports/*/{COUNTER}")}
        for path in self._ports.keys() - found:
            log.warning("%s has vanished", path)
            del self._ports[path]
        for path in sorted(found - self._ports.keys()):
            nic = path.parent.parent.name
            name = nic if path.name == "1" else f"{nic}/{path.name}"
            self._ports[path] = _Port(name, path / COUNTER, _rate(path / "rate"))


def _added(port: _Port, value: int, apart_ns: int) -> int | None:
    """Words since the last sample; None: that is not known, as the counter was reset or is stuck."""
    added = value - port.value
    if added == 0 and value == _STUCK:
        return None
    if added < 0:
        added += 1 << (64 if port.wide else 32)
    return added if added * WORD_BYTES <= port.fastest * _SPARE * max(apart_ns, 0) / 1e9 else None


def _value(counter: Path) -> int | None:
    """What a counter holds; None where it cannot be read."""
    try:
        text = counter.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() and len(text) <= 20 else None


def _rate(path: Path) -> float:
    """Bytes a second, from a line as ``400 Gb/sec (4X NDR)``."""
    try:
        return float(path.read_text(encoding="ascii").split()[0]) * 1e9 / 8 or _FASTEST
    except (OSError, ValueError, IndexError):
        return _FASTEST
