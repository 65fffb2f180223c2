"""Who is paged: a receiver that remembers which pages it took."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.sinks.webhook.local_receiver import Answer, LocalReceiver, Received

Pages = dict[str, list[tuple[int, str]]]
"""Revision and status of each page, in the order in which they came, by incident."""


class OnCall:
    """Takes pages, unless it is told to fail or is away. ``failed`` counts the requests that it did not take."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: list[Received] = []
        self.failing = False
        self.failed = 0
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

    def heard(self, job: str) -> Pages:
        """What those requests said."""
        pages: Pages = {}
        for request in self.taken(job):
            incident, _, revision = request.key.rpartition("/")
            pages.setdefault(incident, []).append((int(revision), request.json["status"]))
        return pages

    def _answer(self, request: Received) -> Answer:
        with self._lock:
            if self.failing:
                self.failed += 1
                return Answer(500)
            self._taken.append(request)
            return Answer()


@contextmanager
def on_call() -> Iterator[OnCall]:
    person = OnCall()
    try:
        yield person
    finally:
        person.away()
