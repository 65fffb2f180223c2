"""The communicators of a job and its layout, as far as its operator log shows them.

Ids of communicators are opaque: what a communicator is for is told from its members and from what is done on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def membership(rank: Ints, communicator: Ints, peer: Ints) -> dict[int, tuple[int, ...]]:
    """Ranks of each communicator (by its code), ascending: those that logged it and their peers on it.

    The arguments have an entry a row of the log; ``peer`` is -1 where there is none.
    """
    met = peer >= 0
    who = np.concatenate([rank, peer[met]])
    what = np.concatenate([communicator, communicator[met]])
    span = int(who.max(initial=0)) + 1
    keys = np.unique(what * span + who)
    codes, ranks = keys // span, keys % span
    heads = np.flatnonzero(np.diff(codes, prepend=-1))
    return {
        int(codes[head]): tuple(part.tolist()) for head, part in zip(heads, np.split(ranks, heads[1:]), strict=True)
    }
