"""Ranks whose logs begin later or end earlier than those of others: of the other iterations nothing is known of them.

All logs may end in the midst of an iteration, or with a rank that hangs, which the others wait for within an iteration.
Holes amid a log are told by the numbers that lack.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_APART = 1
"""By so many recorded iterations ranks may be ahead of each other where logs begin or end, all at the same time."""


@dataclass(frozen=True, slots=True)
class PartialLog:
    """``ranks`` logged the iterations from ``first`` to ``last`` alone; None: they logged nothing of any."""

    ranks: tuple[int, ...]
    first: int | None
    last: int | None


def partial_logs(table: pa.Table) -> list[PartialLog]:
    """The logs that cover a part of the iterations which others cover, those with the lowest ranks first.

    ``table`` has the columns ``rank`` and ``iteration`` of telemetry.comm_ops.
    """
    covered = table.group_by("rank").aggregate([("iteration", "min"), ("iteration", "max")]).to_pylist()
    known = [row for row in covered if row["iteration_min"] is not None]
    iterations = sorted(pc.unique(table.column("iteration").drop_null()).to_pylist())
    begins = iterations[min(_APART, len(iterations) - 1)] if iterations else 0
    ends = iterations[max(-1 - _APART, -len(iterations))] if iterations else 0
    ranks: dict[tuple[int | None, int | None], list[int]] = {}
    for row in sorted(covered, key=lambda row: row["rank"]):
        first, last = row["iteration_min"], row["iteration_max"]
        if known and (first is None or first > begins or last < ends):
            ranks.setdefault((first, last), []).append(row["rank"])
    return [PartialLog(tuple(of), first, last) for (first, last), of in ranks.items()]
