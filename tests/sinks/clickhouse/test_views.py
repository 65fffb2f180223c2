"""Each view gives what a plain reading of its sentence in schemas/views.py gives."""

import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.job import Job, Place
from schemas.catalogue import INCIDENTS, ITERATION_SUMMARIES, ITERATIONS, TRAFFIC_METRICS
from schemas.message import decode, encode
from schemas.tables import TABLES
from schemas.topic import Topic
from sinks.clickhouse.rows import stored_rows
from sinks.clickhouse.store import Store
from streams.monitor import Monitor
from tests.sinks.clickhouse.samples import START_NS, incident, iterations, ran

JOBS = ("one", "two")
DEVICES = [
    {"device": name, "kind": name[:3], "downside_nics": None} for name in ("gpu:a/0", "gpu:a/1", "nic:a/0", "nic:b/0")
]

Rows = dict[str, list[dict[str, Any]]]
"""Rows of a topic by job."""


def stored(store: Store, topic: Topic, rows: Rows) -> Store:
    """The store holding these rows of the topic, and nothing else; a row an insert, so that order counts."""
    (table,) = (table for table in TABLES.values() if table.topic is topic)
    store.execute(f"TRUNCATE TABLE {table.name}")
    for job, told in rows.items():
        for row in told:
            store.insert(table.name, stored_rows(table, topic.from_rows([row]), job), uuid.uuid4().hex)
    return store


def at(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, UTC)


def newest(rows: Iterable[dict[str, Any]], version: str) -> list[dict[str, Any]]:
    """One row an id: of the highest version, the last."""
    kept: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["id"] not in kept or row[version] >= kept[row["id"]][version]:
            kept[row["id"]] = row
    return list(kept.values())


_incidents = st.builds(
    incident,
    id=st.sampled_from(["a", "b", "c"]),
    revision=st.integers(1, 3),
    state=st.sampled_from(["open", "resolved"]),
    devices=st.lists(st.sampled_from(DEVICES), max_size=3, unique_by=lambda device: device["device"]),
    lost_ns=st.none() | st.integers(0, 10**12),
    lost_gpu_seconds=st.none() | st.integers(0, 100).map(float),
    opened_ns=st.integers(0, 9).map(lambda second: START_NS + second * 10**9),
    updated_ns=st.integers(10, 19).map(lambda second: START_NS + second * 10**9),
)


def lost(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def total(name: str) -> Any:
        known = [row[name] for row in rows if row[name] is not None]
        return sum(known) if known else None

    return {
        "incidents": len(rows),
        "open_incidents": sum(row["state"] == "open" for row in rows),
        "lost_ns": total("lost_ns"),
        "lost_gpu_seconds": total("lost_gpu_seconds"),
        "first_opened_at": at(min(row["opened_ns"] for row in rows)),
        "last_updated_at": at(max(row["updated_ns"] for row in rows)),
    }


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.fixed_dictionaries({job: st.lists(_incidents, max_size=5) for job in JOBS}))
def test_time_lost_and_open_incidents(migrated: Store, rows: Rows) -> None:
    store = stored(migrated, INCIDENTS, rows)
    current = {job: newest(told, "revision") for job, told in rows.items() if told}
    by_device: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for job, told in current.items():
        for row in told:
            for device in row["devices"]:
                by_device[job, device["device"], device["kind"]].append(row)

    by_job = store.query("SELECT * FROM time_lost_by_job ORDER BY job").to_pylist()
    assert by_job == [{"job": job, **lost(told)} for job, told in sorted(current.items())]
    answer = store.query("SELECT * FROM time_lost_by_device ORDER BY job, device").to_pylist()
    assert answer == [
        {"job": job, "device": device, "kind": kind, **lost(told)}
        for (job, device, kind), told in sorted(by_device.items())
    ]
    going_on = store.query("SELECT job, id, revision, devices FROM open_incidents ORDER BY job, id").to_pylist()
    assert going_on == [
        {"job": job, "id": row["id"], "revision": row["revision"], "devices": [d["device"] for d in row["devices"]]}
        for job, told in sorted(current.items())
        for row in sorted(told, key=lambda row: str(row["id"]))
        if row["state"] == "open"
    ]


_seen = st.builds(
    lambda iteration, pivot, **changes: {**iterations()[0], "iteration": iteration, "pivot": pivot, **changes},
    iteration=st.integers(0, 3),
    pivot=st.integers(0, 3),
    duration_ns=st.none() | st.integers(0, 100),
    pause_ns=st.none() | st.integers(0, 50),
    expected_ns=st.none() | st.integers(0, 100),
    irregular=st.none() | st.booleans(),
    pattern=st.none() | st.sampled_from(["abnormal_spike", "persistent_degradation"]),
)


