"""A recorded run in place of an earlier one of the same name, in either engine."""

from typing import Any

import pytest

from schemas.catalogue import FINDINGS, INCIDENTS, ITERATIONS
from schemas.errors import StoreError
from schemas.message import Message
from schemas.tables import TABLES
from sinks.clickhouse.one_run import OneRun
from sinks.clickhouse.sink import ClickHouseSink
from sinks.clickhouse.store import Store
from tests.sinks.clickhouse.samples import JOB, finding, incident, iterations, message, story


def recorded(store: Store, *messages: Message, job: str = JOB) -> OneRun:
    run = OneRun(store, job)
    for one in messages:
        assert list(run.process(one)) == []
    return run


def live(store: Store, *messages: Message) -> None:
    sink = ClickHouseSink(store)
    for one in messages:
        sink.process(one)
    sink.flush()


def stored(store: Store, table: str, what: str = "id") -> list[Any]:
    answer = store.query(f"SELECT {what} AS told FROM {table} FINAL ORDER BY job, told")
    rows: list[Any] = answer.column("told").to_pylist()
    return rows


def test_a_later_run_is_told_alone(migrated: Store) -> None:
    recorded(migrated, *story()).keep()
    assert all(stored(migrated, table, "1") for table in TABLES if table != "operators")
    second = recorded(migrated, message(FINDINGS, [finding(7)]))
    assert second.replaces
    assert stored(migrated, "findings") != ["f007"]  # until it is kept the former is there
    second.keep()
    assert stored(migrated, "findings") == ["f007"]
    assert not any(stored(migrated, table, "1") for table in TABLES if table != "findings")


def test_what_counts_of_two_runs_is_not_who_has_the_higher_version(migrated: Store) -> None:
    recorded(migrated, message(INCIDENTS, [incident(revision=5)]), message(FINDINGS, [finding(0)])).keep()
    earlier = finding(0, found_ns=finding(0)["found_ns"] - 10**12, ranks=[3])
    recorded(migrated, message(INCIDENTS, [incident(revision=1)]), message(FINDINGS, [earlier])).keep()
    assert stored(migrated, "incidents", "revision") == [1]
    assert stored(migrated, "findings", "ranks") == [[3]]


def test_the_first_run_may_come_again(migrated: Store) -> None:
    first, second = message(FINDINGS, [finding(0)]), message(FINDINGS, [finding(1)])
    for one, told in ((first, "f000"), (second, "f001"), (first, "f000"), (first, "f000")):
        recorded(migrated, one).keep()
        assert stored(migrated, "findings") == [told]


def test_other_jobs_stay(migrated: Store) -> None:
    recorded(migrated, message(FINDINGS, [finding(0)], job="other"), job="other").keep()
    for number in (1, 2):
        recorded(migrated, message(FINDINGS, [finding(number)])).keep()
    assert stored(migrated, "findings", "concat(job, '/', id)") == [f"{JOB}/f002", "other/f000"]


@pytest.mark.parametrize("when", ["before any recording", "after one"])
def test_what_a_live_pipeline_told_stays(migrated: Store, when: str) -> None:
    if when == "after one":
        recorded(migrated, message(FINDINGS, [finding(0)])).keep()
        while (
            not migrated.query("SELECT now('UTC') > max(stored_at) AS later FROM findings").column("later")[0].as_py()
        ):
            pass  # the store knows to the second when a row came in
    live(migrated, message(FINDINGS, [finding(1)]))
    for number in (2, 3):
        beside = recorded(migrated, message(FINDINGS, [finding(number)]))
        assert not beside.replaces
        beside.keep()
    assert {"f001", "f002", "f003"} <= set(stored(migrated, "findings"))


def test_a_diagnosis_that_fails_leaves_what_was_stored(migrated: Store) -> None:
    recorded(migrated, message(FINDINGS, [finding(0)])).keep()
    recorded(migrated, message(FINDINGS, [finding(1)]), message(ITERATIONS, iterations()))  # ended before its end
    assert stored(migrated, "findings") == ["f000"]


def test_what_could_not_be_stored_whole_is_replaced(migrated: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(migrated, message(FINDINGS, [finding(0)])).keep()
    half = recorded(migrated, message(FINDINGS, [finding(1)]), message(ITERATIONS, iterations()))
    insert = migrated.insert

    def full(table: str, data: Any, token: str) -> None:
        if table == "findings":
            raise StoreError("the disk is full")
        insert(table, data, token)

    with monkeypatch.context() as patched:
        patched.setattr(migrated, "insert", full)
        with pytest.raises(StoreError, match="full"):
            half.keep()
    assert stored(migrated, "iterations", "1")
    again = recorded(migrated, message(FINDINGS, [finding(1)]))
    assert again.replaces
    again.keep()
    assert (stored(migrated, "findings"), stored(migrated, "iterations", "1")) == (["f001"], [])
