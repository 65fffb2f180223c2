"""Where an operator really begins and ends: without what queue pairs send before and behind it.

Queue pairs are counted in events (Pulse 4.2). What is below one, and the small messages that make ready for the next
operator, often on other queue pairs than its data, come with an event that falls anywhere. Taken for a part of the
operator it would move a boundary, by up to ``delta`` and more. The paper does not say what it does with them.
"""

from __future__ import annotations

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.traffic.pieces import Pieces
from diagnosis.traffic.ports import Ports

EVENTS = 4
"""A piece of up to so many events may be remainders and messages: one or two before an operator, as many behind it."""


def without_remainders(ports: Ports, pieces: Pieces, expected: Ints, slack: Ints) -> Pieces:
    """The pieces without the little ones that begin before, or end behind, what else was sent for their operator, with
    an empty epoch in between; all of an operator that lacks volume without them.

    ``expected`` bytes, and those that the aggregation may withhold (``slack``), of each transfer; shape (transfers,).
    """
    spans, transfer = pieces.spans, pieces.transfer
    little = spans.size <= EVENTS * ports.aggregation_bytes
    rest = ~little
    first = np.full(len(expected), np.iinfo(np.int64).max)
    last = np.full(len(expected), -1, dtype=np.int64)
    np.minimum.at(first, transfer[rest], spans.start_ns[rest])
    np.maximum.at(last, transfer[rest], spans.last_ns[rest])
    aside = (spans.start_ns < first[transfer] - ports.epoch_ns) | (spans.last_ns > last[transfer] + ports.epoch_ns)
    left_out = little & aside
    left = np.bincount(transfer, weights=np.where(left_out, 0, spans.size), minlength=len(expected))
    kept = ~left_out | (left < expected - slack)[transfer]
    return Pieces(transfer[kept], spans.take(kept))
