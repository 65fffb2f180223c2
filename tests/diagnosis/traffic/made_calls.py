"""Calls of the communication library, as rows of telemetry.op_calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from diagnosis.traffic.calls import Calls
from schemas.op_calls import TOPIC


class Caller:
    """One rank that calls; communicators are named and listed with their members."""

    def __init__(self, rank: int, members: Mapping[str, Sequence[int]]) -> None:
        self.rank = rank
        self.members = members
        self.rows: list[dict[str, Any]] = []
        self._seq: Counter[str] = Counter()

    def call(
        self,
        communicator: str,
        op: str,
        size: int,
        call_ns: int,
        peer: int | None = None,
        root: int | None = None,
        group: tuple[int, int | None] | None = None,
    ) -> None:
        """Call an operator with ``size`` bytes, within a group that was opened and closed at ``group``."""
        self.rows.append(
            {
                "rank": self.rank,
                "call_id": len(self.rows),
                "communicator": communicator,
                "communicator_rank": list(self.members[communicator]).index(self.rank),
                "seq": self._seq[communicator],
                "op": op,
                "dtype": "uint8",
                "count": size,
                "peer": peer,
                "root": root,
                "reduce_op": None,
                "stream": None,
                "call_ns": call_ns,
                "group_start_ns": group[0] if group else None,
                "group_end_ns": group[1] if group else None,
            }
        )
        self._seq[communicator] += 1

    def exchange(self, communicator: str, sizes: dict[int, int], call_ns: int) -> None:
        """A group of a send to, and a receive from, each peer with something to send."""
        for peer, size in sizes.items():
            if size:
                self.call(communicator, "send", size, call_ns, peer, group=(call_ns, call_ns))
                self.call(communicator, "recv", size, call_ns, peer, group=(call_ns, call_ns))


def calls(*callers: Caller) -> Calls:
    """The calls of several ranks, through the topic's own columns."""
    return Calls.from_arrow(table(callers))


def table(callers: Iterable[Caller]) -> pa.Table:
    """The rows of telemetry.op_calls."""
    return pa.Table.from_batches([TOPIC.from_rows([row for caller in callers for row in caller.rows])])
