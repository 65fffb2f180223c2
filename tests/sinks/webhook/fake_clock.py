"""Time that passes only when somebody sleeps."""

from __future__ import annotations

from collections.abc import Callable


class FakeClock:
    """Seconds; ``waits`` lists what was slept, ``while_asleep`` is called in each."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now
        self.waits: list[float] = []
        self.while_asleep: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def now_ns(self) -> int:
        """The same as nanoseconds."""
        return int(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.waits.append(seconds)
        self.now += seconds
        self.while_asleep()
