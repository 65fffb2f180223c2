"""The roles of the deployed pipeline as processes: `offbeat worker`, `offbeat sink`, `offbeat alert`."""

import json
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from local.service import LocalService
from schemas.tables import TABLES
from schemas.topic import Topic
from sinks.webhook.sink import WebhookSink
from streams.incidents import Incidents
from streams.monitor import Monitor
from streams.search import Search
from tests.integration.doomed import Fate
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


class Role(LocalService):
    """One role, always the same member of its group. ``start`` does not wait until it has its partitions.

    Each start takes the next of its ``fates``; one without is started as an operator would. ``fate`` is what awaits
    it now.
    """

    name = "role"
    stopped_within_s = 30.0

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
        doom = [sys.executable, "-m", "tests.integration.doomed", json.dumps(asdict(self.fate))]
        return [*doom, *self._arguments], self._environment

    def is_ready(self) -> bool:
        return True

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def last_words(self, lines: int = 8) -> str:
        state = "runs" if self.running else "has ended"
        return "\n".join([f"--- {self.folder.name} {state}; {self.log_path}:", *self.log().splitlines()[-lines:]])
