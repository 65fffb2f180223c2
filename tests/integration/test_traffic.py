"""NIC telemetry through a real broker and the workers that look at it: what is found is what is found in process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from local.kafka import LocalKafka
from offbeat import wiring
from offbeat.settings import Settings
from producers.job_source import job_message
from producers.publisher import Publisher
from producers.simulation.nic import simulate_nics
from schemas import catalogue
from schemas.message import Message, decode
from streams.bus import Bus
from streams.compare import Compare
from streams.follower import Follower
from streams.segment import Segment
from tests.integration.roles import Kind, Role
from tests.offbeat.command_line import offbeat, own_environment
from tests.offbeat.test_traffic_in_process import NEIGHBOURS
from tests.streams.examples import Listener
from tests.streams.traffic_cases import SLOW_NIC

pytestmark = pytest.mark.kafka

WITHIN_S = 90.0
Found = set[tuple[int, str, tuple[int, ...]]]


def named(messages: Iterable[Message]) -> Found:
    """Iteration, cause and ranks of every finding that names somebody."""
    rows = (row for message in messages for row in decode(message, catalogue.FINDINGS).to_pylist())
    return {(row["iteration"], row["cause"], tuple(row["ranks"])) for row in rows if row["cause"]}


def test_workers_find_what_is_found_in_process(local_kafka: LocalKafka, tmp_path: Path) -> None:
    run = simulate_nics(replace(NEIGHBOURS, seed=77, iterations=16, faults=(replace(SLOW_NIC, at_s=0.03),)))
    heard = Listener((catalogue.FINDINGS,))
    wiring.run_traffic_in_process(run.job, run.messages(), Settings(), [heard])
    expected = named(heard.heard)
    assert {ranks for _, cause, ranks in expected if cause == "communication_slow"} == {(2,)}

    servers = local_kafka.bootstrap_servers
    settings = {"OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": servers}
    assert offbeat("topics", "apply", settings=settings).exit_code == 0
    publisher = Publisher({"bootstrap.servers": servers}, "test")
    for message in (job_message(run.job), *run.messages()):
        publisher.send(message)
    publisher.flush()
    environment = {**own_environment(settings), "PYTHONPATH": str(Path(__file__).parents[2])}
    kinds = [Kind(("worker", step.name), step.reads) for step in (Segment, Compare)]
    with (
        Role(kinds[0], environment, tmp_path / "segment") as segment,
        Role(kinds[1], environment, tmp_path / "compare") as compare,
        Follower(Bus(servers), catalogue.FINDINGS.name) as follower,
    ):
        seen: list[Message] = []

        def all_is_found() -> None:
            for role in (segment, compare):
                if not role.running:
                    pytest.fail(role.last_words())
            seen.extend(message for message in follower.catch_up() if message.job == run.job.job)
            assert named(seen) == expected

        Retrying(
            retry=retry_if_exception_type(AssertionError),
            stop=stop_after_delay(WITHIN_S),
            wait=wait_fixed(0.2),
            reraise=True,
        )(all_is_found)
