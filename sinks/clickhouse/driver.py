"""The store on a server: ClickHouse over native TCP, through clickhouse-driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import structlog
import tenacity
from clickhouse_driver.errors import (
    Error,
    ErrorCodes,
    NetworkError,
    ServerException,
    SocketTimeoutError,
    UnknownTypeError,
)

from schemas.errors import StoreError
from sinks.clickhouse.arrow_client import ArrowClient
from sinks.clickhouse.reason import reason
from sinks.clickhouse.store import INSERT_SETTINGS, Parameters, Settings, insertable, parameter_text

T = TypeVar("T")

_log = structlog.get_logger(__name__)
# The driver prints a traceback for each attempt to connect; a retry says the same in a line.
logging.getLogger("clickhouse_driver.connection").setLevel(logging.ERROR)

_PASSING = frozenset(
    {
        ErrorCodes.TOO_MANY_SIMULTANEOUS_QUERIES,
        ErrorCodes.ABORTED,
        ErrorCodes.MEMORY_LIMIT_EXCEEDED,
        ErrorCodes.TABLE_IS_READ_ONLY,
        ErrorCodes.TOO_MANY_PARTS,
        ErrorCodes.UNKNOWN_STATUS_OF_INSERT,
        ErrorCodes.KEEPER_EXCEPTION,
    }
)
"""Answers of the server that another attempt may not get."""

_CONNECTION = (NetworkError, SocketTimeoutError, OSError, EOFError)
"""What the driver raises when the server is away, dies or falls silent."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, who asks, and how long it may take.

    With ``secure`` the server's certificate is checked against ``ca_certificates`` (None: those of certifi);
    ``certificate`` and ``key`` are the client's own. ``compression`` is worth its time between machines.
    """

    host: str = "localhost"
    port: int = 9000
    database: str = "default"
    user: str = "default"
    password: str = field(default="", repr=False)
    secure: bool = False
    verify: bool = True
    ca_certificates: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    compression: bool = False
    connect_within_s: float = 5.0
    answer_within_s: float = 120.0

    def __str__(self) -> str:
        return f"ClickHouse at {self.host}:{self.port} (database {self.database}, user {self.user})"


class DriverStore:
    """A database on a ClickHouse server. It connects with the first statement, and again when it has to.

    What fails for a reason that may pass (no connection, a server that is overloaded or restarts) is tried again
    for ``retry_for_s``; an insert under its token, so that it is stored once.
    """

    def __init__(self, address: ServerAddress, *, retry_for_s: float = 60.0) -> None:
        self.address = address
        self._client = ArrowClient(address.host, **_options(address))
        self._one_at_a_time = threading.Lock()  # a connection carries one statement
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            stop=tenacity.stop_after_delay(retry_for_s),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=5.0),
            before_sleep=self._say_retry,
            reraise=True,
        )

    def execute(self, sql: str, params: Parameters | None = None) -> None:
        """See ``Store.execute``."""
        self.query(sql, params)

    def query(self, sql: str, params: Parameters | None = None, settings: Settings | None = None) -> pa.Table:
        """See ``Store.query``."""
        texts = {name: _Parameter(parameter_text(value)) for name, value in (params or {}).items()}
        return self._try(lambda: self._client.query_table(sql, texts, settings or {}))

    def insert(self, table: str, data: pa.Table | pa.RecordBatch, token: str) -> None:
        """See ``Store.insert``."""
        batch = insertable(data)
        if batch.num_rows:
            columns = ", ".join(f"`{name}`" for name in batch.schema.names)
            sql = f"INSERT INTO {table} ({columns}) VALUES"
            settings = {**INSERT_SETTINGS, "insert_deduplication_token": token}
            self._try(lambda: self._client.insert_batch(sql, batch, settings))

    def close(self) -> None:
        """See ``Store.close``."""
        self._client.disconnect()

    def _try(self, attempt: Callable[[], T]) -> T:
        try:
            with self._one_at_a_time:
                return self._retrying(attempt)
        except _CONNECTION as error:
            raise StoreError(
                f"{self.address} cannot be reached: {_said(error)}; see that it runs and listens there"
            ) from error
        except UnknownTypeError as error:
            raise StoreError(f"{self.address}: {_said(error)}; wrap that column in toString(...)") from error
        except Error as error:
            raise StoreError(f"{self.address}: {_said(error)}") from error

    def _say_retry(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning(
            "store is tried again",
            store=str(self.address),
            attempt=state.attempt_number,
            in_s=round(state.upcoming_sleep, 1),
            error=_said(error) if error else None,
        )


class _Parameter:
    """A parameter that the driver takes as it is: it quotes what is no string of its own, and escapes nothing."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\\", "\\\\").replace("'", "\\'")

    def __str__(self) -> str:
        return self._text


def _options(address: ServerAddress) -> dict[str, Any]:
    files = {"ca_certs": address.ca_certificates, "certfile": address.certificate, "keyfile": address.key}
    return {
        "port": address.port,
        "database": address.database,
        "user": address.user,
        "password": address.password,
        "client_name": "offbeat",
        "secure": address.secure,
        "verify": address.verify,
        **{name: str(path) for name, path in files.items() if path is not None},
        "connect_timeout": address.connect_within_s,
        "send_receive_timeout": address.answer_within_s,
        "compression": "lz4" if address.compression else False,
        # Servers answer compressed queries with zstd unless told; the driver knows lz4.
        "settings": {"network_compression_method": "lz4"} if address.compression else {},
    }


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, ServerException):
        return error.code in _PASSING
    return isinstance(error, _CONNECTION)


def _said(error: BaseException) -> str:
    return reason(getattr(error, "message", None) or str(error) or type(error).__name__)
