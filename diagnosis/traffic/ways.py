"""Which operators take the same queue pairs: one that was sent whole shows that records of all of them are there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.columns import joint_codes
from diagnosis.traffic.calls import Calls
from diagnosis.traffic.transfers import Transfers
from diagnosis.traffic.volume import LARGE_BYTES


class Way(NamedTuple):
    """The sending end (``endpoints``), the rank that is sent to, the communicator, and whether operators are large.

    Queue pairs between two ranks may be a communicator's own, and small operators may take fewer of them.
    """

    sender: int
    destination: int
    communicator: str
    large: bool


def ways_of(calls: Calls, transfers: Transfers) -> tuple[Ints, list[Way]]:
    """The way that each transfer takes, as a code, and what codes stand for."""
    communicator, large = calls.communicator[transfers.call], transfers.expected >= LARGE_BYTES
    code = joint_codes(transfers.source, transfers.destination, communicator, large.astype(np.int64))
    first = np.unique(code, return_index=True)[1]
    columns = (transfers.source, transfers.destination, communicator, large)
    rows = zip(*(column[first].tolist() for column in columns), strict=True)
    return code, [Way(sender, to, calls.communicators[of], size) for sender, to, of, size in rows]
