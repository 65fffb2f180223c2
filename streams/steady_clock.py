"""The time that deadlines are set and met by: setting the host's clock moves none of them."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """The wall clock's time when it was made, ns since the epoch, and from then on what has passed since."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, passed_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._passed_ns = passed_ns
        self._began_ns = wall_ns() - passed_ns()

    def __call__(self) -> int:
        return self._began_ns + self._passed_ns()
