"""The irregularity that Holmes' section 5.3 tells of: reduced to 128 ranks, and at its full size of 3,072.

At full size nobody could write down every log. Ranks in the same role do the same at the same time, so that the log of
a rank is that of its likeness in the reduced job, under its own numbers: made when it is asked for.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.job import Communicator, Job, Place
from tests.diagnosis.made_logs import SCHEMA, Collective, Compute, Recv, Row, Send, Step, Training

SLOW = 107
"""A GPU of the reduced case: pipeline stage 6, third of its data-parallel group, fourth of its tensor-parallel one."""

STAGES, TENSOR, DATA = 8, 4, 4


@cache
def reduced() -> Training:
    """TP 4, DP 4, PP 8 in Megatron's rank order; the blockage travels back a stage a microbatch."""
    groups = {f"tp{i}": tuple(range(4 * i, 4 * i + 4)) for i in range(32)}
    groups |= {f"dp{i}": tuple(range(16 * (i // 4) + i % 4, 16 * (i // 4) + 16, 4)) for i in range(32)}

    def program(rank: int) -> list[Step]:
        stage = rank // 16
        steps: list[Step] = [Compute(extra_ms=80 if rank == SLOW else 0), Collective(f"tp{rank // 4}", "all_gather")]
        steps += [Compute(), Collective(f"dp{4 * stage + rank % 4}")]
        for _ in range(7):
            steps += [Recv(rank - 16)] if stage else []
            steps += [Compute(2.0)]
            steps += [Send(rank + 16)] if stage < 7 else []
        return steps

    return Training({rank: program(rank) for rank in range(128)}, groups)


@dataclass(frozen=True)
class FullSize:
    """TP 4, DP 96, PP 8, where GPU 2574 is slow: stage 6, its group's 68th replica, third of its tensor group."""

    data: int = 96
    slow: int = 2574

    @cached_property
    def job(self) -> Job:
        """Its ranks, eight a host, and who communicates with whom."""
        ranks = np.arange(STAGES * self.data * TENSOR).reshape(STAGES, self.data, TENSOR)
        groups = {f"tp{i}": group for i, group in enumerate(ranks.reshape(-1, TENSOR).tolist())}
        groups |= {f"dp{i}": group for i, group in enumerate(ranks.swapaxes(1, 2).reshape(-1, self.data).tolist())}
        groups |= {f"pp{i}": group for i, group in enumerate(ranks.reshape(STAGES, -1).T.tolist())}
        return Job(
            "published",
            tuple(Place(rank, f"h{rank // 8}", rank % 8, (f"mlx5_{rank % 8}",)) for rank in range(ranks.size)),
            tuple(Communicator(name, tuple(members)) for name, members in groups.items()),
        )

    def log(self, ranks: Collection[int]) -> pa.Table:
        """What the ranks logged."""
        return pa.Table.from_pylist([row for rank in sorted(ranks) for row in self._log_of(rank)], schema=SCHEMA)

    def _log_of(self, rank: int) -> list[Row]:
        stage, replica, place = self._where(rank)
        groups = {"tp": rank // TENSOR, "dp": TENSOR * stage + place, "pp": TENSOR * replica + place}
        between = self.data * TENSOR  # ranks of a stage
        return [
            {
                **row,
                "rank": rank,
                "communicator": (kind := row["communicator"][:2]) + str(groups[kind]),
                "peer": None if row["peer"] is None else rank + between * (1 if row["peer"] > row["rank"] else -1),
            }
            for row in _rows_of(self._likeness(rank))
        ]

    def _likeness(self, rank: int) -> int:
        """The rank of the reduced job that does the same: there the third replica is slow, its fourth place."""
        stage, replica, place = self._where(rank)
        _, slow_replica, slow_place = self._where(self.slow)
        likeness = 2 if replica == slow_replica else (0, 1, 3)[replica % 3]
        others = [other for other in range(TENSOR) if other != slow_place]
        seat = 3 if place == slow_place else others.index(place)
        return (stage * DATA + likeness) * TENSOR + seat

    def _where(self, rank: int) -> tuple[int, int, int]:
        """Pipeline stage, replica, and place in the tensor group."""
        return rank // (self.data * TENSOR), rank // TENSOR % self.data, rank % TENSOR


@cache
def _rows_of(rank: int) -> list[Row]:
    table = _reduced_log()
    rows: list[Row] = table.filter(pc.equal(table.column("rank"), rank)).to_pylist()
    return rows


@cache
def _reduced_log() -> pa.Table:
    return reduced().table()
