"""Who is paged: a receiver that remembers which pages it took."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.sinks.webhook.local_receiver import Answer, LocalReceiver, Received

FAILURE = Answer(500)


class OnCall:
    """Takes pages, unless it is told to answer otherwise or is away.

    ``failed`` counts the requests not taken, ``delayed`` those that were answered late, after ``slow_s``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: list[Received] = []
        self.instead: Answer | None = None
        self.slow_s = 0.0
        self.failed = 0
        self.delayed = 0
        self._receiver = LocalReceiver()
        self._receiver.always = self._answer

    @property
    def url(self) -> str:
        return self._receiver.url

    def away(self) -> None:
        self._receiver.away()

    def back(self) -> None:
        self._receiver.start()

    def taken(self, job: str) -> list[Received]:
        """The requests about a job that were answered with 200, in order."""
        with self._lock:
            return [request for request in self._taken if request.json["groupLabels"]["job"] == job]

    def _answer(self, request: Received) -> Answer:
        slow_s = self.slow_s
        time.sleep(slow_s)
        with self._lock:
            self.delayed += slow_s > 0
            if self.instead is not None:
                self.failed += 1
                return self.instead
            self._taken.append(request)
            return Answer()


@contextmanager
def on_call() -> Iterator[OnCall]:
    person = OnCall()
    try:
        yield person
    finally:
        person.away()
