"""One run: namespaces are built, ranks run their plan inside, and their packets are watched."""

from __future__ import annotations

import time

from benchmarks.rank_processes import last_lines, rank_processes
from benchmarks.real_traffic import rank as rank_program
from benchmarks.real_traffic.capture import capture
from benchmarks.real_traffic.fabric import fabric
from benchmarks.real_traffic.plan import Plan
from benchmarks.real_traffic.rank import RankLog
from benchmarks.real_traffic.telemetry import Recorded

_QUIET_S = 1.2
"""How long silence is watched afterwards: only then it is known that the last operators are over."""


def recorded(plan: Plan) -> Recorded:
    """Run a plan. Raises ``KernelRefused`` where that cannot be done here, ``RunFailed`` where a rank fails."""
    with (
        fabric(plan) as built,
        capture(built.bridge, built.ports) as watching,
        rank_processes(rank_program.__name__, built.ranks, plan.to_json()) as processes,
    ):
        began_ns = time.time_ns()
        logs = [RankLog.from_json(line) for line in last_lines(processes, plan.longest_s)]
        time.sleep(_QUIET_S)
        ended_ns = time.time_ns()
        return Recorded(plan, logs, watching.stop(), began_ns, ended_ns)
