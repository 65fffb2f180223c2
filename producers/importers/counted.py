"""Sequence numbers for logs that carry none: by iteration and position, as far as lines are not missing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import codes, integers, joint_codes, nullable


def number_by_position(table: pa.Table) -> tuple[pa.Table, int]:
    """The table with ``seq`` on communicators that have none, and how many lines are missing there at least.

    ``table`` has iterations and positions, sorted by rank and call order. Members of a communicator call as many
    operators an iteration; where a rank called another number, lines are missing and which is not known, so that its
    operators of that iteration stay without a number: unknown, rather than mistaken for others.
    """
    communicator, names = codes(table, "communicator")
    rank, iteration, seq = (integers(table, name) for name in ("rank", "iteration", "seq"))
    counted = np.bincount(communicator[seq >= 0], minlength=len(names)) == 0
    rows = np.flatnonzero(counted[communicator] & (iteration >= 0))
    if not len(rows):
        return table, 0
    group = joint_codes(rank[rows], communicator[rows], iteration[rows])
    count = np.bincount(group)
    example = np.zeros(len(count), dtype=np.int64)
    example[group] = rows
    usual = np.zeros(len(names), dtype=np.int64)
    for code in np.unique(communicator[rows]):
        usual[code] = np.bincount(count[communicator[example] == code]).argmax()
    expected = usual[communicator[example]]
    whole = (count == expected)[group]
    seq = seq.copy()
    seq[rows[whole]] = iteration[rows[whole]] * usual[communicator[rows[whole]]]
    seq[rows[whole]] += integers(table, "position")[rows[whole]]
    at = table.schema.get_field_index("seq")
    return table.set_column(at, table.schema.field(at), nullable(seq, seq >= 0, pa.int64())), _missing(
        rank[example], communicator[example], iteration[example], expected - count
    )


def _missing(rank: Ints, communicator: Ints, iteration: Ints, fewer: Ints) -> int:
    """Lines that are missing, without the first and the last iteration, which may not be whole.

    ``fewer`` is how many each rank, communicator and iteration lacks; a line that was taken for the next iteration's
    is none that is missing.
    """
    last = np.zeros(int(rank.max()) + 1, dtype=np.int64)
    np.maximum.at(last, rank, iteration)
    inner = (iteration > 0) & (iteration < last[rank])
    pair = joint_codes(rank, communicator)
    net = np.bincount(pair[inner], weights=fewer[inner], minlength=1)
    return int(np.maximum(net, 0).sum())
