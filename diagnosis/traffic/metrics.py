"""What tells the ranks of an operator apart: actual time, volume, rates, silences (Pulse 6.1, 6.2).

A straggler leaves silences in the traffic of all the others, so their duration is the same; the time in which they
really sent is not. Epochs with traffic are counted per queue pair and then combined: of several queue pairs that share
a line one fills the silences of another, so that their sum would hide most of them. Of a custom collective, whose
sends differ, an epoch counts in which any of them is active, as the paper has it.

``busy_epoch_bytes`` is not the paper's: what a NIC sends in epochs that it fills. Slowness that leaves no epoch empty
shows in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.traffic.pieces import UNKNOWN
from diagnosis.traffic.ports import Ports, Spans
from diagnosis.traffic.segmentation import (
    COMPLETE,
    INCOMPLETE,
    MISSING_START,
    UNKNOWN_STATE,
    Segments,
)
from diagnosis.traffic.together import together
from diagnosis.traffic.transfers import Transfers

GAP_BINS = 16
"""Silences of 1 epoch, of 2 or 3, of 4 to 7, and so on; the last one holds all that are longer."""

BUSY = 0.95
"""Quantile of the bytes in active epochs that stands for a full one."""


@dataclass(frozen=True, slots=True, eq=False)
class Operators:
    """Transfers that belong together as one; arrays of shape (n,), in order of ``key``.

    ``start_ns`` and ``end_ns`` are of the first and the last traffic, ``UNKNOWN`` where none was seen; ``state``
    indexes ``segmentation.STATES``. ``sends`` and ``completed`` count its transfers. ``of_transfer``: the operator of
    each transfer.
    """

    key: Ints
    start_ns: Ints
    end_ns: Ints
    expected: Ints
    sent: Ints
    state: Ints
    silent_ns: Ints
    coverage: Floats
    sends: Ints
    completed: Ints
    of_transfer: Ints

    def __len__(self) -> int:
        return len(self.key)

    @property
    def duration_ns(self) -> Ints:
        """From the first traffic to the last; 0 where none was seen."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """What is compared between ranks; arrays of shape (operators,), ``gaps`` (operators, GAP_BINS).

    ``peer_actual_time_ns`` is that of each transfer alone, by its queue pairs; shape (transfers,).
    """

    actual_time_ns: Ints
    longest_gap_ns: Ints
    gaps: Ints
    busy_epoch_bytes: Ints
    peer_actual_time_ns: Ints

    @staticmethod
    def rate(sent: Ints, time_ns: Ints) -> Floats:
        """Bytes a second; 0 in no time."""
        return np.asarray(sent / np.maximum(time_ns, 1) * 1e9 * (time_ns > 0), dtype=np.float64)


def combined(transfers: Transfers, segments: Segments, key: Ints) -> Operators:
    """Join transfers with the same key, shape (transfers,), into operators.

    The earliest start and the latest end count. One is complete if all its transfers are; it is missing if all are;
    what is known to be incomplete is so whatever else is unknown.
    """
    names, of_transfer = np.unique(key, return_inverse=True)
    order = np.argsort(of_transfer, kind="stable")
    first = np.searchsorted(of_transfer[order], np.arange(len(names)))

    def over(ufunc: np.ufunc, values: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
        return np.asarray(ufunc.reduceat(values[order], first)) if len(first) else np.zeros(0, dtype=np.int64)

    seen = segments.start_ns != UNKNOWN
    never = np.iinfo(np.int64).max
    start = over(np.minimum, np.where(seen, segments.start_ns, never))
    states = {state: over(np.add, (segments.state == state).astype(np.int64)) for state in range(4)}
    sends = over(np.add, np.ones(len(key), dtype=np.int64))
    stopped = (states[INCOMPLETE] > 0) | ((states[MISSING_START] > 0) & (over(np.add, seen.astype(np.int64)) > 0))
    return Operators(
        key=names,
        start_ns=np.where(start == never, UNKNOWN, start),
        end_ns=over(np.maximum, segments.end_ns),
        expected=over(np.add, transfers.expected),
        sent=over(np.add, segments.sent),
        state=np.select(
            [states[COMPLETE] == sends, stopped, states[MISSING_START] == sends],
            [COMPLETE, INCOMPLETE, MISSING_START],
            default=UNKNOWN_STATE,
        ),
        silent_ns=over(np.minimum, segments.silent_ns),
        coverage=over(np.minimum, segments.coverage).astype(np.float64),
        sends=sends,
        completed=states[COMPLETE],
        of_transfer=np.asarray(of_transfer, dtype=np.int64),
    )


def measure(ports: Ports, segments: Segments, operators: Operators, custom: Bools, chosen: Bools) -> Metrics:
    """Measure operators in the epochs that their transfers were seen in.

    ``custom``: which of them are custom collectives; ``chosen``: which are measured, the others have zeros; shape
    (operators,).
    """
    wanted = chosen[operators.of_transfer[segments.pieces.transfer]]
    transfer, spans = segments.pieces.transfer[wanted], segments.pieces.spans.take(wanted)
    operator = operators.of_transfer[transfer]
    actual = _per_queue_pair(ports, spans, operator, len(operators))
    longest = np.zeros(len(operators), dtype=np.int64)
    gaps = np.zeros((len(operators), GAP_BINS), dtype=np.int64)
    busy = np.zeros(len(operators), dtype=np.int64)
    for epochs in together(ports, spans, operator, operators.start_ns, operators.end_ns):
        own = epochs.operators
        actual[own] = np.where(custom[own], epochs.active * ports.epoch_ns, actual[own])
        place, silent = epochs.silences()
        np.maximum.at(longest, own[place], silent * ports.epoch_ns)
        np.add.at(gaps, (own[place], np.minimum(np.log2(silent).astype(np.int64), GAP_BINS - 1)), 1)
        busy[own] = np.rint(epochs.quantile(BUSY) * ports.unit_bytes)
    alone = _per_queue_pair(ports, spans, transfer, len(segments.start_ns))
    return Metrics(actual, longest, gaps, busy, alone)


def _per_queue_pair(ports: Ports, spans: Spans, operator: Ints, count: int) -> Ints:
    """Mean time in which the queue pairs of each operator sent, by their volume: control messages do not weigh."""
    lanes = int(spans.lane.max(initial=0)) + 1
    key, which = np.unique(operator * lanes + spans.lane, return_inverse=True)
    epochs = np.bincount(which, weights=spans.high - spans.low, minlength=len(key))
    volume = np.bincount(which, weights=spans.size, minlength=len(key))
    weighted = np.bincount(key // lanes, weights=epochs * volume, minlength=count)
    total = np.bincount(key // lanes, weights=volume, minlength=count)
    return np.rint(weighted / np.maximum(total, 1) * ports.epoch_ns).astype(np.int64)
