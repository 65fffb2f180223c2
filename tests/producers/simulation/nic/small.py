"""Small jobs all of whose telemetry arrives, executed once, and their messages as tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from producers.simulation.nic import WHOLE, NicRun, NicScenario, Workload, simulate_nics
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.message import Message, decode
from schemas.topic import Topic

SMALL = NicScenario(
    5, Workload.DENSE, tp=2, dp=4, pp=1, iterations=4, microbatches=2, gradient_bytes=2_000_000_000, noise=WHOLE
)
PIPELINE = NicScenario(
    5, Workload.DENSE, tp=2, dp=2, pp=2, iterations=2, microbatches=3, gradient_bytes=500_000_000, noise=WHOLE
)
EXPERTS = NicScenario(
    5, Workload.EXPERTS, tp=2, dp=4, pp=1, iterations=2, microbatches=1, layers=3, forward_s=0.015,
    token_bytes=16 << 20, gradient_bytes=200_000_000, noise=WHOLE,
)  # fmt: skip

simulated = cache(simulate_nics)
"""A run, executed once for all tests."""


@dataclass(frozen=True)
class Told:
    """What a run's agents told, host and rank beside each row."""

    run: NicRun
    messages: tuple[Message, ...]

    def rows(self, topic: Topic) -> list[dict[str, Any]]:
        """The rows of a topic with their host."""
        found = []
        for message in self.messages:
            if message.topic == topic.name:
                found += [{**row, "host": message.headers["host"]} for row in decode(message, topic).to_pylist()]
        return found

    @cached_property
    def polls(self) -> list[dict[str, Any]]:
        """Rows of telemetry.nic_epochs."""
        return self.rows(NIC_EPOCHS)

    @cached_property
    def calls(self) -> list[dict[str, Any]]:
        """Rows of telemetry.op_calls."""
        return self.rows(OP_CALLS)

    @cached_property
    def map(self) -> list[dict[str, Any]]:
        """Rows of telemetry.queue_pairs."""
        return self.rows(QUEUE_PAIRS)

    def rank_of(self, host: str, nic: str) -> int:
        """The rank that a NIC belongs to."""
        return next(p.rank for p in self.run.job.places if p.host == host and p.nics == (nic,))

    @cached_property
    def counted(self) -> dict[tuple[int, int], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Times (NIC clock, from the poll's epochs) and bytes of each queue pair by (rank, number)."""
        found: dict[tuple[int, int], list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]] = {}
        for poll in self.polls:
            rank = self.rank_of(poll["host"], poll["nic"])
            qpn, epoch, units = (np.array(poll[name], dtype=np.int64) for name in ("qpn", "epoch", "units"))
            times = poll["poll_from_ns"] + epoch * poll["epoch_ns"]
            for number in np.unique(qpn):
                own = qpn == number
                found.setdefault((rank, int(number)), []).append((times[own], units[own] * poll["unit_bytes"]))
        return {
            key: (np.concatenate([t for t, _ in parts]), np.concatenate([b for _, b in parts]))
            for key, parts in found.items()
        }


@cache
def told(scenario: NicScenario) -> Told:
    """A run's messages, decoded when they are looked at."""
    run = simulated(scenario)
    return Told(run, tuple(run.messages()))


def column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of the truth; nulls are -1."""
    values = table[name]
    return np.array([-1 if value is None else value for value in values.to_pylist()])
