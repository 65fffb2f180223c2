"""One rank: runs a plan's operators with the others, and logs its calls, what it sent and what it got.

A process of its own (``rank_processes.py``) that ends with its log.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.rank_processes import await_go, told_plan
from benchmarks.real_traffic.collectives import all_reduce, all_to_all
from benchmarks.real_traffic.connections import Connections, Ends, Lane, connect, listen
from benchmarks.real_traffic.plan import Plan


@dataclass
class RankLog:
    """What a rank logs.

    ``calls`` are rows as of telemetry.op_calls. ``began_ns`` by operator: its first slice was sent; ``ended_ns`` by
    operator and source: the source's last slice had come. Operators are numbered as they come, alike on all ranks.
    """

    rank: int
    ends: list[tuple[Lane, Ends]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    began_ns: dict[int, int] = field(default_factory=dict)
    ended_ns: list[tuple[int, int, int]] = field(default_factory=list)

    def to_json(self) -> str:
        """The log as a line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> RankLog:
        """The log of a line."""
        log = cls(**json.loads(line))
        log.ends = [(Lane(*lane), Ends(*ends)) for lane, ends in log.ends]
        log.began_ns = {int(operator): at for operator, at in log.began_ns.items()}
        return log


@dataclass
class Run:
    """A rank on its way through the plan."""

    plan: Plan
    log: RankLog
    connections: Connections
    threads: Executor

    def iterations(self) -> None:
        """All operators, with their pauses. Raises ``ArithmeticError`` where one brings a wrong result."""
        for iteration in range(self.plan.iterations):
            time.sleep(self.plan.pause_s)
            self._reduce(2 * iteration)
            self._sent()
            time.sleep(self.plan.pause_s)
            self._exchange(2 * iteration + 1)
            self._sent()

    def finish(self) -> None:
        """Close the connections, and gather what they logged."""
        self.connections.close()
        for sending in self.connections.outgoing.values():
            for operator, at in sending.began_ns.items():
                self.log.began_ns[operator] = min(at, self.log.began_ns.get(operator, at))
        for (source, _), receiving in self.connections.incoming.items():
            self.log.ended_ns += [(operator, source, at) for operator, at in receiving.ended_ns.items()]

    def _reduce(self, operator: int) -> None:
        count, rank = self.plan.reduced_bytes // 4, self.log.rank
        values = np.full(count, rank + operator, dtype=np.float32)
        self._called("data", "all_reduce", operator, count)
        all_reduce(self.plan, rank, values, operator, self.connections, self.threads)
        if not (values == sum(range(self.plan.ranks)) + self.plan.ranks * operator).all():
            raise ArithmeticError(f"rank {rank}: the all-reduce {operator} adds up to something else")

    def _exchange(self, operator: int) -> None:
        """An all-to-all as a group of sends and receives."""
        count, rank = self.plan.exchanged_bytes // 4, self.log.rank
        values = np.repeat(np.arange(self.plan.ranks, dtype=np.float32)[:, None] + 10 * rank, count, axis=1)
        first, opened_ns = len(self.log.calls), time.time_ns()
        for peer in self.plan.peers(rank):
            self._called("experts", "send", operator, count, peer)
            self._called("experts", "recv", operator, count, peer)
        closed_ns = time.time_ns()
        for call in self.log.calls[first:]:
            call.update(group_start_ns=opened_ns, group_end_ns=closed_ns)
        received = all_to_all(self.plan, rank, values, operator, self.connections, self.threads)
        if not (received == (10 * np.arange(self.plan.ranks) + rank)[:, None]).all():
            raise ArithmeticError(f"rank {rank}: the all-to-all {operator} brings something else")

    def _sent(self) -> None:
        """Await that all is sent, so that the pause after an operator is one of the line as well."""
        for sending in self.connections.outgoing.values():
            sending.flush()

    def _called(self, communicator: str, op: str, operator: int, count: int, peer: int | None = None) -> None:
        before = [call for call in self.log.calls if call["communicator"] == communicator]
        self.log.calls.append(
            {
                "operator": operator,
                "call_id": len(self.log.calls),
                "communicator": communicator,
                "seq": len(before),
                "op": op,
                "count": count,
                "peer": peer,
                "call_ns": time.time_ns(),
                "group_start_ns": None,
                "group_end_ns": None,
            }
        )


def run(plan: Plan, rank: int) -> RankLog:
    """Run the plan as one of its ranks."""
    log = RankLog(rank)
    with listen(rank) as listener:
        await_go()
        connections = connect(plan, rank, listener)
    log.ends = sorted(connections.ends.items())
    with ThreadPoolExecutor(2 * plan.channels * (plan.ranks - 1)) as threads:
        run = Run(plan, log, connections, threads)
        run.iterations()
        run.finish()
    return log


if __name__ == "__main__":
    told, own = told_plan()
    print(run(Plan.from_json(told), own).to_json(), flush=True)
