"""A webhook receiver on loopback that can be away, answer anything, or hang."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver says to one request; ``body`` is written without a length when ``endless``."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    endless: bool = False


HANG = Answer(status=0)
"""Take the request and say nothing until the receiver is closed."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body, read."""
        read: dict[str, Any] = json.loads(self.body)
        return read

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self.headers["idempotency-key"]


class LocalReceiver:
    """Takes POSTs on a port of its own; ``answers`` are given in turn, then ``always``."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answers: deque[Answer] = deque()
        self.always: Callable[[Received], Answer] = lambda _: Answer()
        self._released = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        """Where it is, or would be while it is away."""
        return f"http://127.0.0.1:{self._port}/hook"

    @property
    def keys(self) -> list[str]:
        """The idempotency keys of everything received, in order."""
        return [request.key for request in self.received]

    def start(self) -> None:
        """Be there."""
        self._server = _Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def away(self) -> None:
        """Refuse connections."""
        if self._server is not None and self._thread is not None:
            self._released.set()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = None
            self._released.clear()

    def answer(self, request: Received) -> Answer:
        """Note a request and decide what to say."""
        self.received.append(request)
        return self.answers.popleft() if self.answers else self.always(request)

    def hang(self) -> None:
        """Wait until somebody closes the receiver."""
        self._released.wait()


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, address: tuple[str, int], receiver: LocalReceiver) -> None:
        self.receiver = receiver
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.receiver.answer(Received(self.path, headers, body))
        if answer is HANG:
            self.server.receiver.hang()
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if not answer.endless:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        if answer.endless:
            self.wfile.flush()
            self.server.receiver.hang()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""
