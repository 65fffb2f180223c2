"""What roles log while all goes well."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from offbeat.telling import TellingOutbox, TellingStore
from schemas.message import Message
from schemas.metrics import STORED_ROWS
from sinks.clickhouse.chdb import ChdbStore
from tests.offbeat.test_answer import incident, iteration


class Outbox:
    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.flushed = 0

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def flush(self) -> None:
        self.flushed += 1


def told(*messages: Message) -> Sequence[Mapping[str, Any]]:
    inner = Outbox()
    outbox = TellingOutbox(inner)
    with capture_logs() as logs:
        for message in messages:
            outbox.send(message)
        outbox.flush()
    assert (inner.sent, inner.flushed) == ([*messages], 1)
    return logs


def test_an_incident_is_told_of_with_what_it_is() -> None:
    assert told(iteration(3, [10]), incident()) == [
        {
            "event": "incident opened",
            "log_level": "info",
            "job": "j",
            "incident": "i1",
            "what": "compute_slow: rank 2 (gpu:h0/2)",
            "iterations": [4, 9],
            "pattern": "persistent_degradation",
        }
    ]


def test_a_revision_is_told_of_once() -> None:
    logs = told(
        incident(),
        incident(last_iteration=12),
        incident(revision=2, ranks=[2, 3]),
        incident(id="i2"),
        incident(revision=3, state="resolved"),
    )
    assert [(log["event"], log["incident"]) for log in logs] == [
        ("incident opened", "i1"),
        ("incident changed", "i1"),
        ("incident opened", "i2"),
        ("incident resolved", "i1"),
    ]


class Store(ChdbStore):
    """Counts what would be stored."""

    def __init__(self) -> None:
        self.inserted: list[str] = []
        self.closed = False

    def insert(self, table: str, data: pa.Table | pa.RecordBatch, token: str) -> None:
        self.inserted.append(token)

    def close(self) -> None:
        self.closed = True


def rows(count: int) -> pa.Table:
    return pa.table({"x": range(count)})


@pytest.fixture
def store() -> Store:
    return Store()


def test_rows_are_told_of_together(store: Store) -> None:
    now = [0.0]
    figures = CollectorRegistry()
    telling = TellingStore(store, STORED_ROWS.made(figures), every_s=60, clock=lambda: now[0])
    with capture_logs() as logs:
        telling.insert("findings", rows(2), "a")
        for second in range(1, 60):
            now[0] = second
            telling.insert("comm_ops", rows(10), f"b{second}")
        assert [log["event"] for log in logs] == ["rows stored"]
        now[0] = 60
        telling.insert("findings", rows(1), "c")
        telling.insert("findings", rows(5), "d")
        telling.close()
        telling.close()
    counts = [{name: log[name] for name in ("findings", "comm_ops") if name in log} for log in logs]
    assert counts == [{"findings": 2}, {"comm_ops": 590, "findings": 1}, {"findings": 5}]
    assert (len(store.inserted), store.closed) == (62, True)
    assert figures.get_sample_value("offbeat_stored_rows_total", {"table": "findings"}) == 8
