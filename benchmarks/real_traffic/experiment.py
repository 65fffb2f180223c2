"""One run: namespaces are built, ranks run their plan inside, and their packets are watched."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import IO

from benchmarks.real_traffic import rank as rank_process
from benchmarks.real_traffic.capture import capture
from benchmarks.real_traffic.fabric import Fabric, fabric
from benchmarks.real_traffic.plan import Plan
from benchmarks.real_traffic.rank import GO, LISTENING, RankLog
from benchmarks.real_traffic.telemetry import Recorded
from schemas.errors import OffbeatError

_QUIET_S = 1.2
"""How long silence is watched afterwards: only then it is known that the last operators are over."""

Process = subprocess.Popen[str]


class RunFailed(OffbeatError):
    """A rank did not come to its end; the message says which, and what it said last."""


def recorded(plan: Plan) -> Recorded:
    """Run a plan. Raises ``KernelRefused`` where that cannot be done here, ``RunFailed`` where a rank fails."""
    with fabric(plan) as built, capture(built.bridge, built.ports) as watching, _ranks(plan, built) as processes:
        began_ns = time.time_ns()
        logs = _finished(plan, processes)
        time.sleep(_QUIET_S)
        ended_ns = time.time_ns()
        return Recorded(plan, logs, watching.stop(), began_ns, ended_ns)


@contextmanager
def _ranks(plan: Plan, built: Fabric) -> Iterator[list[Process]]:
    """A process for each rank, in its namespace, all of them listening."""
    processes: list[Process] = []
    try:
        for rank, namespace in enumerate(built.ranks):
            process = namespace.call(partial(_started, rank))
            processes.append(process)
            _tell(rank, process, plan.to_json())
        for rank, process in enumerate(processes):
            if _stdout(process).readline().strip() != LISTENING:
                raise _failed(rank, process)
        for rank, process in enumerate(processes):
            _tell(rank, process, GO)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _started(rank: int) -> Process:
    command = [sys.executable, "-m", rank_process.__name__, str(rank)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def _finished(plan: Plan, processes: Sequence[Process]) -> list[RankLog]:
    """The logs of all ranks. One that fails is not awaited by the others, who would wait for it."""
    with ThreadPoolExecutor(len(processes)) as threads:
        logs = [threads.submit(_log, rank, process) for rank, process in enumerate(processes)]
        done, waiting = wait(logs, plan.longest_s, FIRST_EXCEPTION)
        if waiting:
            for process in processes:
                process.kill()
            failed = [error for each in done if (error := each.exception()) is not None]
            raise failed[0] if failed else RunFailed(f"{len(waiting)} ranks did not end in {plan.longest_s:.0f} s")
        return [each.result() for each in logs]


def _log(rank: int, process: Process) -> RankLog:
    line = _stdout(process).readline()
    if not line:
        raise _failed(rank, process)
    return RankLog.from_json(line)


def _failed(rank: int, process: Process) -> RunFailed:
    process.kill()
    said = (process.stderr.read() if process.stderr else "").strip().rpartition("\n")[2]
    return RunFailed(f"rank {rank} ended: {said or 'it said nothing'}")


def _stdout(process: Process) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def _tell(rank: int, process: Process, line: str) -> None:
    assert process.stdin is not None
    try:
        print(line, file=process.stdin, flush=True)
    except BrokenPipeError:
        raise _failed(rank, process) from None
