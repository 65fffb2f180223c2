"""Runs side by side: all results come, errors come through, and nothing outlives its owner."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.simulated.workers import results
from tests.offbeat.command_line import ROOT

ALONE = """
import os, sys, time
from benchmarks.simulated.workers import results

def stay(number):
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    list(results(stay, [1, 2], 2))
"""


def test_results_of_all_tasks_come() -> None:
    assert sorted(results(abs, [-1, 2, -3], 2)) == [1, 2, 3]
    assert list(results(abs, [-1], 2)) == [1]


def test_an_error_comes_through() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        list(results(int, ["1", "x", "2"], 2))


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        children = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
    deadline = time.monotonic() + 60
    while any(map(_runs, children)):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """Whether a process is there and no corpse that nobody has collected."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
