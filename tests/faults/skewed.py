"""A role as `offbeat` runs it, on a host whose wall clock jumps: nothing but Python's view of it does.

python -m tests.faults.skewed '{"every_s": ..., "by_s": ...}' worker search ...
"""

import json
import sys
import time
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Skew:
    """The wall clock is set by so much, and after as long set right again, and so on."""

    module: ClassVar[str] = "tests.faults.skewed"
    every_s: float
    by_s: float

    def install(self) -> None:
        """Replace Python's wall clock; to be called before anything else is imported."""
        steady, wall, wall_ns, began = time.monotonic, time.time, time.time_ns, time.monotonic()

        def wrong() -> bool:
            return (steady() - began) // self.every_s % 2 == 1

        time.time = lambda: wall() + (self.by_s if wrong() else 0.0)
        time.time_ns = lambda: wall_ns() + (int(self.by_s * 1e9) if wrong() else 0)


if __name__ == "__main__":
    Skew(**json.loads(sys.argv.pop(1))).install()
    from offbeat.cli import main

    main()
