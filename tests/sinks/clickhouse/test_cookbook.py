"""Every query of docs/sql.md answers on both engines, with rows."""

import re
from pathlib import Path
from typing import Any

import pytest

from schemas.catalogue import FINDINGS, TRAFFIC_METRICS
from schemas.tables import TABLES
from schemas.views import VIEWS
from sinks.clickhouse.query import ask
from sinks.clickhouse.sink import ClickHouseSink
from sinks.clickhouse.store import Parameter, Store
from tests.sinks.clickhouse.samples import GPU, JOB, finding, message, ran, stored_in

COOKBOOK = (Path(__file__).parents[3] / "docs" / "sql.md").read_text()
QUERIES: list[str] = re.findall(r"^```sql\n(.*?)^```$", COOKBOOK, re.MULTILINE | re.DOTALL)
PARAMETERS: dict[str, Parameter] = {
    "job": JOB,
    "incident": "i-gpu",
    "rank": 3,
    "iteration": 10,
    "device": GPU["device"],
    "since": "2026-01-01 00:00:00",
    "until": "2027-01-01 00:00:00",
    "stage_ranks": 4,
}
OF_NICS = "moe-nics"
"""The job that is followed by its NICs' traffic alone."""


def sent(rank: int, seq: int, op: str, ms: float, **changes: Any) -> dict[str, Any]:
    """What a rank sent in a collective: 4 MB in so many of 10 ms, unless changed."""
    times = {"actual_time_ns": int(ms * 1e6), "duration_ns": 10_000_000, "actual_rate_bytes_per_s": 4e9 / ms}
    row = {**ran(rank, "dp", seq * 100, seq * 100 + 10, seq), **times}
    return {**row, "communicator": f"{op}s", "op": op, "nic": "mlx5_0", "sent_bytes": 4_000_000, **changes}


def sent_by_nics() -> list[dict[str, Any]]:
    """Collectives in which rank 2 sends for twice as long, and one that rank 3 does not begin."""
    collectives = [
        sent(rank, seq, op, 8.0 if rank == 2 else 4.0)
        for op in ("all_reduce", "custom")
        for seq in range(3)
        for rank in range(4)
    ]
    last = [sent(0, 9, "custom", 1.0, state="incomplete", incomplete_peers=[3], end_ns=None)]
    nothing = dict.fromkeys(("start_ns", "end_ns", "actual_time_ns", "duration_ns", "actual_rate_bytes_per_s"))
    return [*collectives, *last, sent(3, 9, "custom", 1.0, state="missing_start", **nothing)]


def found_in_traffic() -> dict[str, Any]:
    """The finding that names rank 2."""
    measures = [{"name": "deviation", "value": 0.01}, {"name": "ratio", "value": 2.0}]
    told = {"cause": "communication_slow", "ranks": [2], "rule": "actual_time", "measures": measures}
    return finding(0, method="traffic", devices=[], stage=None, waits=[], **told)


@pytest.fixture
def filled(migrated: Store) -> Store:
    """Either engine, holding the story."""
    stored_in(migrated)
    sink = ClickHouseSink(migrated)
    sink.process(message(TRAFFIC_METRICS, sent_by_nics(), job=OF_NICS))
    sink.process(message(FINDINGS, [found_in_traffic()], job=OF_NICS))
    sink.flush()
    return migrated


def answers(store: Store, query: str, **changed: Parameter) -> list[dict[str, Any]]:
    given = {**PARAMETERS, **changed}
    named = set(re.findall(r"\{(\w+):", query))
    rows: list[dict[str, Any]] = ask(store, query, {name: given[name] for name in named}).rows.to_pylist()
    return rows


def after(sentence: str) -> str:
    """The query that follows a sentence of the cookbook."""
    return next(query for query in QUERIES if COOKBOOK.index(query) > COOKBOOK.index(sentence))


def test_every_query_answers(filled: Store) -> None:
    assert len(QUERIES) >= 10
    for query in QUERIES:
        changed: dict[str, Parameter] = {"rank": 11} if "waits" in query else {}
        changed |= {"job": OF_NICS} if "FROM traffic_metrics" in query or "'traffic'" in query else {}
        assert answers(filled, query, **changed), query


def test_what_goes_on(filled: Store) -> None:
    rows = answers(filled, after("What goes on, the most expensive first"))
    assert [(row["devices"], row["lost_gpu_seconds"]) for row in rows] == [
        (["nic:host2/eth1", "nic:host2/eth2"], 24.0),
        ([], None),
    ]


def test_why_was_i_paged(filled: Store) -> None:
    rows = answers(filled, after("Why was I paged?"))
    assert [row["iteration"] for row in rows] == list(range(10, 20))
    assert rows[0] | {"coverage": 1.0, "path": [0, 8, 11], "share": 0.97, "excess_ms": 400.0} == rows[0]


