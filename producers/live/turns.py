"""A lock that two threads take in turn."""

from __future__ import annotations

import threading
from types import TracebackType


class Turns:
    """A lock that whoever waits for it gets next, though its owner wants it again at once. Not re-entrant.

    A plain lock may go to the same thread again and again: it asks while the other one is still waking up.
    """

    def __init__(self) -> None:
        self._next = threading.Lock()
        self._taken = threading.Lock()

    def __enter__(self) -> None:
        with self._next:  # held by whoever waits, so that nobody asks before it
            self._taken.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._taken.release()
