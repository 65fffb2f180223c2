"""ClickHouse as a server on loopback, from the engine that chdb-core carries.

An unsupported use of that engine, for tests and for trying things out, not for production: a deployment runs
ClickHouse itself.
"""

import http.client
import importlib.util
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from xml.sax.saxutils import escape

from local.service import LOOPBACK, LocalService, LocalServiceError, ServiceUnavailable, free_ports, is_free

_HERE = Path(__file__).parent


class LocalClickHouse(LocalService):
    """A ClickHouse server: native TCP and HTTP, one user with a password, everything in `folder`.

    `port` is the native one; a free one if it is not given, as a new password is made.
    It has no orderly shutdown: SIGTERM ends it as abruptly as SIGKILL. Either keeps every acknowledged row.
    """

    name = "clickhouse"
    host = LOOPBACK
    user = "offbeat"

    def __init__(self, folder: Path | None = None, port: int | None = None, password: str | None = None) -> None:
        super().__init__(folder)
        free_port, self.http_port = free_ports(2)
        self.tcp_port = free_port if port is None else port
        self.password = secrets.token_urlsafe(12) if password is None else password

    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        if importlib.util.find_spec("chdb") is None:
            raise ServiceUnavailable("chdb-core is not installed: make setup")
        if not is_free(self.tcp_port):
            raise LocalServiceError(f"port {self.tcp_port} on {LOOPBACK} is taken: give ClickHouse another one")
        # The engine reads its configuration from this place in the home folder, and from nowhere else.
        config = self.folder / ".clickhouse-local"
        config.mkdir(mode=0o700, exist_ok=True)  # the password is in it
        for name in ("config.xml", "users.xml"):
            text = Template((_HERE / name).read_text()).substitute(
                tcp_port=self.tcp_port,
                http_port=self.http_port,
                folder=config,
                user=self.user,
                password=escape(self.password),
            )
            (config / name).write_text(text)
        return [sys.executable, _HERE / "serve.py", self.folder / "data"], {**os.environ, "HOME": str(self.folder)}

    def is_ready(self) -> bool:
        """Whether the HTTP port, which opens after the native one, knows this server's password."""
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=2)
        try:
            headers = {"X-ClickHouse-User": self.user, "X-ClickHouse-Key": self.password}
            connection.request("GET", "/?query=SELECT%201", headers=headers)
            return connection.getresponse().read() == b"1\n"
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
