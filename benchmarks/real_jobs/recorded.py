"""One job, run between network namespaces: what its ranks logged."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from benchmarks.network import network
from benchmarks.rank_processes import RunFailed, last_lines, rank_processes
from benchmarks.real_jobs.plan import Plan
from schemas.errors import OffbeatError

_PROGRAM = "benchmarks.real_jobs.rank"


class TorchMissing(OffbeatError):
    """PyTorch is not installed; the message says how it is."""


def record(plan: Plan, folder: Path) -> None:
    """Run a job; its ranks log into ``folder``, where ``offbeat diagnose`` reads it.

    Raises ``TorchMissing``, ``KernelRefused`` where it cannot be run here, ``RunFailed`` where a rank fails, or logs
    less than all.
    """
    if find_spec("torch") is None:
        raise TorchMissing("PyTorch is not installed; install it beside Offbeat: .venv/bin/pip install torch")
    folder.mkdir(parents=True)
    with (
        network(plan.ranks) as built,
        rank_processes(_PROGRAM, built.ranks, plan.to_json(), str(folder)) as processes,
    ):
        dropped = sum(map(int, last_lines(processes, plan.longest_s)))
    if dropped:
        raise RunFailed(f"{plan.name}: {dropped} operators found no room in the ranks' logs")
