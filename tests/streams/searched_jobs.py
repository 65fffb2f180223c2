"""Small jobs whose last iteration is irregular, their agents, and the records that ask for a search."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from diagnosis.job import Job
from producers.log_agent import LogAgent, agents
from schemas.catalogue import COMM_OPS, ITERATIONS
from schemas.message import Message, encode
from tests.diagnosis.made_logs import MS, Collective, Compute, Step, Training

BASELINE = tuple(range(12))
PIVOTS = (0, 2)


@dataclass(frozen=True)
class SearchedJob:
    """Four ranks that meet again and again; ``slow`` computes 50 ms longer in the last iteration."""

    name: str = "a"
    slow: int = 3

    @cached_property
    def training(self) -> Training:
        def program(rank: int) -> list[Step]:
            late = Compute(extra_ms=50 if rank == self.slow else 0)
            return [Compute(), Collective("all"), late, Collective(f"pair{rank // 2}"), Compute(), Collective("all")]

        return Training(
            {rank: program(rank) for rank in range(4)}, {"all": (0, 1, 2, 3), "pair0": (0, 1), "pair1": (2, 3)}
        )

    @cached_property
    def job(self) -> Job:
        return replace(self.training.job(), job=self.name)

    @cached_property
    def table(self) -> pa.Table:
        return pa.Table.from_batches([COMM_OPS.from_rows(self.training.table().to_pylist())])

    @cached_property
    def agents(self) -> list[LogAgent]:
        """At the end of their logs: they answer at once."""
        made = agents(self.job, self.table, ())
        for agent in made:
            while agent.advance() is not None:
                pass
        return made

    def irregular(self, ordinal: int = 1, *, pivots: Sequence[int] = PIVOTS, **columns: Any) -> Message:
        """The record of the irregular iteration."""
        run = {"pattern": "abnormal_spike", "pattern_from": 12, "pattern_to": 12, "pattern_ordinal": ordinal}
        run |= {"pattern_state": "open", "excess_ns": 50 * MS, "baseline": list(BASELINE), "irregular": True}
        return self.record(12, pivots=pivots, **{"duration_ns": 85 * MS, "expected_ns": 35 * MS, **run, **columns})

    def record(self, iteration: int, *, pivots: Sequence[int] = PIVOTS, **columns: Any) -> Message:
        """The record of an iteration, regular unless said otherwise."""
        plain = {"iteration": iteration, "start_ns": iteration, "duration_ns": 35 * MS, "expected_ns": 35 * MS}
        rows = [{**plain, "pivot": p, "delta": 1.1, "irregular": False, **columns} for p in pivots]
        return encode(ITERATIONS, ITERATIONS.from_rows(rows), job=self.name, watermark_ns=1000 + iteration)


def offsets(messages: Iterable[Message]) -> list[Message]:
    """The messages as the bus holds them."""
    return [replace(message, offset=offset) for offset, message in enumerate(messages)]