def test_the_ranking_names_the_gpu_first_and_the_nics_together(filled: Store) -> None:
    rows = answers(filled, after("Which hardware is the evidence against?"))
    nics = ["nic:host2/eth1", "nic:host2/eth2"]
    assert [(row["place"], row["device"], row["findings"], row["ambiguity_set"]) for row in rows] == [
        (1, "gpu:host1/3", 10, ["gpu:host1/3"]),
        (2, "nic:host2/eth1", 3, nics),
        (2, "nic:host2/eth2", 3, nics),
    ]
    assert rows[0]["irregularity_rate"] == pytest.approx(10.0)  # of the series, whatever the stored rates say
    assert rows[0]["score"] == pytest.approx((10 + 74 / 126) / (10 + 3 + 3 + 1), abs=1e-3)


def test_what_prior_and_decay_change(filled: Store) -> None:
    rows = answers(filled, after("What prior and decay change"))
    assert [(row["place"], row["place_by_plain_sums"]) for row in rows] == [(1, 1), (2, 2), (2, 2)]


def test_a_device_over_all_jobs(filled: Store) -> None:
    first, *_ = answers(filled, after("Over all jobs"))
    assert (first["device"], first["jobs"], first["evidence"]) == ("gpu:host1/3", 1, 10.0)


def test_time_lost(filled: Store) -> None:
    by_device = {row["device"]: row["lost_s"] for row in answers(filled, after("What each device has cost."))}
    assert by_device == {"gpu:host1/3": 8.0, "nic:host2/eth1": 1.5, "nic:host2/eth2": 1.5}
    (job,) = answers(filled, after("What incidents have cost each job"))
    assert (job["incidents"], job["open_incidents"], job["lost_s"]) == (3, 2, 9.5)


def test_the_picture_marks_the_irregular_iterations(filled: Store) -> None:
    rows = answers(filled, after("The iterations of a job as a picture"))
    assert [row["iteration"] for row in rows if row["irregular"] == "!"] == list(range(10, 20))
    assert len(rows) == 40
    assert rows[30]["ms"] is None
    assert rows[0]["of_expected"] is None


def test_what_irregular_iterations_cost(filled: Store) -> None:
    (row,) = answers(filled, after("How much time a job's irregular iterations cost"))
    assert row["job"] == JOB
    assert (row["irregular_iterations"], row["located_iterations"]) == (10, 10)
    assert row["excess_s"] == pytest.approx(4.0)


def test_who_was_last(filled: Store) -> None:
    rows = answers(filled, after("Who entered each collective last"))
    assert {row["last_rank"] for row in rows} == {3}
    assert {row["ranks"] for row in rows} == {8}
    assert float(rows[0]["spread_ms"]) == pytest.approx(4.0)


def test_the_slowest_operators_have_an_end(filled: Store) -> None:
    rows = answers(filled, after("The slowest of a rank"), rank=2)
    assert [row["seq"] for row in rows] != []
    assert {round(float(row["ms"]), 3) for row in rows} == {5.998}
    assert len(rows) == 7  # the end of the eighth was not seen


def test_who_was_named_by_which_rule(filled: Store) -> None:
    (row,) = answers(filled, after("Who was named, by which rule"), job=OF_NICS)
    assert (row["ranks"], row["rule"], row["decided_by"]) == ([2], "actual_time", "deviation 0.01, ratio 2")


def test_the_nic_that_sends_for_longest_comes_first(filled: Store) -> None:
    first, *others = answers(filled, after("Which rank sends for longest?"), job=OF_NICS)
    assert (first["rank"], first["of_median"], first["of_duration"]) == (2, 2.0, 0.8)
    assert {row["of_median"] for row in others} == {1.0}
    first, *others = answers(filled, after("In custom collectives"), job=OF_NICS)
    assert (first["rank"], first["of_median"], first["gbit_per_s"]) == (2, 0.5, 4.0)
    assert {row["of_median"] for row in others} == {1.0}


def test_who_has_not_begun_what_others_wait_in(filled: Store) -> None:
    (row,) = answers(filled, after("What does not end"), job=OF_NICS)
    assert (row["seq"], row["not_begun"], row["begun"], row["sent_to_in_part"]) == (9, [3], [0], [3])


def test_the_tables_and_views_are_all_told_of() -> None:
    for name in [*TABLES, *VIEWS]:
        assert f"`{name}" in COOKBOOK
    for table in TABLES.values():
        assert re.search(rf"^\| `{table.name}` .* \| {table.keep_days} days \|$", COOKBOOK, re.MULTILINE)
