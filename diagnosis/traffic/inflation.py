"""By how much more is sent for operators than is expected: headers, and the low-latency protocols (twice the bytes, or
128 for 120)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from diagnosis.traffic.bursts import Bursts
from diagnosis.traffic.endpoints import nic_of, pair_of
from diagnosis.traffic.transfers import Transfers
from diagnosis.traffic.volume import LARGE_BYTES

MOST_INFLATION = 2.2
"""Twice the bytes, and headers: no protocol costs more."""

_LEAST = 0.99
"""The aggregation may withhold a little."""


def large_inflation(bursts: Bursts, transfers: Transfers, nics: int) -> npt.NDArray[np.float64]:
    """What large operators of each NIC usually exceed their expected bytes by, all of which have the same protocol;
    NaN where nothing tells. Shape (nics,).

    Bursts tell that hold just what was called since the one before; one that holds less goes on in the next. Both are
    sorted by pair of ranks, then in order of time, as ``segmentation`` has them. What a whole pair sends does not tell:
    of what has been called some is not sent yet where telemetry ends, or was sent before it began.
    """
    if not len(bursts):
        return np.full(nics, np.nan)
    pair, launched = pair_of(bursts.source, bursts.destination), len(transfers)
    order = np.lexsort((np.concatenate((transfers.launch_ns, bursts.last_ns)), np.concatenate((transfers.pair, pair))))
    called = np.empty(len(order), dtype=np.int64)
    called[order] = np.cumsum(order < launched)
    until = called[launched:]
    since = np.maximum(np.append(0, until[:-1]), np.searchsorted(transfers.pair, pair))
    total = np.append(0, np.cumsum(transfers.expected))
    expected = total[until] - total[since]
    goes_on = bursts.size < _LEAST * expected
    first = np.flatnonzero((np.diff(pair, prepend=-1) != 0) | ~np.append(False, goes_on[:-1]))
    size, expected = np.add.reduceat(bursts.size, first), np.add.reduceat(expected, first)
    ratios = size / np.maximum(expected, 1)
    tells = (expected >= LARGE_BYTES) & (ratios >= _LEAST) & (ratios <= MOST_INFLATION)
    usual, nic = np.full(nics, np.nan), nic_of(bursts.source[first])
    for own in np.unique(nic[tells]).tolist():
        usual[own] = max(float(np.median(ratios[tells & (nic == own)])), 1.0)
    return usual
