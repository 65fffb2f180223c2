"""The deployed pipeline as processes: `offbeat worker`, `offbeat sink`, `offbeat alert`, and `offbeat produce`."""

import json
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import Field, asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from local.service import LocalService
from schemas.tables import TABLES
from schemas.topic import Topic
from sinks.webhook.sink import WebhookSink
from streams.compare import Compare
from streams.incidents import Incidents
from streams.monitor import Monitor
from streams.search import Search
from streams.segment import Segment
from tests.integration.recordings import Recorded
from tests.offbeat.command_line import command


@dataclass(frozen=True)
class Kind:
    """How a role is started, and what it reads."""

    arguments: tuple[str, ...]
    reads: tuple[Topic, ...]


KINDS = {
    "monitor": Kind(("worker", "monitor"), Monitor.reads),
    "search": Kind(("worker", "search"), Search.reads),
    "incidents": Kind(("worker", "incidents"), Incidents.reads),
    "store": Kind(("sink",), tuple(table.topic for table in TABLES.values())),
    "page": Kind(("alert",), WebhookSink.reads),
}
"""By the name of the role's consumer group, in the order in which evidence passes them."""

TRAFFIC_KINDS = {
    "segment": Kind(("worker", "segment"), Segment.reads),
    "compare": Kind(("worker", "compare"), Compare.reads),
}
"""The same of those that look at NIC traffic, of which the logs of operators tell nothing."""


class Fate(Protocol):
    """What awaits a role: the module that runs it so, and a dataclass of what it is told."""

    module: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class Process(LocalService):
    """A process that says what it does in its log; ``start`` does not wait for what it says."""

    name = "process"
    stopped_within_s = 30.0

    def is_ready(self) -> bool:
        return True

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def last_words(self) -> str:
        state = "runs" if self.running else "has ended"
        return "\n".join(
            [f"--- {self.folder.name} {state}; the end of {self.log_path}:", *self.log().splitlines()[-8:]]
        )


class Role(Process):
    """One role, always the same member of its group.

    Each start takes the next of its ``fates``; one without is started as an operator would. ``fate`` is what awaits
    it now.
    """

    def __init__(self, kind: Kind, environment: Mapping[str, str], folder: Path) -> None:
        super().__init__(folder)
        self._arguments = (*kind.arguments, "--instance", folder.name)
        self._environment = environment
        self.fates: deque[Fate] = deque()
        self.fate: Fate | None = None

    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        self.fate = self.fates.popleft() if self.fates else None
        if self.fate is None:
            return command(*self._arguments), self._environment
        doom = [sys.executable, "-m", self.fate.module, json.dumps(asdict(self.fate))]
        return [*doom, *self._arguments], self._environment


class Producer(Process):
    """`offbeat produce`: a recording's log agents, which answer requests until they are stopped.

    ``started_ns`` is when it was last started. With ``iteration_s`` it takes that long for each iteration.
    """

    def __init__(
        self, recorded: Recorded, environment: Mapping[str, str], folder: Path, *, iteration_s: float = 0.0
    ) -> None:
        super().__init__(folder)
        self.recorded = recorded
        self.started_ns = 0
        arguments = ["produce", "--recording", str(recorded.folder), "--follow"]
        pace = [sys.executable, "-m", "tests.integration.paced", str(iteration_s), *arguments]
        self._command = pace if iteration_s else command(*arguments)
        self._environment = environment

    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        self.started_ns = time.time_ns()
        return self._command, self._environment
