"""Who is on call in a benchmark, and which pages never came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self

from structlog.testing import capture_logs

from diagnosis.job import Job
from schemas.message import Message
from sinks.webhook.alertmanager_webhook import AlertmanagerWebhook
from sinks.webhook.delivery import PageRefused
from sinks.webhook.receiver import Request
from sinks.webhook.sink import WebhookSink


class OnCall:
    """Takes every page. ``taken`` counts them by their idempotency key: incident and revision."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        person = self

        class Taking(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                person.taken[self.headers["Idempotency-Key"]] += 1
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing: stderr is for the benchmark's progress."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where pages are taken."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def newest(keys: Iterable[str]) -> dict[str, int]:
    """The newest revision of each incident or summary among idempotency keys."""
    found: dict[str, int] = {}
    for key in keys:
        incident, _, revision = key.rpartition("/")
        found[incident] = max(found.get(incident, 0), int(revision))
    return found


def due(incidents: Iterable[Message], jobs: Mapping[str, Job]) -> dict[str, int]:
    """The last revision of each incident or summary that the records of analysis.incidents ask to tell of.

    What is held back is decided by their order alone: the same step, told them again, tells the same.
    """
    noted = _Noted()
    sink = WebhookSink(AlertmanagerWebhook(), noted, _refuse, jobs=jobs)
    with capture_logs():  # nobody is paged here
        for message in incidents:
            sink.process(message)
        sink.flush()
    return newest(noted.keys)


def lost(asked: Mapping[str, int], taken: Iterable[str]) -> list[str]:
    """The incidents or summaries whose last revision nobody was told of."""
    told = newest(taken)
    return sorted(incident for incident, revision in asked.items() if told.get(incident, 0) < revision)


class _Noted:
    """Takes every request, and notes under which key it came."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def post(self, request: Request, key: str) -> None:
        self.keys.append(key)


def _refuse(_: Message, refusal: PageRefused) -> None:
    raise refusal
