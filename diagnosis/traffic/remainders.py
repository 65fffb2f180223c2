"""Where an operator really begins and ends: without what queue pairs send beside it.

Queue pairs are counted in events (Pulse 4.2). What is below one, and the small messages that make ready for the next
operator, often on other queue pairs than its data, come with an event that falls anywhere. Taken for a part of the
operator it would move a boundary by up to ``delta``. The paper does not say what it does with them.
"""

from __future__ import annotations

import numpy as np

from diagnosis.traffic.epochs import Ints
from diagnosis.traffic.pieces import Pieces
from diagnosis.traffic.ports import Ports

EVENTS = 4
"""What a queue pair sends between two silences is a remainder or messages, if it is no more events: one or two before
an operator, and as many behind it."""


def without_remainders(ports: Ports, pieces: Pieces, expected: Ints, slack: Ints) -> Pieces:
    """The pieces that are more than remainders or messages; all of an operator that lacks volume without them.

    ``expected`` bytes, and those that the aggregation may withhold (``slack``), of each transfer; shape (transfers,).
    """
    size = pieces.spans.size
    little = size <= EVENTS * ports.aggregation_bytes
    left = np.bincount(pieces.transfer, weights=np.where(little, 0, size), minlength=len(expected))
    kept = ~little | (left < expected - slack)[pieces.transfer]
    return Pieces(pieces.transfer[kept], pieces.spans.take(kept))
