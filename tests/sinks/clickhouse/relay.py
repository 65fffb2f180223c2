"""A TCP relay in front of a server: to lose its answers at a chosen moment, to hold them back, or to add TLS."""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

_CHUNK = 65_536


class Relay:
    """Forwards every connection to `port` on loopback, in threads of its own.

    With `lose_answers_after`, the first connection loses what the server says once the client has sent that many
    bytes; the others lose nothing. `sent` counts what clients have sent. With `tls`, they speak TLS to the relay.
    `delay_s` is how long each piece of an answer is held back from now on; `held` counts those that were.
    """

    def __init__(self, port: int, *, lose_answers_after: int | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._target = port
        self._lose_after = lose_answers_after
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.losing = threading.Event()
        self.delay_s = 0.0
        self.held = 0
        self.sent = 0

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for open_socket in (self._listener, *self._sockets):
            _shut(open_socket)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            lose_after, self._lose_after = self._lose_after, None
            try:
                client = self._tls.wrap_socket(client, server_side=True) if self._tls else client
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _shut(client)
                continue
            self._sockets += [client, server]
            for forward in (self._requests, self._answers):
                thread = threading.Thread(target=forward, args=(client, server, lose_after), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _requests(self, client: socket.socket, server: socket.socket, lose_after: int | None) -> None:
        def sent(chunk: bytes) -> bytes:
            self.sent += len(chunk)
            if lose_after is not None and self.sent >= lose_after:
                self.losing.set()
            return chunk

        _copy(client, server, sent)

    def _answers(self, client: socket.socket, server: socket.socket, lose_after: int | None) -> None:
        def passed(chunk: bytes) -> bytes:
            self.held += self.delay_s > 0
            time.sleep(self.delay_s)
            return b"" if lose_after is not None and self.losing.is_set() else chunk

        _copy(server, client, passed)


def _copy(source: socket.socket, sink: socket.socket, passed: Callable[[bytes], bytes]) -> None:
    """Copy what `passed` lets through until either side closes, then close both."""
    try:
        while chunk := source.recv(_CHUNK):
            sink.sendall(passed(chunk))
    except OSError:
        pass
    finally:
        _shut(source)
        _shut(sink)


def _shut(open_socket: socket.socket) -> None:
    try:
        open_socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        open_socket.close()
