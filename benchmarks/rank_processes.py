"""Ranks as processes, each in a network namespace: started, told to go at once, and awaited together.

A rank's program reads its plan from the first line of its input (``told_plan``), says when it is ready
(``await_go``), and ends with a line that says what came out. It ends at once where whoever started it is gone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from io import FileIO
from typing import IO

from benchmarks.network import Namespace
from schemas.errors import OffbeatError

_READY, _GO = "ready", "go"

Process = subprocess.Popen[str]


class RunFailed(OffbeatError):
    """A rank did not come to its end; the message says which, and what it said last."""


@contextmanager
def rank_processes(
    program: str, namespaces: Sequence[Namespace], plan: str, *arguments: str
) -> Iterator[list[Process]]:
    """A process for each rank that runs a module, all of them ready and told to go; they are killed in the end.

    Each is told the line ``plan``; its arguments are its rank and those given here. Raises ``RunFailed``.
    """
    processes: list[Process] = []
    try:
        for rank, namespace in enumerate(namespaces):
            process = namespace.call(partial(_started, program, str(rank), *arguments))
            processes.append(process)
            _tell(rank, process, plan)
        for rank, process in enumerate(processes):
            if _stdout(process).readline().strip() != _READY:
                raise _failed(rank, process)
        for rank, process in enumerate(processes):
            _tell(rank, process, _GO)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def last_lines(processes: Sequence[Process], longest_s: float) -> list[str]:
    """What each rank says in the end. One that fails is not awaited by the others, who would wait for it.

    Raises ``RunFailed`` where one fails, or they do not end in time.
    """
    with ThreadPoolExecutor(len(processes)) as threads:
        lines = [threads.submit(_last_line, rank, process) for rank, process in enumerate(processes)]
        done, waiting = wait(lines, longest_s, FIRST_EXCEPTION)
        if waiting:
            for process in processes:
                process.kill()
            failed = [error for each in done if (error := each.exception()) is not None]
            raise failed[0] if failed else RunFailed(f"{len(waiting)} ranks did not end in {longest_s:.0f} s")
        return [each.result() for each in lines]


def told_plan() -> tuple[str, int]:
    """In a rank's process: the plan that it was told, and its rank."""
    return sys.stdin.readline(), int(sys.argv[1])


def await_go() -> None:
    """In a rank's process: say that it is ready, and wait until all are.

    Raises ``ConnectionError`` where nobody says when to begin. From then on the process ends where a thread of it
    fails, as the others would wait for it, and where whoever started it is gone.
    """
    print(_READY, flush=True)
    if sys.stdin.readline().strip() != _GO:
        raise ConnectionError("nobody says when to begin")
    threading.excepthook = _leave_at_once
    threading.Thread(target=leave_with_parent, daemon=True).start()


def leave_with_parent() -> None:
    """End where the other end of standard input is gone: nobody waits for this rank any more."""
    FileIO(0, closefd=False).readall()  # unlike sys.stdin it holds no lock that the interpreter wants when it ends
    os._exit(1)


def _leave_at_once(failed: threading.ExceptHookArgs) -> None:
    print(f"{failed.exc_type.__name__}: {failed.exc_value}", file=sys.stderr, flush=True)
    os._exit(1)


def _started(program: str, *arguments: str) -> Process:
    command = [sys.executable, "-m", program, *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def _last_line(rank: int, process: Process) -> str:
    line = _stdout(process).readline()
    if not line:
        raise _failed(rank, process)
    return line


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
