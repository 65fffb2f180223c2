"""Whether a worker moves, and the page that tells: /metrics for Prometheus, /live for whoever restarts workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from schemas.errors import SettingsError
from streams.share import Place

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


@dataclass(frozen=True, slots=True)
class Position:
    """Where an input stands: its end, the next offset to be processed, and the committed one. Only up to ``safe`` is it
    to be committed, if that is given: a processor waits for others, or what it follows goes on.
    """

    end: int
    following: int
    committed: int
    safe: int | None = None

    @property
    def due(self) -> int:
        """The offset that is to be committed."""
        return self.following if self.safe is None else self.safe


@dataclass(frozen=True, slots=True)
class _Standstill:
    """An offset that ought to move, and since when it has not."""

    offset: int
    since: float


class Progress:
    """Judges a worker by what it does: its cycle comes round, and while there is lag offsets move.

    An answer of the process alone proves nothing: a stalled consumer leaves everything else alive. What waits must be
    taken, and what is due must be committed, of each input by itself.
    """

    def __init__(self, *, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_s = within_s
        self._clock = clock
        self._cycled_at = clock()
        self._taking: Mapping[Place, _Standstill] = {}
        self._committing: Mapping[Place, _Standstill] = {}

    def cycled(self) -> None:
        """Outputs were delivered and offsets committed, as far as there were any."""
        self._cycled_at = self._clock()

    def looked(self, positions: Mapping[Place, Position]) -> None:
        """The inputs of this worker stand there."""
        behind = {place: at.following for place, at in positions.items() if at.following < at.end}
        uncommitted = {place: at.committed for place, at in positions.items() if at.committed < at.due}
        now = self._clock()
        self._taking = _standstills(self._taking, behind, now)
        self._committing = _standstills(self._committing, uncommitted, now)

    def stuck(self) -> str | None:
        """Why the worker should be restarted; None: it moves."""
        now = self._clock()
        if now - self._cycled_at > self._within_s:
            return f"nothing delivered or committed for {now - self._cycled_at:.0f} s"
        for standstills, what in (
            (self._taking, "messages wait, and none was taken"),
            (self._committing, "messages were processed, and no offset was committed"),
        ):
            for (topic, partition), standstill in standstills.items():
                if now - standstill.since > self._within_s:
                    return f"{topic} partition {partition}: {what} for {now - standstill.since:.0f} s"
        return None


def _standstills(
    before: Mapping[Place, _Standstill], offsets: Mapping[Place, int], now: float
) -> Mapping[Place, _Standstill]:
    return {
        place: before[place] if place in before and before[place].offset == offset else _Standstill(offset, now)
        for place, offset in offsets.items()
    }


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Probes come every few seconds: nobody reads them in a log."""


def serve(port: int, registry: CollectorRegistry, progress: Progress, *, host: str = "127.0.0.1") -> int:
    """Serve /metrics and /live from a thread of its own; the port (``port`` 0: a free one).

    Raises ``SettingsError`` where the port cannot be had.
    """
    metrics = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            page: Iterable[bytes] = metrics(environ, start_response)
            return page
        if path != "/live":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"there are /metrics and /live\n"]
        stuck = progress.stuck()
        start_response("503 Service Unavailable" if stuck else "200 OK", [("Content-Type", "text/plain")])
        return [f"{stuck or 'ok'}\n".encode()]

    try:
        server = make_server(host, port, app, _Server, handler_class=_Silent)
    except OSError as error:
        raise SettingsError(
            f"port {port} of {host or 'all addresses'}, for /metrics and /live: "
            f"{(error.strerror or str(error)).lower()}; give a free one with --health-port or "
            "OFFBEAT_WORKER__HEALTH_PORT, and an address of this host with OFFBEAT_WORKER__HEALTH_HOST"
        ) from error
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server.server_port
