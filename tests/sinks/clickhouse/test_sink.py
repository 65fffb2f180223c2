"""The sink: what it takes is stored once flushed, once, whatever repeats."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from schemas.catalogue import COMM_OPS, FINDINGS, INCIDENTS, ITERATIONS, OPERATORS, TRAFFIC_METRICS
from schemas.errors import ImpossibleValue, StoreError, UndecodableMessage
from schemas.message import Message, encode
from schemas.processor import Processor, Sink
from schemas.tables import TABLES
from sinks.clickhouse.chdb import ChdbStore
from sinks.clickhouse.migrate import migrate
from sinks.clickhouse.rows import by_partition, stored_rows
from sinks.clickhouse.sink import ClickHouseSink
from sinks.clickhouse.store import Store
from tests.sinks.clickhouse.samples import (
    JOB,
    START_NS,
    at,
    comm_ops,
    finding,
    findings,
    incident,
    incidents,
    iterations,
    message,
    story,
)

DAY_NS = 86_400 * 10**9


class Recorder:
    """A store that notes inserts and fails on demand."""

    def __init__(self) -> None:
        self.inserts: list[tuple[str, int, str]] = []
        self.failing = False

    def execute(self, sql: str, params: object = None) -> None:
        raise AssertionError(sql)

    def query(self, sql: str, params: object = None, settings: object = None) -> pa.Table:
        raise AssertionError(sql)

    def insert(self, table: str, data: pa.Table | pa.RecordBatch, token: str) -> None:
        if self.failing:
            raise StoreError("away")
        self.inserts.append((table, data.num_rows, token))

    def close(self) -> None:
        raise AssertionError("not mine")


def count(store: Store, table: str) -> int:
    found: int = store.query(f"SELECT count() AS n FROM {table} FINAL").column("n")[0].as_py()
    return found


def test_it_is_a_sink_of_what_tables_hold() -> None:
    sink = ClickHouseSink(Recorder())
    assert isinstance(sink, Processor)
    assert isinstance(sink, Sink)
    assert sink.name == "store"
    assert set(sink.reads) == {ITERATIONS, FINDINGS, INCIDENTS, COMM_OPS, OPERATORS, TRAFFIC_METRICS}
    assert sink.writes == ()
    assert COMM_OPS not in ClickHouseSink(Recorder(), comm_ops=False).reads


def test_what_it_takes_is_stored(migrated: Store) -> None:
    sink = ClickHouseSink(migrated)
    for one in story():
        assert list(sink.process(one)) == []
    assert count(migrated, "findings") == 0
    sink.flush()
    assert count(migrated, "iterations") == len(iterations())
    assert count(migrated, "comm_ops") == len(comm_ops())
    assert count(migrated, "findings") == len(findings())
    assert count(migrated, "incidents") == len({row["id"] for row in incidents()})

    stored = migrated.query("SELECT * FROM findings FINAL ORDER BY id").to_pylist()
    assert {row["job"] for row in stored} == {JOB}
    told = {**finding(0), "job": JOB, "found_at": stored[0]["found_at"], "last_record_at": stored[0]["last_record_at"]}
    assert stored[0] == {name: value for name, value in told.items() if name not in {"found_ns", "last_record_ns"}}
    assert stored[0]["found_at"].value == finding(0)["found_ns"]  # to the nanosecond
    nulls = dict.fromkeys(("phase", "pipeline_stage", "microbatch", "op"))
    assert stored[13]["stage"] == nulls
    assert stored[13]["evidence"]["operator_ns"] == []


@pytest.mark.parametrize("inserts", ["one", "several"])
def test_the_highest_revision_of_an_incident_counts_in_whatever_order_they_come(migrated: Store, inserts: str) -> None:
    revisions = [incident(revision=2, lost_ns=2), incident(revision=1, lost_ns=1)]
    sink = ClickHouseSink(migrated)
    for offset, row in enumerate([*revisions, incident(revision=2, lost_ns=3)]):
        sink.process(message(INCIDENTS, [row], offset))
        if inserts == "several":
            sink.flush()
    sink.flush()
    answer = migrated.query("SELECT revision, lost_ns FROM incidents FINAL")
    assert answer.to_pylist() == [{"revision": 2, "lost_ns": 3}]


def test_the_newest_word_on_a_finding_counts(migrated: Store) -> None:
    sink = ClickHouseSink(migrated)
    early, late = finding(0), finding(0, active=False, found_ns=finding(0)["found_ns"] + 1)
    for offset, row in enumerate([late, early]):
        sink.process(message(FINDINGS, [row], offset))
        sink.flush()
    assert migrated.query("SELECT active FROM findings FINAL").to_pylist() == [{"active": False}]


@pytest.mark.parametrize("inserts", ["one", "several"])
def test_an_operator_that_comes_with_another_answer_is_one_row(migrated: Store, inserts: str) -> None:
    rows = comm_ops()
    unknown = [{**row, "seq": None, "call_order": None, "peer": None} for row in rows[:8]]
    sink = ClickHouseSink(migrated)
    for offset, part in enumerate([rows[:40], rows[20:], unknown, unknown[3:]]):
        sink.process(message(COMM_OPS, part, offset))
        if inserts == "several":
            sink.flush()
    sink.flush()
    assert count(migrated, "comm_ops") == len(rows) + len(unknown)


def test_a_replay_cut_differently_leaves_the_same_rows(migrated: Store) -> None:
    messages = [message(ITERATIONS, iterations()[row : row + 5], row // 5) for row in range(0, 80, 5)]
    for cuts in ([16], [3, 7, 16], [1, 16]):
        sink = ClickHouseSink(migrated)
        for one in messages:
            sink.process(one)
            if one.offset + 1 in cuts:
                sink.flush()
        assert count(migrated, "iterations") == 80
    told = migrated.query("SELECT * FROM iterations FINAL ORDER BY iteration, pivot").to_pylist()
    assert [(row["iteration"], row["pivot"]) for row in told] == [(i, p) for i in range(40) for p in (0, 5)]


def test_offsets_are_safe_once_flushed() -> None:
    store = Recorder()
    sink = ClickHouseSink(store)
    assert sink.safe_offsets() == {}
    sink.process(message(FINDINGS, [finding(0)], 7))
    sink.process(message(FINDINGS, [finding(1)], 9))  # offsets have gaps
    sink.process(message(INCIDENTS, [incident()], 3))
    assert sink.safe_offsets() == {FINDINGS: 7, INCIDENTS: 3}
    store.failing = True
    with pytest.raises(StoreError):
        sink.flush()
    assert sink.safe_offsets() == {FINDINGS: 7, INCIDENTS: 3}
    store.failing = False
    sink.flush()
    assert sink.safe_offsets() == {FINDINGS: 10, INCIDENTS: 4}
    assert [(table, rows) for table, rows, _ in store.inserts] == [("findings", 2), ("incidents", 1)]
    sink.flush()
    assert len(store.inserts) == 2


def test_a_retry_has_the_token_of_the_first_attempt_and_other_messages_another() -> None:
    def token(*messages: Message) -> str:
        store = Recorder()
        sink = ClickHouseSink(store)
        for one in messages:
            sink.process(one)
        sink.flush()
        ((_, _, token),) = store.inserts
        return token

    one, two = message(FINDINGS, [finding(0)], 4), message(FINDINGS, [finding(1)], 5)
    same = token(one, two)
    assert same.startswith("analysis.findings/0/4-5/")
    assert token(one, two) == same
    others = {
        token(one),
        token(at(one, 3), two),
        token(one, at(two, 6)),
        token(at(one, 4, partition=1), at(two, 5, partition=1)),
        token(one, message(FINDINGS, [finding(2)], 5)),  # a topic made anew counts from 0 again
        token(message(FINDINGS, [finding(0)], 4, job="other"), two),
    }
    assert len(others - {same}) == 6


def test_two_runs_in_process_count_from_zero_and_both_are_stored(migrated: Store) -> None:
    for job in ("first", "second", "second"):
        sink = ClickHouseSink(migrated)
        sink.process(message(FINDINGS, findings(), 0, job=job))
        sink.flush()
    assert count(migrated, "findings") == 2 * len(findings())


@pytest.mark.parametrize(("bounds", "flushes"), [({"max_rows": 20}, 4), ({"max_bytes": 1}, 8), ({}, 0)])
def test_what_waits_is_bounded(bounds: dict[str, Any], flushes: int) -> None:
    store = Recorder()
    sink = ClickHouseSink(store, **bounds)
    for offset in range(8):
        sink.process(message(ITERATIONS, iterations()[:10], offset))
    assert len(store.inserts) == flushes


def test_an_insert_is_of_one_day_and_no_larger_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.clickhouse.rows.MAX_INSERT_ROWS", 40)
    store = Recorder()
    sink = ClickHouseSink(store)
    midnight = (START_NS // DAY_NS + 1) * DAY_NS
    rows = [*comm_ops(call_ns=midnight - 10**9), *comm_ops(call_ns=midnight)]
    sink.process(message(COMM_OPS, rows[::-1], 0))
    sink.flush()
    assert [rows for _, rows, _ in store.inserts] == [40, 24, 40, 24]
    assert len({token for _, _, token in store.inserts}) == 4


def test_the_days_of_the_inserts_are_the_partitions_of_the_store(chdb: ChdbStore) -> None:
    table, midnight = TABLES["comm_ops"], (START_NS // DAY_NS + 1) * DAY_NS
    told = [row for call_ns in (midnight - 10**7, 0, DAY_NS - 1) for row in comm_ops(call_ns=call_ns)]
    rows = stored_rows(table, COMM_OPS.from_rows(told), JOB)
    migrate(chdb)
    pieces = by_partition(table, rows)
    for name, piece in pieces:
        chdb.insert("comm_ops", piece, name)
    parts = chdb.query("SELECT partition, rows FROM system.parts WHERE active AND table = 'comm_ops'").to_pylist()
    days = Counter(datetime.fromtimestamp(row["call_ns"] // 10**9, UTC).strftime("%Y%m%d") for row in told)
    assert {part["partition"]: part["rows"] for part in parts} == days
    assert sorted(piece.num_rows for _, piece in pieces) == sorted(days.values())


def test_poison_is_refused_and_leaves_no_trace() -> None:
    store = Recorder()
    sink = ClickHouseSink(store)
    sink.process(message(FINDINGS, [finding(0)], 0))
    broken = message(FINDINGS, [finding(1)], 1)
    with pytest.raises(UndecodableMessage):
        sink.process(Message(broken.topic, broken.key, b"no arrow", broken.headers, 0, 1))
    with pytest.raises(ImpossibleValue, match="cause holds 'gremlins'"):
        sink.process(message(FINDINGS, [finding(2, cause="gremlins")], 2))
    sink.process(message(FINDINGS, [finding(3)], 3))
    sink.flush()
    assert store.inserts[0][1] == 2


def test_records_without_rows_are_stored_as_nothing(migrated: Store) -> None:
    sink = ClickHouseSink(migrated)
    empty = COMM_OPS.from_rows([])
    for offset in range(3):
        sink.process(at(encode(COMM_OPS, empty, job=JOB), offset))
    sink.flush()
    assert sink.safe_offsets() == {COMM_OPS: 3}
    assert count(migrated, "comm_ops") == 0


def test_a_tick_does_nothing() -> None:
    store = Recorder()
    sink = ClickHouseSink(store)
    sink.process(message(FINDINGS, [finding(0)]))
    assert list(sink.tick(START_NS * 2)) == []
    assert store.inserts == []


def test_every_column_of_a_table_but_the_materialized_is_filled() -> None:
    rows: dict[str, Any] = {
        "iterations": iterations(),
        "findings": findings(),
        "incidents": incidents(),
        "comm_ops": comm_ops(),
        "operators": [],
        "traffic_metrics": [],
    }
    for table in TABLES.values():
        stored = stored_rows(table, table.topic.from_rows(rows[table.name]), JOB)
        assert stored.schema.names == [column.name for column in table.columns if column.materialized is None]
