"""Rows of analysis.traffic_metrics, and a job to compare its ranks in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from diagnosis.collective.grid import Grid, grids
from diagnosis.collective.participation import Participation, lost_before
from diagnosis.job import Communicator, Job, Place
from schemas.traffic_metrics import TOPIC

MS = 1_000_000
SECOND = 1_000_000_000
MB = 1 << 20
CLOCKS = (0, 4_000_000, -3_000_000, 1_500_000, -4_500_000, 2_000_000, 500_000, -1_000_000)
"""By how much the clock of each host is wrong."""


def job(hosts: int = 4, per_host: int = 2) -> Job:
    """Ranks 0, 1, ... host after host; a data-parallel group for each GPU of a host."""
    places = tuple(Place(h * per_host + g, f"h{h}", g, (f"mlx5_{g}",)) for h in range(hosts) for g in range(per_host))
    groups = tuple(Communicator(f"dp{g}", tuple(h * per_host + g for h in range(hosts)), "dp") for g in range(per_host))
    return Job("j", places, groups)


class Told:
    """Collects rows; hosts of ``per_host`` ranks whose clocks differ."""

    def __init__(self, per_host: int = 2) -> None:
        self.per_host = per_host
        self.rows: list[dict[str, Any]] = []

    def tell(
        self,
        communicator: str,
        seq: int,
        rank: int,
        start_ns: int | None,
        duration_ns: int = 10 * MS,
        actual_ns: int | None = None,
        expected: int = 100 * MB,
        sent: int | None = None,
        op: str = "all_reduce",
        state: str = "complete",
        peers: Mapping[int, int] | None = None,
        incomplete: Sequence[int] = (),
        busy: int | None = 1 << 20,
        call_ns: int | None = None,
        peer_rate: Mapping[int, float] | None = None,
        calls_lost: int = 0,
        iteration: int | None = None,
    ) -> None:
        """One rank's part in one operator; times of a perfect clock."""
        off = SECOND + CLOCKS[rank // self.per_host % len(CLOCKS)]
        seen = start_ns is not None and state != "missing_start"
        actual = (duration_ns if actual_ns is None else actual_ns) if seen else None
        size = (expected if sent is None else sent) if seen else 0
        to = dict(peers or {}) if seen else {}
        times = [int(volume / (peer_rate or {}).get(peer, 25.0)) for peer, volume in to.items()]
        begins = (start_ns or 0) + off
        self.rows.append(
            {
                "communicator": communicator,
                "seq": seq,
                "rank": rank,
                "nic": f"mlx5_{rank % self.per_host}",
                "iteration": iteration,
                "op": op,
                "calls_lost": calls_lost,
                "call_ns": begins if call_ns is None else call_ns + off,
                "start_ns": begins if seen else None,
                "end_ns": begins + duration_ns if seen else None,
                "state": state,
                "visibility": "network",
                "duration_ns": duration_ns if seen else None,
                "actual_time_ns": min(actual, duration_ns) if actual is not None else None,
                "expected_bytes": expected,
                "sent_bytes": size,
                "incomplete_peers": list(incomplete),
                "peers": list(to),
                "peer_sent_bytes": list(to.values()),
                "peer_actual_time_ns": times,
                "busy_epoch_bytes": busy if seen else None,
                "epoch_ns": 32_000,
                "coverage": 0.0 if state == "unknown" else 1.0,
            }
        )

    @property
    def arrow(self) -> pa.Table:
        """The rows, through the topic's own columns."""
        every = [{column.name: None for column in TOPIC.columns} | row for row in self.rows]
        return pa.Table.from_batches([TOPIC.from_rows(every)])

    @property
    def table(self) -> Participation:
        """The same as columns."""
        return Participation.from_arrow(self.arrow, lost_before(self.arrow))

    @property
    def grids(self) -> list[Grid]:
        """The operators of each communicator."""
        return grids(self.table)

    @property
    def grid(self) -> Grid:
        """The only communicator's operators."""
        (only,) = self.grids
        return only
