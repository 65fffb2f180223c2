"""A role as `offbeat` runs it, but for one blow of fate that production code knows nothing of.

python -m tests.integration.doomed '{"job": ..., "topic": ..., "records": ..., "end": ...}' worker monitor ...
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar
from unittest import mock

from offbeat.cli import main
from schemas.message import Message
from streams.share import Place, Share

BROKEN = "this role is broken"


class End(StrEnum):
    """What befalls a role."""

    OUTPUTS_SAFE = "killed when its outputs are safe and its states are not"
    DELIVERED = "killed when it has delivered and has not saved what"
    ALL_SAFE = "killed when all is safe and nothing is committed"
    ERROR = "ended by an error at the next record"


@dataclass(frozen=True)
class Fate:
    """A role's end, once it has taken or published so many records of a topic that tell of a job."""

    module: ClassVar[str] = "tests.integration.doomed"
    job: str
    topic: str
    records: int
    end: End


class DoomedShare(Share):
    """Works like any share until its fate is due; what comes then is left alone, for it will not be committed."""

    def __init__(self, fate: Fate, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._fate = fate
        self._left = fate.records
        self._saves = 0

    def take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if not self._due():
                super().take([message])
                self._count(message)
            elif self._fate.end is End.ERROR:
                raise RuntimeError(BROKEN)

    def deliver(self, now_ns: int) -> dict[Place, int]:
        self._saves = 0
        offsets = super().deliver(now_ns)
        if self._due() and self._fate.end is End.ALL_SAFE:
            _die()
        return offsets

    def _save_states(self) -> None:
        self._saves += 1
        if self._due() and self._fate.end is {1: End.OUTPUTS_SAFE, 2: End.DELIVERED}[self._saves]:
            _die()
        super()._save_states()

    def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._count(message)
        super()._send(messages)

    def _due(self) -> bool:
        return self._left <= 0

    def _count(self, message: Message) -> None:
        self._left -= (message.topic, message.job) == (self._fate.topic, self._fate.job)


def _die() -> None:
    """As if the power had gone."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    written = json.loads(sys.argv.pop(1))
    fate = Fate(**{**written, "end": End(written["end"])})
    with mock.patch("streams.worker.Share", partial(DoomedShare, fate)):
        main()
