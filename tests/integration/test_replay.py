"""The past that a real Kafka holds, diagnosed again into a real ClickHouse beside the live rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from offbeat import wiring
from offbeat.settings import Settings
from producers.publisher import Publisher
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate
from schemas import catalogue
from sinks.clickhouse.driver import DriverStore, ServerAddress
from streams import topics
from streams.bus import Bus
from tests.offbeat.command_line import offbeat, refusal
from tests.producers.importers import kept_log
from tests.services import ClickHouseAddress
from tests.streams.examples import Listener

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse]

SET = f"again{uuid4().hex[:8]}"


@pytest.fixture
def settings(kafka: str, clickhouse: ClickHouseAddress) -> dict[str, str]:
    return {
        "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": kafka,
        "OFFBEAT_STORE__ENGINE": "clickhouse",
        "OFFBEAT_STORE__HOST": clickhouse.host,
        "OFFBEAT_STORE__PORT": str(clickhouse.port),
        "OFFBEAT_STORE__USER": clickhouse.user,
        "OFFBEAT_STORE__PASSWORD": clickhouse.password,
    }


@pytest.fixture
def server(clickhouse: ClickHouseAddress) -> Iterator[DriverStore]:
    address = ServerAddress(clickhouse.host, clickhouse.port, user=clickhouse.user, password=clickhouse.password)
    store = DriverStore(address)
    yield store
    store.execute(f"DROP DATABASE IF EXISTS default_{SET} SYNC")
    store.close()


def published(kafka: str) -> SimulatedRun:
    """A small job with a slow GPU, whose topics hold what they do once it is over."""
    topics.apply(Bus(kafka), catalogue.TOPICS.values())
    fault = Fault(Kind.GPU_SLOW, 1, tuple(range(14, 22)), slowdown=1.6)
    run = simulate(Scenario(9173, tp=2, pp=1, dp=2, layers=2, microbatches=2, iterations=26, faults=(fault,)))
    told = Listener(tuple(topic for topic in catalogue.TOPICS.values() if topic is not catalogue.STATE))
    wiring.run_in_process(run.job, run.table, Settings(), [told])
    publisher = Publisher({"bootstrap.servers": kafka}, "test")
    for message in told.heard:
        publisher.send(message)
    # Somebody else's nonsense in between is told, and nothing more.
    publisher.send(replace(told.heard[-1], topic=catalogue.ITERATION_SUMMARIES.name, value=b"nonsense"))
    publisher.flush()
    return run


def test_what_was_kept_is_diagnosed_again(
    kafka: str, settings: dict[str, str], server: DriverStore, tmp_path: Path
) -> None:
    began = datetime.now(UTC) - timedelta(seconds=5)
    run = published(kafka)
    job = run.job.job
    kept_log.write(tmp_path / "jobs" / job, run.table)
    options = ("--as", SET, "--since", f"{began:%Y-%m-%dT%H:%M:%S}", "--job", job)

    def answer(*more: str) -> dict[str, Any]:
        result = offbeat("replay", *options, "--json", *more, settings=settings)
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    told = answer()
    assert (told["iterations"], told["incidents"]) == (26, {"same": 1, "changed": 0, "gone": 0, "new": 0})
    assert (told["findings"]["same"], told["differences"]) == (4, [])
    [nonsense] = [line for line in told["gone"] if line.startswith("telemetry.iteration_summaries partition")]
    assert "header schema is" in nonsense
    assert told["refused"] == []
    found = server.query(f"SELECT ranks, cause FROM default_{SET}.incidents FINAL").to_pylist()
    assert found == [{"ranks": [1], "cause": "compute_slow"}]

    assert f"there is a result set {SET} already" in refusal(offbeat("replay", *options, settings=settings))
    nobody = ("--as", f"{SET}_nobody", *options[2:4], "--job", "nope")
    assert "job 'nope' is not described in control.jobs" in refusal(offbeat("replay", *nobody, settings=settings))
    named = server.query(f"SELECT name FROM system.databases WHERE name LIKE 'default_{SET}%'").column(0).to_pylist()
    assert named == [f"default_{SET}"]
    stricter = answer("--replace", "--set", "monitor.delta=4", "--logs", str(tmp_path), "--memory", "0.1")
    assert stricter["incidents"] == {"same": 0, "changed": 0, "gone": 1, "new": 0}
    assert server.query(f"SELECT count() AS n FROM default_{SET}.incidents").to_pylist() == [{"n": 0}]
    if server.query("EXISTS TABLE default.incidents").column(0)[0].as_py():
        mixed = server.query("SELECT count() AS n FROM default.incidents WHERE job = {job:String}", {"job": job})
        assert mixed.to_pylist() == [{"n": 0}]