def largest(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def judged(durations: list[int]) -> int | None:
    """The median, the lower of two; not known where one is more than three times as long."""
    median = sorted(durations)[(len(durations) - 1) // 2] if durations else None
    return None if median is None or max(durations) > 3 * median else median


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.fixed_dictionaries({job: st.lists(_seen, max_size=8) for job in JOBS}))
def test_iteration_history(migrated: Store, rows: Rows) -> None:
    store = stored(migrated, ITERATIONS, rows)
    expected = []
    for job, told in sorted(rows.items()):
        current = {(row["iteration"], row["pivot"]): row for row in told}
        for iteration in sorted({row["iteration"] for row in told}):
            seen = [row for (at_iteration, _), row in current.items() if at_iteration == iteration]
            lasted = judged([row["duration_ns"] for row in seen if row["duration_ns"] is not None])
            if lasted is not None:
                lasted -= largest(row["pause_ns"] for row in seen) or 0
            usual = largest(row["expected_ns"] for row in seen)
            irregular = largest(row["irregular"] for row in seen)
            expected.append(
                {
                    "job": job,
                    "iteration": iteration,
                    "start_at": at(START_NS),
                    "duration_ns": lasted,
                    "expected_ns": usual,
                    "irregular": irregular,
                    "patterns": sorted({row["pattern"] for row in seen} - {None}),
                    "excess_ns": lasted - usual if irregular and None not in (lasted, usual) else None,
                    "irregular_pivots": sum(row["irregular"] is True for row in seen),
                    "pivots": len(seen),
                }
            )
    answer = store.query("SELECT * FROM iteration_history ORDER BY job, iteration").to_pylist()
    assert answer == expected


def test_the_time_shown_of_an_iteration_is_the_one_it_was_judged_by(migrated: Store) -> None:
    """A rank that begins iterations late lengthens the one before by its own log, and the last one by the others'."""
    late = range(15, 20)
    calls = {rank: [100 * i + 90 * (rank == 1 and i in late) for i in range(25)] for rank in (0, 1)}
    for i in late:  # all wait for the late one
        calls = {rank: [at + 90 * (n > i) for n, at in enumerate(times)] for rank, times in calls.items()}
    summaries = [
        ITERATION_SUMMARIES.from_rows(
            [
                {
                    "rank": rank,
                    "iteration": i,
                    "start_ns": START_NS + times[i],
                    "end_ns": START_NS + times[i + 1],
                    "operators": 1,
                    "lost_lines": 0,
                    "last": None,
                }
                for rank, times in calls.items()
            ]
        )
        for i in range(24)
    ]
    job = Job("one", (Place(0, "h"), Place(1, "h")), ())
    monitor = Monitor({"one": job})
    told = [
        row
        for batch in summaries
        for message in monitor.process(encode(ITERATION_SUMMARIES, batch, job="one", watermark_ns=START_NS))
        for row in decode(message, ITERATIONS).to_pylist()
    ]
    rows = stored(migrated, ITERATIONS, {"one": told}).query("SELECT * FROM iteration_history ORDER BY iteration")
    assert len({row["duration_ns"] for row in told if row["iteration"] == 14}) == 2
    judged_rows = [row for row in rows.to_pylist() if row["irregular"] is not None]
    assert [row["iteration"] for row in judged_rows if row["irregular"]] == list(late)[:-1]
    for row in judged_rows:
        assert (row["duration_ns"] > MonitorSettings().delta * row["expected_ns"]) == row["irregular"], row
        assert row["excess_ns"] == (row["duration_ns"] - row["expected_ns"] if row["irregular"] else None)


def test_the_time_of_data_parallelism_is_told_by_iteration(migrated: Store) -> None:
    """Operators that run together count once; the optimizer's pause ends no iteration, a checkpoint is one pause."""
    began = [0, 1_000, 2_000, 4_500, 5_500, 6_500]
    synced = [(at + begin, at + end) for at in began for begin, end in ((0, 50), (40, 70), (70, 90), (120, 180))]
    rows = [ran(3, "dp", start, end, seq) for seq, (start, end) in enumerate(synced)]
    others = [ran(3, "tp", 500, 600, 100), ran(3, "dp", 300, 310, 101) | {"end_ns": None}]
    rows += [*others, ran(4, "dp", 0, 10, 0), ran(4, "dp", 1_000, 1_030, 1), ran(4, "dp", 2_000, 2_020, 2)]
    store = stored(migrated, TRAFFIC_METRICS, {"one": rows, "two": [ran(3, "dp", 700, 900)]})
    answer = store.query("SELECT * FROM data_parallel_time ORDER BY job, rank, iteration").to_pylist()
    took = [(row["job"], row["rank"], row["iteration"], row["communicating_ns"] // 1_000_000) for row in answer]
    assert took == [
        *(("one", 3, iteration, 150) for iteration in range(6)),
        *(("one", 4, iteration, ms) for iteration, ms in enumerate((10, 30, 20))),
        ("two", 3, 0, 200),
    ]
    assert [row["operators"] for row in answer] == [4] * 6 + [1] * 4
    assert (answer[1]["end_at"] - answer[1]["start_at"]).total_seconds() == 0.18


def test_a_microbatch_takes_as_long_as_passes_between_sends_to_one_stage(migrated: Store) -> None:
    sends = [(at + begin, peer) for at in (0, 1_000) for begin in range(0, 240, 30) for peer in (0, 8)]
    rows = [ran(4, "pp", at + peer, at + 20, seq, (peer,)) for seq, (at, peer) in enumerate(sends)]
    store = stored(
        migrated, TRAFFIC_METRICS, {"one": [*rows, ran(0, "pp", 5, 9, 0, (4,)), ran(4, "ep", 7, 8, 0, (0,))]}
    )
    answer = store.query("SELECT job, rank, microbatch_ns, sends FROM microbatch_time").to_pylist()
    assert answer == [{"job": "one", "rank": 4, "microbatch_ns": 30_000_000, "sends": len(sends) - 2}]
