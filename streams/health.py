"""Whether a worker moves, and the page that tells: /metrics for Prometheus, /live for whoever restarts workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from schemas.errors import SettingsError
from streams.share import Place

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class Progress:
    """Judges a worker by what it does: its cycle comes round, and messages that wait are taken.

    An answer of the process alone proves nothing: a stalled consumer leaves everything else alive.
    """

    def __init__(self, *, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_s = within_s
        self._clock = clock
        self._cycled_at = clock()
        self._ends: Mapping[Place, int] = {}
        self._waiting_since: float | None = None

    def cycled(self) -> None:
        """Outputs were delivered and offsets committed, as far as there were any."""
        self._cycled_at = self._clock()

    def took(self) -> None:
        """A batch of messages was processed."""
        self._waiting_since = None

    def looked(self, ends: Mapping[Place, int], following: Mapping[Place, int]) -> None:
        """The inputs end at ``ends`` and are processed up to ``following``: what came since the last look waits."""
        grown = any(end > self._ends.get(place, end) for place, end in ends.items() if following.get(place, 0) < end)
        if grown and self._waiting_since is None:
            self._waiting_since = self._clock()
        self._ends = ends

    def stuck(self) -> str | None:
        """Why the worker should be restarted; None: it moves."""
        now = self._clock()
        if now - self._cycled_at > self._within_s:
            return f"nothing delivered or committed for {now - self._cycled_at:.0f} s"
        if self._waiting_since is not None and now - self._waiting_since > self._within_s:
            return f"new messages have been waiting for {now - self._waiting_since:.0f} s"
        return None


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Probes come every few seconds: nobody reads them in a log."""


def serve(port: int, registry: CollectorRegistry, progress: Progress, *, host: str = "") -> int:
    """Serve /metrics and /live from a thread of its own; the port (``port`` 0: a free one).

    Raises ``SettingsError`` where the port cannot be had.
    """
    metrics = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != "/live":
            page: Iterable[bytes] = metrics(environ, start_response)
            return page
        stuck = progress.stuck()
        start_response("503 Service Unavailable" if stuck else "200 OK", [("Content-Type", "text/plain")])
        return [f"{stuck or 'ok'}\n".encode()]

    try:
        server = make_server(host, port, app, _Server, handler_class=_Silent)
    except OSError as error:
        raise SettingsError(
            f"port {port}, for /metrics and /live: {(error.strerror or str(error)).lower()}; give a free one with "
            "--health-port or OFFBEAT_WORKER__HEALTH_PORT"
        ) from error
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server.server_port
