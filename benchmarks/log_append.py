"""What logging an operator costs the training process (Holmes 4.2.1: below 2 us, 0.064 to 0.19 % of an iteration).

The process computes between operators, as training does, so that each append finds caches that were used for other
things; an agent in a process of its own reads the rings meanwhile. The same loop runs with and without logging, by
turns, an iteration each.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat.operator_log import OperatorLog
from producers.live.registration import DEFAULT_FOLDER

if TYPE_CHECKING:  # loaded when it begins
    import numpy as np
    from numpy.typing import NDArray

_LOOK_EVERY_S = 0.1
_ROWS = 64
"""Of the matrices: so small that BLAS multiplies them in this thread. Others of its threads would spin on for a while
and take the processor from whatever comes next."""


def run(
    *,
    iterations: Annotated[int, typer.Option(help="Iterations with logging, and as many without.", min=2)] = 20,
    operators: Annotated[int, typer.Option(help="Operators an iteration.", min=1)] = 200,
    products: Annotated[int, typer.Option(help="Matrix products between two operators.", min=1)] = 16,
) -> dict[str, Any]:
    """Measure what logging costs a process that computes.

    An append is ``begin`` and ``end`` together. The time that it takes to read the clock is in it, and on a machine
    with other work the time that this process did not run. The share is that of medians.
    """
    import numpy as np

    draw = np.random.default_rng(0)
    one, other = draw.random((products, _ROWS, _ROWS)), draw.random((_ROWS, _ROWS))
    plain_s, logged_s, appends = [], [], []
    parent = DEFAULT_FOLDER.parent if DEFAULT_FOLDER.parent.is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=parent) as folder,
        _agent(Path(folder)),
        OperatorLog(rank=0, job="bench", world=1, folder=Path(folder) / "rings") as log,
    ):
        for iteration in range(iterations + 1):
            plain, _ = _iteration(None, operators, one, other)
            log.iteration(iteration)
            logged, taken = _iteration(log, operators, one, other)
            if iteration:  # the first one warms up
                plain_s.append(plain)
                logged_s.append(logged)
                appends.append(taken)
        dropped = log.dropped
    append_ns = np.concatenate(appends)
    return {
        "appends": len(append_ns),
        "dropped": dropped,
        "append_ns": {
            "median": int(np.median(append_ns)),
            "p99": int(np.percentile(append_ns, 99)),
            "max": int(append_ns.max()),
        },
        "append_ns_back_to_back": _back_to_back(),
        "iteration_ms": {
            "without": round(statistics.median(plain_s) * 1e3, 3),
            "with": round(statistics.median(logged_s) * 1e3, 3),
        },
        "share_of_iteration": round(float(np.median(append_ns)) * operators / 1e9 / statistics.median(logged_s), 6),
        "aim_ns": 2000,
        "load_per_processor": round(os.getloadavg()[0] / (os.cpu_count() or 1), 2),
    }


def _iteration(
    log: OperatorLog | None, operators: int, one: NDArray[np.float64], other: NDArray[np.float64]
) -> tuple[float, NDArray[np.int64]]:
    """Seconds that an iteration took, and nanoseconds that each append in it did."""
    import numpy as np

    clock = time.perf_counter_ns
    taken = np.zeros(operators if log else 0, dtype=np.int64)
    started = clock()
    for number in range(operators):
        np.matmul(one, other)
        if log is not None:
            before = clock()
            log.end(log.begin("tensor", "all_reduce", 1 << 20, phase="forward", microbatch=0))
            taken[number] = clock() - before
    return (clock() - started) / 1e9, taken


def _back_to_back(appends: int = 10_000) -> int:
    """Nanoseconds an append where nothing comes between, the median of ten rounds."""
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        log = OperatorLog(rank=0, job="bench", world=1, folder=Path(folder), capacity=11 * appends)
        for _ in range(11):
            started = time.perf_counter_ns()
            for _ in range(appends):
                log.end(log.begin("tensor", "all_reduce", 1 << 20, phase="forward", microbatch=0))
            rounds.append((time.perf_counter_ns() - started) // appends)
        log.close()
    return int(statistics.median(rounds[1:]))


@contextmanager
def _agent(folder: Path) -> Iterator[None]:
    """An agent of the rings in a folder, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ready, over = context.Event(), context.Event()
    process = context.Process(target=_read_rings, args=(folder, ready, over))
    process.start()
    try:
        ready.wait()
        yield
    finally:
        over.set()
        process.join()


def _read_rings(folder: Path, ready: Event, over: Event) -> None:
    from producers.live.host import Host

    host = Host(folder / "rings", folder / "kept", 1 << 30, lambda _: None, lambda job: job.ranks)
    ready.set()
    while not over.wait(_LOOK_EVERY_S):
        list(host.step())
