"""Processes that work side by side and end with the one that started them, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from offbeat import terminal

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

_ORPHANED = 1


def results(work: Callable[[_Task], _Result], tasks: Sequence[_Task], processes: int) -> Iterator[_Result]:
    """What becomes of the tasks, as they are done; what a task raises is raised here."""
    if processes == 1 or len(tasks) < 2:
        yield from map(work, tasks)
        return
    # A new interpreter each: Arrow's and BLAS' threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_end_with_parent) as pool:
        futures = [pool.submit(work, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def all_results(what: str, work: Callable[[_Task], _Result], tasks: Sequence[_Task], processes: int) -> list[_Result]:
    """The same as a list; ``what`` they are is told while they are done."""
    found: list[_Result] = []
    with terminal.progress(what, len(tasks)) as shown:
        for one in results(work, tasks, processes):
            found.append(one)
            shown.advance(len(found))
    return found


def _end_with_parent() -> None:
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(_ORPHANED)
